"""The four rings in the hands of the user, under the names that libxdp has for them.

    RxRing          peek, release     descriptors of packets that came       frames: kernel -> user
    FillRing        reserve, submit   addresses of frames to receive into    frames: user -> kernel
    TxRing          reserve, submit   descriptors of packets to send         frames: user -> kernel
    CompletionRing  peek, release     addresses of frames that were sent     frames: kernel -> user

`peek` and `reserve` give NumPy arrays over the ring memory itself: what they show is overwritten soon after `release`
or `submit`, so take copies of what is needed longer. An array ends where the ring's memory ends, and may be shorter
than what there is: the next call, after `release` or `submit`, gives the rest. Once the socket is closed, and in a
forked child, arrays read as zeros.

Frames that the user has stay the user's until they are submitted, or given back to the packet memory. Only those can be
submitted, and each only once: this is checked, and what is refused is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from xskit.arguments import whole
from xskit.errors import UsageError
from xskit.jit import direct
from xskit.xsk.frames import first_refused, refused
from xskit.xsk.path.direct import (
    COUNT_BITS,
    MOVED,
    peek,
    release_completed,
    release_rx,
    reserve,
    submit_fill,
    submit_tx,
)
from xskit.xsk.path.owner import FrameError
from xskit.xsk.path.rings import INDEX_MASK
from xskit.xsk.turn import Token, Turn

if TYPE_CHECKING:
    from xskit.xsk.mapping import MappedRing
    from xskit.xsk.umem import Umem

__all__ = ["CompletionRing", "FillRing", "RxRing", "TxRing"]

Views = tuple[memoryview, ...]

MOST_AT_ONCE = 1 << 16
"""Entries that `reserve` gives at most."""

RING_MOVED = -MOVED
"""The refusal that is about the ring, not about an entry."""

_COUNT_MASK = (1 << COUNT_BITS) - 1


class _RingEnd:
    """One ring, and where the entries lie that were last peeked or reserved.

    Args:
        side: address of the Receiver or Transmitter record that the ring belongs to.
        keep: views that keep mapped what the record refers to, and itself. The ring must not keep the socket, which is
            closed when it is forgotten.
        ring: the ring.
        umem: the packet memory.
        turn: of this side of the socket.
        look: `peek` or `reserve` of xsk/path/direct.py.
        move: what takes entries over, of the same module.
        more: its further arguments.
    """

    def __init__(
        self,
        side: int,
        keep: Views,
        ring: MappedRing,
        umem: Umem,
        turn: Turn,
        look: Callable[[int, int], int],
        move: Callable[..., int],
        *more: int,
    ) -> None:
        self._side, self._keep, self._ring, self._umem, self._turn = side, keep, ring, umem, turn
        self._look, self._move, self._more = direct(look), direct(move), more
        self._record, self._entries = ring.record, ring.entries
        self._mask = len(self._entries) - 1
        self._start = self._count = 0

    def _show(self, limit: int, most: int) -> np.ndarray[Any, Any]:
        """The entries that peek or reserve finds."""
        if type(limit) is not int or not 0 <= limit <= most:
            limit = min(whole("limit", limit, 0, INDEX_MASK), most)
        if not self._ring.size:
            raise self._turn.closed()
        self._count = 0
        found = self._look(self._record, limit)
        self._start = start = found >> COUNT_BITS
        self._count = count = found & _COUNT_MASK
        first = start & self._mask
        return self._entries[first : first + count]

    def _hand_on(self, count: int) -> int:
        """The first of the entries that were shown; returns what `move` says of it."""
        turn = self._turn
        token: Token = {"thread": get_ident()}
        try:
            last = turn.last
            if "over" in last and last.setdefault("after", token) is token:  # turn.take, without a call
                turn.last = token
            else:
                last = token  # a token of others in a local would count as theirs
                turn.take(token)
            if not self._ring.size:
                raise turn.closed()
            if type(count) is not int or not 0 <= count <= self._count:
                count = whole("count", count, 0, self._count)
            done = self._move(self._side, self._start, count, *self._more)
            if done < 0:
                raise self._refused(done)
            self._count -= count
            self._start = (self._start + count) & INDEX_MASK
            return done
        finally:
            token["over"] = True
            if (at_end := turn.at_end) is not None:
                at_end()

    def _refused(self, answer: int) -> FrameError | UsageError:
        """What is wrong with the entries, or with one of them."""
        return self._moved()

    def _moved(self) -> UsageError:
        name = self._ring.page.name.removesuffix("_RING")
        return UsageError(
            f"the entries are no longer the next ones of the {name} ring: another call has used it meanwhile",
            remedy="reserve(count) again" if self._entries.flags.writeable else "peek(count) again",
        )


class _Consumer(_RingEnd):
    """A ring that the kernel fills."""

    def __init__(
        self,
        side: int,
        keep: Views,
        ring: MappedRing,
        umem: Umem,
        turn: Turn,
        take: Callable[[int, int, int], int],
    ) -> None:
        super().__init__(side, keep, ring, umem, turn, peek, take)

    @property
    def available(self) -> int:
        """Entries that can be read now; 0 once the socket is closed."""
        return self._ring.pending()

    def peek(self, limit: int) -> np.ndarray[Any, Any]:
        """The next entries, at most `limit`, read-only; nothing is taken. Empty where there are none.

        Raises:
            UsageError: the socket is closed.
        """
        return self._show(limit, self._mask + 1)

    def release(self, count: int) -> int:
        """Take the first `count` of the entries last peeked: their frames are the caller's, and the kernel may write
        new entries. It may be called again for the rest of them.

        Returns:
            Of how many frames: fewer than `count` where the kernel named some that it did not have.

        Raises:
            UsageError: so many were not peeked, or another call has moved the ring since, or another call is at work on
                this side of the socket, or it is closed.
        """
        return self._hand_on(count)


class _Producer(_RingEnd):
    """A ring that the kernel empties."""

    words = 1
    """Of scratch memory an entry."""

    def __init__(
        self,
        side: int,
        keep: Views,
        ring: MappedRing,
        umem: Umem,
        turn: Turn,
        put: Callable[..., int],
        *more: int,
    ) -> None:
        self._most = min(len(ring.entries), MOST_AT_ONCE)
        self._scratch = np.empty(self.words * self._most, np.int64)
        super().__init__(side, keep, ring, umem, turn, reserve, put, int(self._scratch.ctypes.data), *more)

    @property
    def free(self) -> int:
        """Entries that can be written now; 0 once the socket is closed."""
        return max(0, self._ring.size - self._ring.pending())

    def _entry(self, answer: int) -> Any:
        """The entry that a refusal is about."""
        return self._entries[(self._start + first_refused(answer)) & self._mask]

    @property
    def needs_wakeup(self) -> bool:
        """Whether the kernel waits for a system call before it goes on with this ring."""
        return self._ring.needs_wakeup()

    def reserve(self, limit: int) -> np.ndarray[Any, Any]:
        """The next entries to write, at most `limit`; `submit` hands them over. Empty where there is no room.

        What is not submitted is not used up: the next call gives the same entries again.

        Raises:
            UsageError: the socket is closed.
        """
        return self._show(limit, self._most)


class RxRing(_Consumer):
    """RX: descriptors (`address`, `length`, `options`: struct xdp_desc) of packets that came.

    `options & 1` (XDP_PKT_CONTD): the packet goes on in the next descriptor. Release whole packets before you receive
    by packets or batches on the same socket: the rest of one is dropped.
    """

    def __init__(self, receiver: int, keep: Views, ring: MappedRing, umem: Umem, turn: Turn) -> None:
        super().__init__(receiver, keep, ring, umem, turn, release_rx)


class FillRing(_Producer):
    """FILL: addresses of frames that the kernel may receive into."""

    def __init__(self, receiver: int, keep: Views, ring: MappedRing, umem: Umem, turn: Turn) -> None:
        super().__init__(receiver, keep, ring, umem, turn, submit_fill)

    def submit(self, count: int) -> None:
        """Hand over the first `count` of the entries last reserved: the kernel has their frames.

        Raises:
            FrameError: a frame is not the caller's, or is named twice; nothing is handed over.
            UsageError: as `release` of RX says.
        """
        self._hand_on(count)

    def _refused(self, answer: int) -> FrameError | UsageError:
        if answer == RING_MOVED:
            return self._moved()
        return refused(answer, int(self._entry(answer)))


class TxRing(_Producer):
    """TX: descriptors (`address`, `length`, `options`: struct xdp_desc) of packets to send.

    `options`: 1 (XDP_PKT_CONTD) where the packet goes on in the next descriptor, in another frame; 2 (XDP_TX_METADATA)
    where a struct xsk_tx_metadata lies before the address. The kernel sends when the socket is kicked.

    Args:
        most_frames: descriptors that a packet may have; 1: the socket has no multi-buffer.
    """

    words = 2

    def __init__(
        self, transmitter: int, keep: Views, ring: MappedRing, umem: Umem, turn: Turn, most_frames: int
    ) -> None:
        super().__init__(transmitter, keep, ring, umem, turn, submit_tx, most_frames, umem.tx_metadata_bytes)
        self._most_frames = most_frames

    def submit(self, count: int) -> int:
        """Hand over the first `count` of the descriptors last reserved: the kernel has their frames.

        Returns:
            How many packets they were.

        Raises:
            FrameError: a frame is not the caller's, or is named twice; nothing is handed over.
            UsageError: a descriptor that can never be sent, or as `release` of RX says; nothing is handed over.
        """
        return self._hand_on(count)

    def _refused(self, answer: int) -> FrameError | UsageError:
        if answer == RING_MOVED:
            return self._moved()
        address, length, options = self._entry(answer).item()
        limits = {"most_frames": self._most_frames, "metadata_bytes": self._umem.tx_metadata_bytes}
        return refused(answer, address, length=length, options=options, **limits)


class CompletionRing(_Consumer):
    """COMPLETION: addresses of frames that were sent, or whose packets the kernel refused to send."""

    def __init__(self, transmitter: int, keep: Views, ring: MappedRing, umem: Umem, turn: Turn) -> None:
        super().__init__(transmitter, keep, ring, umem, turn, release_completed)
