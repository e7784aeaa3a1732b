"""UMEM: the packet memory that user space and the kernel share.

    frame 0                     frame 1                     frame 2
    |--256--|headroom|packet....|--256--|headroom|packet....|--256--| ...
                     ^ where a received packet begins, at most `capacity` bytes of it

256 bytes are the kernel's (XDP_PACKET_HEADROOM); RX metadata, such as the arrival stamp, ends where the packet begins.
The same memory may be registered on many sockets at once: that is how ports share it (net/xdp/xdp_umem.c).
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import resource
import socket
import time
from contextlib import suppress
from mmap import mmap
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast
from weakref import ref

from xskit._fork import not_inherited
from xskit.abi.xdp import (
    PACKET_HEADROOM_BYTES,
    SOL_XDP,
    TX_METADATA_BYTES,
    UNALIGNED_ADDRESS_MASK,
    UNALIGNED_OFFSET_SHIFT,
    SocketOption,
    UmemFlag,
    UmemReg,
)
from xskit.arguments import literal, whole
from xskit.closing import Closing, forgotten
from xskit.errors import Setting, UsageError
from xskit.memory import PAGE_BYTES
from xskit.xsk.errors import Call, explain
from xskit.xsk.pages import Pages
from xskit.xsk.path.owner import FrameError, Owner
from xskit.xsk.probe import looks_at_length, why_no_frames_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

    from xskit.xsk.mapping import MappedRing
    from xskit.xsk.path.table import FramePool, PacketTable

__all__ = ["Umem", "frame_at", "offset_at", "require_open"]

MOST_FRAMES = (1 << 32) - 1
LARGEST_FRAME_BYTES = 1 << 30
LARGEST_METADATA_BYTES = 248
HIGHEST_ADDRESS = (1 << 64) - 1

SMALLEST_FRAME_BYTES = 2048
"""XDP_UMEM_MIN_CHUNK_SIZE (net/xdp/xdp_umem.c)."""

LARGEST_BEFORE_5_14_BYTES = 2 << 30
"""The list of pages came from kmalloc, which has 4 MiB at most (xdp_umem_pin_pages)."""

TAILROOM_BYTES = 448
"""What recent stable kernels keep behind a packet: struct skb_shared_info (320) and 128 more."""


CLOSED = "the packet memory is closed"

TRANSIT_S = 0.2
"""What is wrong for so long is wrong. During a sendto in another thread, TX goes on to show what is in COMPLETION
already: the kernel releases what it has taken from a ring after all the rest (net/xdp/xsk.c, __xsk_generic_xmit)."""

Rows: TypeAlias = "np.ndarray[Any, Any]"
"""PacketRow records."""

OwnedRing: TypeAlias = tuple["MappedRing", Owner, Owner]
"""A ring, where the frames of its entries are, and the owner that explains it."""


class User(Protocol):
    """A socket that holds frames of this memory."""

    def close(self) -> None: ...

    @property
    def waits_for_frames(self) -> bool:
        """Whether it has a FILL ring that has not got its share of the frames yet."""
        ...

    def from_kernel(self) -> Iterable[OwnedRing]:
        """RX and COMPLETION."""
        ...

    def to_kernel(self) -> Iterable[OwnedRing]:
        """FILL and TX."""
        ...


class Umem(Closing):
    """Packet memory of `frames` frames, populated. In a forked child it is closed from the start.

    Args:
        frames: how many.
        frame_size: bytes of one: 2048 or 4096; in unaligned mode anything between. Larger ones are tried, for kernels
            with patches: no released one takes frames larger than a page.
        headroom: bytes to keep free before each received packet, on top of the kernel's 256.
        huge: ask for transparent huge pages.
        hugetlb: take the memory from the hugetlb pool (vm.nr_hugepages).
        unaligned: frames need not be a power of two and may cross pages (XDP_UMEM_UNALIGNED_CHUNK, Linux 5.4).
        tx_metadata_bytes: room before a sent packet for struct xsk_tx_metadata: 0, or 24 and more (Linux 6.8).
        software_checksums: the kernel computes checksums asked for in TX metadata itself (copy mode; for tests).
        populate: touch all of it now. Off, memory is taken as it is used, in the middle of the traffic.
        debug: check after every batch that each frame is in exactly one place; default: XSKIT_DEBUG=1.

    Attributes:
        size: bytes that are registered.

    Raises:
        UsageError: a rule of the kernel is broken; the sentence names it.
        KernelError: there is not so much memory.
    """

    def __init__(
        self,
        frames: int = 4096,
        frame_size: int = 4096,
        headroom: int = 0,
        *,
        huge: bool = False,
        hugetlb: bool = False,
        unaligned: bool = False,
        tx_metadata_bytes: int = 0,
        software_checksums: bool = False,
        populate: bool = True,
        debug: bool | None = None,
    ) -> None:
        frames = whole("frames", frames, 1, MOST_FRAMES)
        frame_size = whole("frame_size", frame_size, 0, LARGEST_FRAME_BYTES)
        headroom = whole("headroom", headroom, 0, LARGEST_FRAME_BYTES)
        tx_metadata_bytes = whole("tx_metadata_bytes", tx_metadata_bytes, 0, LARGEST_METADATA_BYTES)
        _check_frames(frame_size, unaligned, hugetlb)
        _check_headroom(frame_size, headroom, tx_metadata_bytes)
        self.frames = frames
        self.frame_size = frame_size
        self.size = frames * frame_size
        self.headroom = headroom
        self.unaligned = unaligned
        self.tx_metadata_bytes = tx_metadata_bytes
        self.debug = os.environ.get("XSKIT_DEBUG", "0") not in ("", "0") if debug is None else debug
        self._flags = (
            (UmemFlag.UNALIGNED_CHUNK if unaligned else UmemFlag.NONE)
            | (UmemFlag.TX_SW_CSUM if software_checksums else UmemFlag.NONE)
            | (UmemFlag.TX_METADATA_LEN if tx_metadata_bytes else UmemFlag.NONE)
        )
        self._pages = Pages(frames * frame_size, populate=populate, huge=huge, hugetlb=hugetlb)
        self.data: mmap | bytes = cast(mmap, self._pages.view.obj)
        """The packet memory, to take copies of slices; empty once closed."""
        self._users: list[ref[User]] = []
        self._sockets = itertools.count(1)
        self._made: dict[None, tuple[PacketTable, FramePool]] = {}
        self._lent: dict[int, tuple[ref[object], Rows]] = {}
        self.views: tuple[memoryview, ...] = ()
        """What `hold` gave; empty before that, and once closed."""
        self.record = 0
        """Address of the PacketMemory record, for whoever has these views."""
        self.line_bytes: memoryview[int] = memoryview(b"")
        """The packet table, for quick looks at a line; empty before the first packet, and once closed."""
        self.line_words: memoryview[int] = memoryview(b"").cast("I")
        """The same by words of 32 bits."""
        not_inherited(self, Umem._lose)

    @property
    def address(self) -> int:
        """Where the memory begins, offset 0 of every UMEM address; 0 once it is closed."""
        return self._pages.address

    @property
    def frame_shift(self) -> int:
        """log2 of the frame size. Raises UsageError where it is not a power of two."""
        shift = self.frame_size.bit_length() - 1
        if 1 << shift != self.frame_size:
            raise UsageError(f"frames of {self.frame_size} bytes have no shift: the size is not a power of two")
        return shift

    @property
    def packet_offset(self) -> int:
        """Where in its frame a received packet begins, in bytes."""
        return PACKET_HEADROOM_BYTES + self.headroom

    @property
    def capacity(self) -> int:
        """Bytes of a packet that one frame receives; longer packets take several frames."""
        return self.frame_size - self.packet_offset

    @property
    def table(self) -> PacketTable:
        """The packet table of the Python-level API, made at first use; the engine has one of its own."""
        return self._tables()[0]

    @property
    def pool(self) -> FramePool:
        """The frames that the Python-level API hands round."""
        return self._tables()[1]

    def _tables(self) -> tuple[PacketTable, FramePool]:
        """Made by whoever comes first: of two threads at once, one."""
        made = self._made.get(None)
        return made or self._made.setdefault(None, self._make_tables())

    def _make_tables(self) -> tuple[PacketTable, FramePool]:
        from xskit.xsk.path.table import FramePool, PacketTable

        require_open(self)
        table = PacketTable(
            self.frames,
            base=self.address,
            frame_bytes=self.frame_size,
            unaligned=self.unaligned,
            pools=1,
            shared=True,
            populate=False,
        )
        return table, FramePool(table, 0, self.frames)

    def parts(self, handle: int) -> list[tuple[int, int]]:
        """(offset, length) of each frame's share of a packet that the process holds."""
        from xskit.xsk.path.lines import NIL

        found, lines, base = [], self.table.lines, self.address
        while handle != NIL:
            line = lines[handle]
            found.append((int(line["address"]) - base, int(line["span"])))
            handle = int(line["fragment"])
        return found

    def hold(self) -> tuple[memoryview, ...]:
        """Views of all memory that compiled code works on: whoever has them may call it, whatever is closed meanwhile.

        Raises:
            UsageError: the memory is closed.
        """
        return self.views or self._make_views()

    def _make_views(self) -> tuple[memoryview, ...]:
        table, pool = self._tables()
        views = (self._pages.view, *table.hold(), *pool.hold())
        if not all(views):
            raise UsageError(CLOSED)
        self.line_bytes, self.line_words = table.view, table.view.cast("I")
        self.record = table.memory
        self.views = views
        if not self._pages.view:  # closed meanwhile: what `close` has forgotten must not come back
            self._forget()
        return views

    def lend(self, owner: object, rows: Rows) -> None:
        """The owner ends the packets of these rows; if it is forgotten and cannot, `recall` does."""
        self._lent[id(rows)] = ref(owner), rows

    def end_packets(self, rows: Rows) -> None:
        """Take home the frames of these packets (PacketRow), as far as they are still held; twice is fine."""
        from xskit.xsk.path.entry import end_rows

        with suppress(UsageError):  # it is closed, and has no frames
            held = self.hold()
            end_rows(self.table.memory, rows.ctypes.data, len(rows), 0)
            del held
        self._lent.pop(id(rows), None)

    def recall(self) -> None:
        """End what forgotten owners have left: an exception from a signal in `__del__` is only printed."""
        for owner, rows in list(self._lent.values()):
            if owner() is None:
                self.end_packets(rows)

    def frame_of(self, address: int) -> int:
        """The number of the frame that a ring's address lies in.

        Raises:
            UsageError: the address does not lie in the packet memory.
        """
        return self.offset_of(address) // self.frame_size

    def offset_of(self, address: int) -> int:
        """The byte offset that a ring's address means: unaligned mode keeps the offset in the frame in the top bits.

        Raises:
            UsageError: the address does not lie in the packet memory.
        """
        if not self.unaligned:
            return whole("address", address, 0, self.size - 1)
        offset = offset_at(self, whole("address", address, 0, HIGHEST_ADDRESS))
        if offset >= self.size:
            raise UsageError(f"address {address} means offset {offset}, and offsets end at {self.size - 1}")
        return offset

    def view(self, offset: int, length: int) -> memoryview:
        """`length` bytes at `offset`, writable, no copy.

        It keeps the whole packet memory mapped, also after close(), and so does every slice and every NumPy array of
        it. In a forked child it reads as zeros.

        Raises:
            UsageError: the bytes do not all lie in the packet memory, or it is closed.
        """
        memory = self._pages.view  # one look: another thread may close it
        if type(offset) is type(length) is int and 0 <= offset <= (end := offset + length) <= len(memory) > 0:
            return memory[offset:end]
        if not memory:
            raise UsageError(CLOSED)
        offset = whole("offset", offset, 0, len(memory))
        return memory[offset : offset + whole("length", length, 0, len(memory) - offset)]

    def read(self, offset: int, length: int) -> bytes:
        """A copy of `length` bytes at `offset`.

        Raises:
            UsageError: the bytes do not all lie in the packet memory, or it is closed.
        """
        return bytes(self.view(offset, length))

    def take(self, count: int) -> np.ndarray[Any, Any]:
        """Free frames for a program that uses the rings: an array of their addresses (u8), at most `count`.

        They are the caller's until they are submitted, or given back by `give`.

        Raises:
            UsageError: the memory is closed.
        """
        from xskit.xsk.frames import take

        count = whole("count", count, 0, self.frames)
        held = self.hold()
        taken = take(self.table.memory, self.pool.address, count)
        del held
        return taken

    def give(self, addresses: Any) -> None:
        """Frames that the caller has come home.

        Args:
            addresses: any address in each of them: whole numbers, or an array of them.

        Raises:
            FrameError: a frame is not the caller's, or is named twice; none of them comes home.
            UsageError: these are no addresses, or the memory is closed.
        """
        from xskit.xsk.frames import give

        held = self.hold()
        give(self.table.memory, addresses)
        del held

    def register(self, fd: socket.socket) -> None:
        """XDP_UMEM_REG: let this socket use the memory. Allowed on any number of sockets.

        Raises:
            UsageError: the memory is closed.
            SocketError: the kernel refused; ENOBUFS is a matter of RLIMIT_MEMLOCK.
        """
        require_open(self)
        try:
            self._register(fd, self._flags, self.tx_metadata_bytes)
        except OSError as error:
            largest = self.frame_size - PACKET_HEADROOM_BYTES - TAILROOM_BYTES
            condition = "headroom" if self.headroom > largest else ""
            if error.errno == errno.EINVAL and self.tx_metadata_bytes:
                bare = self._flags & ~UmemFlag.TX_METADATA_LEN
                if looks_at_length(lambda length: self._register(fd, bare, length)):
                    with suppress(OSError):  # Linux 6.8 to 6.10 take the length without the flag that 6.11 asks for
                        return self._register(fd, bare, self.tx_metadata_bytes)
                else:
                    condition = "metadata"
            elif error.errno == errno.ENOMEM:
                condition = "list of pages" if _is_too_large(self.size) else ""
            raise explain(
                Call.REGISTER,
                error,
                condition,
                frames=self.frames,
                frame_size=self.frame_size,
                headroom=self.headroom,
                largest_headroom=largest,
                needed=self.size,
                needed_kib=-(-self.size // 1024),
                allowed=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
            ) from error

    def _register(self, fd: socket.socket, flags: UmemFlag, metadata_bytes: int) -> None:
        wanted = UmemReg(self.address, self.size, self.frame_size, self.headroom, flags, metadata_bytes)
        fd.setsockopt(SOL_XDP, SocketOption.UMEM_REG, wanted.pack())

    def adopt(self, user: User) -> None:
        """A socket that uses the memory registers itself; it is closed before the memory goes."""
        self._users.append(ref(user))

    def disown(self, user: User) -> None:
        """The socket is closed."""
        self._users = [known for known in self._users if known() not in (user, None)]

    def take_back(self, number: int) -> None:
        """The kernel has let go of the sockets of that number: the frames that it had from them come home."""
        from xskit.xsk.path.ending import take_back

        if self._made:
            with suppress(UsageError):  # it is closed, and has no frames
                held = self.hold()
                take_back(self.table.memory, number)
                del held

    def next_number(self) -> int:
        """A number for a socket of this memory that no other one has."""
        return next(self._sockets)

    @property
    def users(self) -> list[User]:
        """The sockets that use the memory."""
        return [user for known in self._users if (user := known()) is not None]

    def check(self) -> dict[Owner, int]:
        """Prove that every frame is in exactly one place, and count them by place.

        For sockets used through the Python-level API; from any thread. FILL counts frames in the ring and those that
        the kernel has taken from it to receive into; TX likewise those that it has taken and not completed. Once
        closed, it has no frames.

        Raises:
            FrameError: a frame is in two places, in a place its owner does not explain, or lost.
        """
        deadline = time.monotonic() + TRANSIT_S
        while True:
            try:
                return self._look()
            except FrameError:
                if time.monotonic() > deadline or self.pool.view.violations:
                    raise
            time.sleep(TRANSIT_S / 100)

    def _look(self) -> dict[Owner, int]:
        """See `check`."""
        from xskit.xsk.path.survey import Survey

        if not self.address:
            return dict.fromkeys(Owner, 0)
        self.recall()
        held, pool, users = self.hold(), self.pool, self.users
        looked = [place for user in users for place in user.from_kernel()]
        looked += [place for user in users for place in user.to_kernel()]
        survey = Survey(pool.address, self.frames, [ring.looked_at() for ring, _, _ in looked])
        places = [
            (frame_at(self, address), place, owner)
            for (ring, place, owner), addresses in zip(looked, survey.entries, strict=True)
            if ring.size  # else it was closed meanwhile, and shows zeros
            for address in addresses.tolist()
        ]
        counts = pool.check(places, survey)
        del held
        return counts

    def close(self) -> None:
        """Close the sockets that use the memory, then give it back; twice is fine. Where views of it are left, the
        pages stay mapped until the last of them is gone."""
        for user in self.users:
            user.close()
        self._let_go()

    def _let_go(self) -> None:
        self._pages.close()
        self.data = b""
        self._forget()
        for table, pool in self._made.values():
            pool.close()
            table.close()

    def _forget(self) -> None:
        """Refer to no memory any more."""
        self.views = ()
        self.line_bytes, self.line_words = memoryview(b""), memoryview(b"").cast("I")

    def _lose(self) -> None:
        """In a forked child, which has zeros in its place."""
        self._users.clear()
        self._lent.clear()
        self._let_go()

    def __repr__(self) -> str:
        state = "" if self.address else ", closed"
        return f"<Umem of {self.frames} frames of {self.frame_size} bytes{state}>"

    def __del__(self) -> None:
        if getattr(self, "_pages", None) is not None and self._pages.address:
            forgotten(self)


def require_open(umem: Umem) -> None:
    """Raises UsageError where it is something else, is closed, or was made before this process was forked."""
    if not isinstance(umem, Umem):
        raise UsageError(f"umem must be a Umem, not {literal(umem)}", remedy="umem=xskit.Umem()")
    if not umem.address:
        raise UsageError(CLOSED)


def offset_at(umem: Umem, address: int) -> int:
    """What an entry of a ring means, whatever stands there: the frame pool refuses what is no frame."""
    if not umem.unaligned:
        return address
    return (address & UNALIGNED_ADDRESS_MASK) + (address >> UNALIGNED_OFFSET_SHIFT)


def frame_at(umem: Umem, address: int) -> int:
    """The frame that an entry of a ring means, whatever stands there."""
    return offset_at(umem, address) // umem.frame_size


def _is_too_large(size: int) -> bool:
    """Whether this kernel registers no memory of so many bytes, however much it has."""
    return size > LARGEST_BEFORE_5_14_BYTES and _linux() < (5, 14)


def _linux() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


def _check_frames(frame_size: int, unaligned: bool, hugetlb: bool) -> None:
    if frame_size < SMALLEST_FRAME_BYTES:
        raise UsageError(
            f"frames of {frame_size} bytes are too small: the least is 2048", remedy=Setting("frame_size", 2048)
        )
    if frame_size & (frame_size - 1) and not unaligned:
        raise UsageError(
            f"a frame size of {frame_size} bytes is not a power of two",
            remedy=Setting("unaligned", True, "a frame size of 2048 or 4096, or {}"),
        )
    if frame_size > PAGE_BYTES and (answer := why_no_frames_of(frame_size, unaligned=unaligned, hugetlb=hugetlb)):
        raise UsageError(
            f"frames of {frame_size} bytes: no released Linux takes frames larger than a page ({PAGE_BYTES} bytes), "
            f"and this one says: {answer}",
            remedy=Setting("frame_size", 4096, "{}; longer packets are received in several frames (multi-buffer)"),
        )


def _check_headroom(frame_size: int, headroom: int, metadata: int) -> None:
    if headroom >= frame_size - PACKET_HEADROOM_BYTES:
        raise UsageError(
            f"a headroom of {headroom} bytes leaves no room for a packet in a frame of {frame_size}: the kernel keeps "
            "256 bytes as well",
            remedy=f"headroom={frame_size - PACKET_HEADROOM_BYTES - TAILROOM_BYTES} or less",
        )
    if metadata and (metadata % 8 or metadata < TX_METADATA_BYTES):
        raise UsageError(
            f"tx_metadata_bytes must be 0 or a multiple of 8 between {TX_METADATA_BYTES} and {LARGEST_METADATA_BYTES}, "
            f"not {metadata}",
            remedy=f"tx_metadata_bytes={TX_METADATA_BYTES}",
        )
