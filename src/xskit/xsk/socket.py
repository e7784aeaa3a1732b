"""An AF_XDP socket: one queue of one interface, in Python.

    rings      sock.rx, sock.tx, sock.fill, sock.completion      entries as NumPy arrays
    batches    receive_batch, send_batch, forward, release       packets as rows of an array
    packets    receive, send, flush                              packets as objects

All three work on the same compiled data path and may take turns.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import repeat
from math import ceil
from threading import get_ident
from typing import TYPE_CHECKING, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from xskit.abi.xdp import Statistics
from xskit.arguments import choice, literal, seconds, whole
from xskit.bpf.redirect import RedirectProgram
from xskit.closing import Closing, forgotten
from xskit.errors import Setting, UsageError
from xskit.netconf.interfaces import look
from xskit.xsk.attachment import Attachment
from xskit.xsk.batch import Batch, Drafts
from xskit.xsk.bound import BoundSocket
from xskit.xsk.errors import PortError
from xskit.xsk.mapping import MappedRing
from xskit.xsk.opening import HIGHEST_QUEUE, MOST_ENTRIES, MOST_FRAMES, BindMode, Plan, check
from xskit.xsk.packet import Origin, Packet, Sendable, as_tuples
from xskit.xsk.path.owner import Owner
from xskit.xsk.turn import Inside, Token, Turn, new_token
from xskit.xsk.umem import OwnedRing, Umem, require_open

if TYPE_CHECKING:
    from xskit.xsk.direct import CompletionRing, FillRing, RxRing, TxRing
    from xskit.xsk.receiving import Receiving
    from xskit.xsk.sending import Sending

__all__ = ["Socket", "TakesBatches"]

FLUSH_STEP_S = 50e-6
FIRST_WAIT_MS = 100
"""In one compiled call, so that whoever waits for packets has no more to do than necessary when they come."""
LONGEST_WAIT_S = 1.0
"""Without packets, whoever waits looks around this often."""
TX_STEP_S = 0.001
"""How long to wait for packets at most while something lies in TX, which no poll of ours would send."""

_SENDABLE = (bytes, bytearray, memoryview, Packet)


@runtime_checkable
class TakesBatches(Protocol):
    """What batches can be forwarded to: a Socket, or a Port."""

    def send_batch(self, batch: Batch) -> int:
        """See Socket.send_batch."""
        ...


class Socket(Closing):
    """A socket bound to one queue. The calling thread must be in the interface's network namespace.

    At any moment one call may be receiving and one sending, from whichever threads; `close` and `statistics` work from
    any thread and from signal handlers. `close` wakes the calls that are inside, and takes force when they return.

    Args:
        interface: its name.
        queue: the queue's number.
        umem: the packet memory. Registered on this socket, unless `shared` is given.
        shared: another socket whose registration to use (XDP_SHARED_UMEM): its mode is inherited. Of the same queue,
            the two have FILL and COMPLETION in common, and this one is closed with it.
        rx, tx, fill, completion: ring sizes in entries, powers of two; rx=0 or tx=0: no such ring.
        mode: the one rung of the ladder to use, or "auto" for the best that works.
        multi_buffer: take packets longer than a frame (Linux 6.6); `self.multi_buffer` says what was got.
        need_wakeup: let the driver say when it needs a system call.
        program: "auto" attaches a redirect program of its own, a RedirectProgram is told of this socket, None leaves
            both to the caller. With a program, FILL is filled at once.

    Attributes:
        receiver, transmitter: the kernel sockets with the RX and with the TX ring; None without one.
        zero_copy: packets are not copied between driver and packet memory (XDP_OPTIONS).
        xdp_mode: "native" or "generic" where the socket has a program of its own, else None.
        transmit_budget: packets that one sendto sends in copy mode; None: the kernel's 32.
        why: why better modes were not to be had, a sentence each.

    Raises:
        MissingError: no such interface.
        UsageError: an impossible ring size or queue, closed packet memory, or other memory than that of `shared`.
        SocketError, PortError, PrivilegeError, AttachError: the kernel's refusal, explained.
    """

    def __init__(
        self,
        interface: str,
        queue: int = 0,
        *,
        umem: Umem,
        shared: Socket | None = None,
        rx: int = 2048,
        tx: int = 2048,
        fill: int = 2048,
        completion: int = 2048,
        mode: BindMode = "auto",
        multi_buffer: bool = True,
        need_wakeup: bool = True,
        program: Literal["auto"] | RedirectProgram | None = "auto",
    ) -> None:
        queue = whole("queue", queue, 0, HIGHEST_QUEUE)
        rx, tx = whole("rx", rx, 0, MOST_ENTRIES), whole("tx", tx, 0, MOST_ENTRIES)
        fill, completion = whole("fill", fill, 0, MOST_ENTRIES), whole("completion", completion, 0, MOST_ENTRIES)
        choice("mode", mode, get_args(BindMode))
        _check_memory(umem, shared)
        if not (program in ("auto", None) or isinstance(program, RedirectProgram)):
            raise UsageError(
                f"program must be a RedirectProgram, not {literal(program)}", remedy=Setting("program", "auto")
            )
        facts = look(interface)
        if tx and queue in range(facts.tx_queues, facts.rx_queues):
            raise UsageError(
                f"{interface} has no TX queue {queue}: what is sent there would vanish",
                remedy="tx=0, or ethtool -L for as many TX as RX queues",
            )
        base = shared.primary if shared else None
        owner = shared if base and (base.ifindex, base.queue) == (facts.index, queue) else None
        if owner:
            fill = completion = 0
        shared_fd = base.fd if base else None
        check(Plan(facts, queue, umem, mode, rx, tx, fill, completion, multi_buffer, need_wakeup, shared_fd))
        self.interface, self.ifindex, self.queue, self.mtu, self.umem = interface, facts.index, queue, facts.mtu, umem
        self.xdp_mode: str | None = None
        self.why: list[str] = []
        self.receiver: BoundSocket | None = None
        self.transmitter: BoundSocket | None = None
        self._pid = os.getpid()
        self._closing = self._closed = False
        self._last: Statistics | None = None
        self._sharers: list[Socket] = []
        self._owner = owner
        self._number: int = self._owner._number if self._owner else umem.next_number()
        self._origin = Origin(umem, queue)
        self._registered: RedirectProgram | None = None
        self._attachment: Attachment | None = None
        self._receive_turn = Turn("receiving", self._name())
        self._send_turn = Turn("sending", self._name())
        self._receiving: Receiving | None = None
        self._sending: Sending | None = None
        self._stamped = False
        try:
            if program == "auto" and rx:
                self._attachment = Attachment.make(facts.index, queue + 1, mode)
                self.xdp_mode = str(self._attachment.mode)
                self.why += self._attachment.why
                if mode == "auto" and self.xdp_mode == "generic":
                    mode = "generic"
            bind = partial(
                BoundSocket,
                facts,
                queue,
                umem,
                fill=fill,
                completion=completion,
                mode=mode,
                multi_buffer=multi_buffer,
                need_wakeup=need_wakeup,
            )
            if rx:
                self.receiver = base = bind(shared=base, rx=rx, tx=0)
            if tx:
                self.transmitter = bind(shared=base, rx=0, tx=tx)
            for bound in (self.receiver, self.transmitter):
                self.why += bound.why if bound else []
            umem.adopt(self)
            if self._owner:
                self._owner._sharers.append(self)
            chosen = self._attachment.program if self._attachment else program
            if isinstance(chosen, RedirectProgram):
                self._open_receiving().take(0)
                self.register(chosen)
        except BaseException:
            self.close()
            raise

    # --- facts --------------------------------------------------------------------------------------------------

    @property
    def primary(self) -> BoundSocket:
        """The kernel socket that FILL and COMPLETION of the queue belong to."""
        bound = self.receiver or self.transmitter
        assert bound is not None
        return bound.primary

    @property
    def zero_copy(self) -> bool:
        """Whether packets are not copied between driver and packet memory (XDP_OPTIONS)."""
        return self.primary.zero_copy

    @property
    def multi_buffer(self) -> bool:
        """Whether packets may be longer than a frame."""
        return self.primary.multi_buffer

    @property
    def transmit_budget(self) -> int | None:
        """Packets that one sendto sends in copy mode; None: the kernel's 32."""
        return self.transmitter.transmit_budget if self.transmitter else None

    @property
    def fd(self) -> int:
        """The descriptor of the receiver, or of the transmitter without one; close-on-exec; -1 once closed."""
        bound = self.receiver or self.transmitter
        return bound.fd if bound else -1

    def fileno(self) -> int:
        """For select and the like: readable when packets wait in RX."""
        return self.fd

    @property
    def closed(self) -> bool:
        """True once closed, and in a forked child."""
        return self.fd < 0

    @property
    def refused(self) -> int:
        """Packets given to `send` that the kernel refused: no carrier, too long, too short (EBUSY from sendto)."""
        return self._sending.refused if self._sending else 0

    def statistics(self) -> Statistics:
        """XDP_STATISTICS of RX and TX together; after close, as they were then. From any thread.

        Raises:
            UsageError: this is a forked child.
        """
        if self._last is not None:
            return self._last
        received = self.receiver.statistics() if self.receiver else None
        sent = self.transmitter.statistics() if self.transmitter else None
        if received is None or sent is None:
            found = received or sent
            assert found is not None
            return found
        return replace(received, tx_invalid_descriptors=sent.tx_invalid_descriptors, tx_ring_empty=sent.tx_ring_empty)

    def register(self, program: RedirectProgram) -> None:
        """From now on this program gives the queue's packets to this socket, until `close`.

        Raises:
            UsageError: the socket or the program is closed, or the program was loaded for fewer queues, or has another
                socket for this one.
        """
        self._require_open()
        if not isinstance(program, RedirectProgram):
            raise UsageError(f"program must be a RedirectProgram, not {literal(program)}")
        program.register(self.queue, self.fd)
        self._registered = program
        self._stamped = True
        if self._receiving:
            self._receiving.stamped = True

    # --- receiving ----------------------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None, limit: int = 64) -> list[Packet]:
        """The packets that are there, at most `limit`; if there is none, the first to come.

        Args:
            timeout: seconds to wait for the first packet; None: for ever, 0: not at all.
            limit: the most packets to take.

        Returns:
            Packets that are valid until the next call that receives, unless kept. Empty when the time is over, or when
            the socket is closed meanwhile.

        Raises:
            UsageError: no RX ring, a limit below 1, another call is receiving, or a view of an earlier packet is still
                in use: that packet then counts as kept, until `release`.
            PortError: the interface went down or away while packets were being sent.
        """
        return list(map(Packet, repeat(self._origin), as_tuples(self._take(timeout, limit))))

    def receive_batch(self, limit: int = 64, timeout: float | None = None) -> Batch:
        """The same as `receive`, as one array: see Batch."""
        return Batch(self._origin, self._take(timeout, limit))

    def no_packets(self) -> Batch:
        """A batch of none."""
        return Batch(self._origin, bytearray())

    def __iter__(self) -> Iterator[Packet]:
        """Every packet that comes, until the socket is closed."""
        while (batch := self._until_closed(None, 64)) is not None:
            yield from batch

    async def batches(self, limit: int = 64) -> AsyncIterator[Batch]:
        """Every batch that comes, until the socket is closed: for asyncio and trio, without a thread of its own.

        A batch is valid until the next one is asked for, unless kept.

        Raises:
            UsageError, PortError: as `receive` says.
        """
        while (batch := self._until_closed(0, limit)) is not None:
            if len(batch):
                yield batch
            elif self._receiving and not await self._receiving.waiting.readable(self._longest_wait_s):
                raise self._receive_turn.refusal()

    def _until_closed(self, timeout: float | None, limit: int) -> Batch | None:
        """What comes; None once the socket is closed."""
        try:
            return None if self.closed else self.receive_batch(limit, timeout)
        except UsageError:
            if self._closing:
                return None
            raise

    def _take(self, timeout: float | None, limit: int) -> bytearray:
        """The rows of the next batch."""
        if type(limit) is not int or not 0 < limit <= MOST_ENTRIES:
            limit = whole("limit", limit, 1, MOST_ENTRIES)
        deadline, first_ms = (None, FIRST_WAIT_MS) if timeout is None else _until(timeout)
        if self._closing or self._receiving is None:
            self._require_open()
        turn = self._receive_turn
        token: Token = {"thread": get_ident()}
        try:
            last = turn.last
            if "over" in last and last.setdefault("after", token) is token:  # turn.take, without a call
                turn.last = token
            else:
                last = token  # a token of others in a local would count as theirs
                turn.take(token)
            side = self._receiving or self._open_receiving()
            if self._origin.viewed and (trouble := self._origin.let_go()):
                side.take(0)
                raise trouble
            if self._sending is not None and self.sending:
                first_ms = 0
            rows = side.take(limit, first_ms) or self._wait(side, deadline, limit)
            if self.umem.debug:
                self.umem.check()
            return rows
        finally:
            turn.give(token)

    def _wait(self, side: Receiving, deadline: float | None, limit: int) -> bytearray:
        """Nothing is there: the rows of the next batch, or none when the time is over or the socket is closed."""
        if not self._closing:
            self._require_open()  # a forked child takes nothing
        now = time.monotonic()
        while True:
            if self._sending is not None:
                self._go_on()
            if not self.umem.pool.free:
                self._collect_elsewhere()
            side.wake(now)
            left_s = self._longest_wait_s
            if deadline is not None:
                left_s = min(left_s, deadline - now)
            if left_s > 0:
                side.waiting.wait(left_s)
            rows = side.take(limit)
            if rows or left_s <= 0 or self._closing or self.closed:
                return rows
            now = time.monotonic()

    @property
    def _longest_wait_s(self) -> float:
        return TX_STEP_S if self.sending else LONGEST_WAIT_S

    def _open_receiving(self) -> Receiving:
        from xskit.xsk.receiving import Receiving

        if self.receiver is None:
            raise UsageError("this socket has no RX ring: it only sends", remedy="rx=2048")
        share = 0
        if not any(one._receiving for one in self._on_queue()):  # else FILL has got it
            fill = self.primary.rings.fill
            assert fill is not None
            waiting = sum(user.waits_for_frames for user in self.umem.users)  # this one is among them
            share = min(fill.size, max(1, self.umem.pool.free // (waiting + 1)))
        self._receiving = Receiving(self.receiver, self.umem, self._number, share)
        self._receiving.stamped = self._stamped
        if self._closing:  # only now
            self._receiving.waiting.wake()
        return self._receiving

    @property
    def waits_for_frames(self) -> bool:
        """Whether it stands for a queue whose FILL gets its share of the frames with the first call that receives."""
        first = next((one for one in self._on_queue() if one.receiver), None)
        return first is self and not (self._closing or any(one._receiving for one in self._on_queue()))

    # --- sending ------------------------------------------------------------------------------------------------

    def send(self, packets: Sendable | Batch | Iterable[Sendable]) -> int:
        """Put packets in TX and make the kernel take them: one, or many. Bytes are copied once; a Packet of the same
        memory is not, and is gone afterwards.

        Returns:
            How many were accepted: it stops before the first for which TX or the packet memory has no room. Those
            that the kernel then refuses are counted in `refused`.

        Raises:
            UsageError: a packet that can never be sent, or another call is sending; those before it were accepted.
            PortError: the interface is down or gone; what was accepted stays in TX.
        """
        if isinstance(packets, Batch):
            return self.send_batch(packets)
        if isinstance(packets, _SENDABLE):
            packets = (packets,)
        if isinstance(packets, str) or not isinstance(packets, Iterable):
            raise UsageError(f"send takes packets, not {literal(packets)}", remedy="send([packet])")
        self._require_open()
        token = new_token()
        try:
            self._send_turn.take(token)
            side = self._sending or self._open_sending()
            accepted = side.send(packets)
            if not accepted:
                self.umem.recall()  # perhaps frames were missing
            if self.umem.debug:
                self.umem.check()
            return accepted
        finally:
            self._send_turn.give(token)

    def send_batch(self, batch: Batch) -> int:
        """Send the packets of a batch, which lie in the packet memory of this socket, without a copy. What was accepted
        is gone from the batch.

        Returns:
            How many were accepted, from the first on: it stops before the first for which TX has no room.

        Raises:
            UsageError: a packet has gone, or has too many frames, or another call is sending; those before it were
                accepted.
            PortError: the interface is down or gone; what was accepted stays in TX.
        """
        if not isinstance(batch, Batch):
            raise UsageError(f"batch must be a Batch, not {literal(batch)}", remedy="send(packets)")
        if batch.umem is not self.umem:
            raise UsageError(
                "the batch lies in other packet memory than this socket's", remedy="send([bytes(p) for p in batch])"
            )
        self._require_open()
        token = new_token()
        try:
            self._send_turn.take(token)
            side = self._sending or self._open_sending()
            accepted = side.send_rows(batch.packed())
            if self.umem.debug:
                self.umem.check()
            return accepted
        finally:
            self._send_turn.give(token)

    def new_batch(self, lengths: int | Iterable[int], count: int = 1) -> Batch:
        """Packets to be written and then sent with `send_batch`, in free frames of the packet memory.

        Their frames hold whatever was there before: write every byte. They go home when the batch is released, or when
        nobody refers to it or to one of its packets any more.

        Args:
            lengths: bytes of each packet; or one length, for `count` packets.
            count: how many, where `lengths` is one number.

        Returns:
            A batch; shorter than asked for where frames are missing.

        Raises:
            UsageError: the socket is closed, or a length below 1 or of more frames than the kernel sends.
        """
        self._require_open()
        longest = MOST_FRAMES * self.umem.capacity
        if isinstance(lengths, Iterable):
            each = [whole("lengths", length, 1, longest) for length in lengths]
        else:
            each = [whole("lengths", lengths, 1, longest)] * whole("count", count, 0, self.umem.frames)
        return Drafts(self.umem).make(np.array(each, np.int64))

    def forward(self, batch: Batch, to: TakesBatches) -> int:
        """Send a batch, received here or changed here, out of another socket or port on the same packet memory.

        Returns and raises as `send_batch` of `to` does.
        """
        if not isinstance(to, TakesBatches):
            raise UsageError(f"to must be a Socket or a Port, not {literal(to)}")
        return to.send_batch(batch)

    def release(self, batch: Batch) -> None:
        """Give back the frames of a batch now, instead of with the next call that receives."""
        if not isinstance(batch, Batch):
            raise UsageError(f"batch must be a Batch, not {literal(batch)}", remedy="packet.release()")
        batch.release()

    def flush(self, timeout: float | None = 1.0) -> None:
        """Go on until TX is empty and all frames are back: everything is sent, or was refused.

        Raises:
            UsageError: no TX ring, or another call is sending.
            PortError: the interface is down or gone, or frames did not come back for `timeout` seconds.
        """
        timeout = seconds("timeout", timeout)
        self._require_open()
        token = new_token()
        try:
            self._send_turn.take(token)
            side = self._sending or self._open_sending()
            deadline = None if timeout is None else time.monotonic() + timeout
            while (left := side.drive()) and not self._closing:
                if deadline is not None and time.monotonic() > deadline:
                    raise PortError(
                        f"{left} frames sent on queue {self.queue} of {self.interface} did not come back within "
                        f"{timeout:g} s",
                        errno.ETIME,
                        remedy=f"ip -details link show {self.interface}",
                    )
                time.sleep(FLUSH_STEP_S)
            if self.umem.debug:
                self.umem.check()
        finally:
            self._send_turn.give(token)

    def _open_sending(self) -> Sending:
        from xskit.xsk.sending import Sending

        if self.transmitter is None:
            raise UsageError("this socket has no TX ring: it only receives", remedy="tx=2048")
        self._sending = Sending(self.transmitter, self.umem, self._number)
        if self._closing:  # only now
            self._sending.stop()
        return self._sending

    @property
    def sending(self) -> bool:
        """Whether the kernel has frames that it has not completed."""
        return self._sending is not None and self._sending.outstanding > 0

    def _go_on(self) -> None:
        """Go on with what is being sent, unless a call does so already."""
        token = new_token()
        try:
            if self.sending and self._send_turn.try_take(token) and self._sending:
                self._sending.drive()
        finally:
            self._send_turn.give(token)

    def _collect_elsewhere(self) -> None:
        """The packet memory is used up: take home what other sockets have sent, and forgotten packets."""
        self.umem.recall()
        for user in self.umem.users:
            if isinstance(user, Socket) and user is not self and not user.closed:
                user._go_on()

    # --- rings --------------------------------------------------------------------------------------------------

    @cached_property
    def rx(self) -> RxRing:
        """RX, to be read by hand: see RxRing. UsageError without one."""
        from xskit.xsk.direct import RxRing

        side = self._receiving_side()
        assert self.receiver is not None
        assert self.receiver.rings.rx is not None
        return RxRing(side.receiver_address, side.hold(), self.receiver.rings.rx, self.umem, self._receive_turn)

    @cached_property
    def fill(self) -> FillRing:
        """FILL, to be filled by hand: see FillRing. UsageError without an RX ring."""
        from xskit.xsk.direct import FillRing

        side, ring = self._receiving_side(), self.primary.rings.fill
        assert ring is not None
        return FillRing(side.receiver_address, side.hold(), ring, self.umem, self._receive_turn)

    @cached_property
    def tx(self) -> TxRing:
        """TX, to be filled by hand: see TxRing. UsageError without one."""
        from xskit.xsk.direct import TxRing

        side = self._sending_side()
        assert self.transmitter is not None
        assert self.transmitter.rings.tx is not None
        ring = self.transmitter.rings.tx
        return TxRing(side.transmitter_address, side.hold(), ring, self.umem, self._send_turn, side.most_frames)

    @cached_property
    def completion(self) -> CompletionRing:
        """COMPLETION, to be read by hand: see CompletionRing. UsageError without a TX ring."""
        from xskit.xsk.direct import CompletionRing

        side, ring = self._sending_side(), self.primary.rings.completion
        assert ring is not None
        return CompletionRing(side.transmitter_address, side.hold(), ring, self.umem, self._send_turn)

    def kick(self) -> None:
        """Tell the kernel of what lies in TX, where it asks for that: one sendto. COMPLETION stays as it is.

        Raises:
            UsageError: no TX ring, or another call is sending.
            PortError: the interface is down or gone.
        """
        side = self._sending_side()
        with self._while_sending() as _inside:
            side.kick()

    def wake(self) -> None:
        """Tell the kernel of what lies in FILL, where it asks for that: one recvfrom.

        Raises:
            UsageError: no RX ring, or another call is receiving.
            PortError: the interface is gone.
        """
        side = self._receiving_side()
        with self._while_receiving() as _inside:
            side.wake(time.monotonic())

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until packets wait in RX, for those who read it by hand; returns whether they do.

        Args:
            timeout: seconds to wait at most; None: for ever, or until the socket is closed.

        Raises:
            UsageError: no RX ring, or another call is receiving.
            PortError: the interface is gone.
        """
        timeout = seconds("timeout", timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        ring = self.rx
        with self._while_receiving() as _inside:
            side = self._receiving or self._open_receiving()
            while not ring.available and not self._closing:
                now = time.monotonic()
                side.wake(now)
                left_s = LONGEST_WAIT_S if deadline is None else min(LONGEST_WAIT_S, deadline - now)
                if left_s <= 0:
                    break
                side.waiting.wait(left_s)
            return ring.available > 0

    def _receiving_side(self) -> Receiving:
        with self._while_receiving() as _inside:
            return self._receiving or self._open_receiving()

    def _sending_side(self) -> Sending:
        with self._while_sending() as _inside:
            return self._sending or self._open_sending()

    def _while_receiving(self) -> Inside:
        return Inside(self._receive_turn, self._require_open)

    def _while_sending(self) -> Inside:
        return Inside(self._send_turn, self._require_open)

    # --- the end ------------------------------------------------------------------------------------------------

    def from_kernel(self) -> list[OwnedRing]:
        """For Umem.check: RX and COMPLETION."""
        rx = self.receiver.rings.rx if self.receiver else None
        return [*_owned(rx, Owner.RX, Owner.FILL), *_owned(self._own("completion"), Owner.COMPLETION, Owner.TX)]

    def to_kernel(self) -> list[OwnedRing]:
        """For Umem.check: FILL and TX; not TX where its entries say nothing of where the frames are."""
        told_late = self.transmitter is not None and self.transmitter.told_late
        tx = None if told_late or not self.transmitter else self.transmitter.rings.tx
        return [*_owned(self._own("fill"), Owner.FILL, Owner.FILL), *_owned(tx, Owner.TX, Owner.TX)]

    def _own(self, ring: str) -> MappedRing | None:
        """FILL or COMPLETION of the queue, unless another socket has it."""
        return None if self._owner else getattr(self.primary.rings, ring)

    def _require_open(self) -> None:
        if self._closing or self.fd < 0:
            raise self._receive_turn.closed()

    def _name(self) -> str:
        return f"queue {self.queue} of {self.interface}"

    def close(self) -> None:
        """Out of the XSKMAP, detach, unmap, close: in this order; twice is fine. Then the queue is free, some 20 to
        45 ms later. In a forked child it is closed from the start, and all that is the parent's stays.

        Calls that are inside are woken; the last of them to return closes the socket.
        """
        if os.getpid() != self._pid:
            return
        self._receive_turn.at_end = self._send_turn.at_end = self._close_if_idle
        self._closing = True
        for sharer in list(self._sharers):
            sharer.close()
        if self._receiving:
            self._receiving.waiting.wake()
        if self._sending:
            self._sending.stop()
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        """Unless a call is inside, here or in a socket that shares the queue: the last one to leave does it."""
        while not (self._closed or self._sharers or self._receive_turn.taken or self._send_turn.taken):
            receiving, sending = new_token(), new_token()
            try:
                if self._receive_turn.try_take(receiving) and self._send_turn.try_take(sending):
                    self._close_now()
            finally:
                receiving["over"] = sending["over"] = True

    def _close_now(self) -> None:
        """Each step may be done twice: an exception between any two of them leaves the rest to the next call."""
        if self._closed:
            return
        if self._last is None and (self.receiver or self.transmitter):
            self._last = self.statistics()
        if self._registered and not self._registered.program.closed:
            self._registered.unregister(self.queue)
        self._registered = None
        if self._attachment:
            self._attachment.close()
        self._origin.let_go()
        for side in (self._sending, self._receiving):
            if side:
                side.close()
        for bound in (self.transmitter, self.receiver):
            if bound:
                bound.close()
        if self._owner:
            self._hand_over()
        else:
            self.umem.take_back(self._number)
        self.umem.disown(self)
        self._closed = True
        self._receive_turn.at_end = self._send_turn.at_end = None  # they would keep the socket
        if self._owner and self in self._owner._sharers:
            self._owner._sharers.remove(self)
            if self._owner._closing:
                self._owner._close_if_idle()

    def _on_queue(self) -> list[Socket]:
        """This one and those that share FILL and COMPLETION of the queue with it."""
        first = self._owner or self
        return [first, *first._sharers]

    def _hand_over(self) -> None:
        """The queue stays open: what the kernel has of it comes home through another socket, or when all are closed."""
        for other in self._on_queue():
            if other is not self:
                if self._receiving and other._receiving:
                    self._receiving.hand_over(other._receiving)
                if self._sending and other._sending:
                    self._sending.hand_over(other._sending)

    def __del__(self) -> None:
        if getattr(self, "_closed", True) is False and os.getpid() == self._pid:
            forgotten(self)

    def __repr__(self) -> str:
        if not (self.receiver or self.transmitter):
            return f"<Socket of {self._name()}>"
        return f"<Socket of {self._name()}, {'zero copy' if self.zero_copy else 'copy'}>"


def _until(timeout: float) -> tuple[float | None, int]:
    """When so many seconds are over, time.monotonic(), and the milliseconds to wait first. Raises UsageError."""
    checked = seconds("timeout", timeout)
    if checked is None:
        return None, FIRST_WAIT_MS
    return time.monotonic() + checked, FIRST_WAIT_MS if checked > FIRST_WAIT_MS / 1000 else ceil(1000 * checked)


def _owned(ring: MappedRing | None, place: Owner, owner: Owner) -> list[OwnedRing]:
    return [(ring, place, owner)] if ring else []


def _check_memory(umem: Umem, shared: Socket | None) -> None:
    require_open(umem)
    if not (shared is None or isinstance(shared, Socket)):
        raise UsageError(f"shared must be a Socket, not {literal(shared)}", remedy="shared=None")
    if shared is not None and shared.umem is not umem:  # the kernel would send from the other socket's memory
        raise UsageError(
            f"umem must be the packet memory of the socket that shares it, queue {shared.queue} of {shared.interface}",
            remedy="umem=shared.umem",
        )
