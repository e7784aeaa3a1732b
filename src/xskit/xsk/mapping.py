"""A ring mapped into this process: its Ring record for compiled code, and plain methods for Python.

Both ways work on the same memory and the same record, so they may take turns, but not in two threads at once.
The methods need no compiler: small scripts start at once. They move whole lists, for one step in the interpreter is
dearer than anything the ring does.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import socket
import threading
from collections.abc import Sequence
from typing import Any, Self

from xskit import libc
from xskit.abi.xdp import SOL_XDP, MmapOffsets, PageOffset, RingOffsets, SocketOption
from xskit.memory import Region, map_memory, offset_of, record_view, size_of, unmap_memory
from xskit.xsk.errors import Call, explain
from xskit.xsk.path.rings import INDEX_MASK, NEED_WAKEUP, Ring

__all__ = ["MappedRing", "RingSet"]

DESCRIPTOR_BYTES = 16
ADDRESS_BYTES = 8

_LOCAL = offset_of(Ring, "local") // 8
_REMOTE = offset_of(Ring, "remote") // 8

_ORDERED = platform.machine() in ("x86_64", "AMD64")
_lock = threading.Lock()


def _order() -> None:
    """Keep an index and the entries it stands for in order.

    x86 never reorders loads with loads or stores with stores. Elsewhere, what comes before the first release stays
    before it, what comes after the second acquire stays after it, and the one precedes the other.
    """
    if not _ORDERED:
        for _ in range(2):
            _lock.acquire()
            _lock.release()


class MappedRing:
    """One end of one ring.

    Args:
        base: where the memory of the ring begins. It is unmapped by `close` if `mapped_bytes` says how much it is.
        page: which ring of a socket it is.
        offsets: where in the memory its parts are (XDP_MMAP_OFFSETS).
        size: entries.
        record: address of the Ring record to fill in.
    """

    def __init__(
        self, base: int, page: PageOffset, offsets: RingOffsets, size: int, record: int, mapped_bytes: int = 0
    ) -> None:
        self.page = page
        self.size = size
        self.record = record
        self._base = base
        self._mapped_bytes = mapped_bytes
        self._producer = _view(base + offsets.producer, 4, "I")
        self._consumer = _view(base + offsets.consumer, 4, "I")
        self._flags = _view(base + offsets.flags, 4, "I")
        self._entries = _view(base + offsets.descriptors, size * _entry_bytes(page), "Q")
        self._state = _view(record, size_of(Ring), "q")
        self._mask = size - 1
        produces = page in (PageOffset.FILL_RING, PageOffset.TX_RING)
        ring = record_view(Ring, record)
        ring.producer = base + offsets.producer
        ring.consumer = base + offsets.consumer
        ring.flags = base + offsets.flags
        ring.entries = base + offsets.descriptors
        ring.size = size
        ring.mask = self._mask
        ring.local = self._producer[0] if produces else self._consumer[0]
        ring.remote = self._consumer[0] if produces else self._producer[0]

    @classmethod
    def map(cls, fd: int, page: PageOffset, offsets: RingOffsets, size: int, record: int) -> Self:
        """Map a ring of the socket `fd`. Raises OSError as mmap(2) says."""
        length = offsets.descriptors + size * _entry_bytes(page)
        base = map_memory(length, mmap.MAP_SHARED | mmap.MAP_POPULATE, fd, page)
        libc.shared.madvise(base, length, mmap.MADV_DONTFORK)  # a child's copy would keep the queue busy
        return cls(base, page, offsets, size, record, length)

    def room(self) -> int:
        """Producer: entries that may be written now."""
        return self.size - self.pending()

    def pending(self) -> int:
        """Entries between the two indices: published and not yet consumed."""
        return int(self._producer[0] - self._consumer[0]) & INDEX_MASK

    def needs_wakeup(self) -> bool:
        """The kernel asks for a system call before it goes on with this ring."""
        return bool(self._flags[0] & NEED_WAKEUP)

    def put_addresses(self, addresses: Sequence[int]) -> None:
        """FILL: hand over frames; there must be `room`."""
        at, entries, mask = self._producer[0], self._entries, self._mask
        for address in addresses:
            entries[at & mask] = address
            at += 1
        self._publish(at)

    def put_descriptors(self, descriptors: Sequence[tuple[int, int, int]]) -> None:
        """TX: hand over (address, length, options); there must be `room`."""
        at, entries, mask = self._producer[0], self._entries, self._mask
        for address, length, options in descriptors:
            slot = 2 * (at & mask)
            entries[slot] = address
            entries[slot + 1] = length | options << 32
            at += 1
        self._publish(at)

    def take_addresses(self, limit: int) -> list[int]:
        """COMPLETION: take at most `limit` frames."""
        at, count, entries, mask = self._consumer[0], min(limit, self.pending()), self._entries, self._mask
        _order()
        taken = [entries[(at + number) & mask] for number in range(count)]
        self._release(at + count)
        return taken

    def take_descriptors(self, limit: int) -> list[tuple[int, int, int]]:
        """RX: take at most `limit` descriptors (address, length, options)."""
        at, count, entries, mask = self._consumer[0], min(limit, self.pending()), self._entries, self._mask
        _order()
        taken = []
        for number in range(at, at + count):
            slot = 2 * (number & mask)
            tail = entries[slot + 1]
            taken.append((entries[slot], tail & 0xFFFF_FFFF, tail >> 32))
        self._release(at + count)
        return taken

    def addresses(self) -> list[int]:
        """What lies between the indices now, without taking it; an entry the other side has just taken may be in it."""
        first, step = self._consumer[0], _entry_bytes(self.page) // ADDRESS_BYTES
        return [self._entries[step * ((first + number) & self._mask)] for number in range(self.pending())]

    def _publish(self, index: int) -> None:
        _order()
        index &= INDEX_MASK
        self._producer[0] = index
        self._state[_LOCAL] = index
        self._state[_REMOTE] = self._consumer[0]

    def _release(self, index: int) -> None:
        _order()
        index &= INDEX_MASK
        self._consumer[0] = index
        self._state[_LOCAL] = self._state[_REMOTE] = index  # compiled code looks for itself at what else is there

    def close(self) -> None:
        """Unmap; twice is fine. The queue stays busy for as long as any of its rings is mapped."""
        if self._mapped_bytes:
            nothing: memoryview[Any] = memoryview(b"")
            self._producer = self._consumer = self._flags = self._entries = self._state = nothing
            unmap_memory(self._base, self._mapped_bytes)
            self._mapped_bytes = 0


class RingSet:
    """The rings of one socket, mapped, and a small region for their records.

    Args:
        handle: the socket.
        rx, tx, fill, completion: how many entries it was given; 0: the socket has no such ring.

    Raises:
        SocketError: a ring cannot be mapped.
    """

    def __init__(self, handle: socket.socket, *, rx: int, tx: int, fill: int, completion: int) -> None:
        offsets = MmapOffsets.unpack(handle.getsockopt(SOL_XDP, SocketOption.MMAP_OFFSETS, MmapOffsets.LAYOUT.size))
        self._handle = handle
        self._rings: list[MappedRing] = []
        self._records = Region(4 * RECORD_BYTES)
        try:
            self.rx = self._map(PageOffset.RX_RING, offsets.rx, rx)
            self.tx = self._map(PageOffset.TX_RING, offsets.tx, tx)
            self.fill = self._map(PageOffset.FILL_RING, offsets.fill, fill)
            self.completion = self._map(PageOffset.COMPLETION_RING, offsets.completion, completion)
        except BaseException:
            self.close()
            raise

    def _map(self, page: PageOffset, offsets: RingOffsets, size: int) -> MappedRing | None:
        if not size:
            return None
        record = self._records.address + len(self._rings) * RECORD_BYTES
        try:
            ring = MappedRing.map(self._handle.fileno(), page, offsets, size, record)
        except OSError as error:
            raise explain(Call.MAP, error, ring=page.name.removesuffix("_RING")) from error
        self._rings.append(ring)
        return ring

    def close(self) -> None:
        """Unmap all of them; twice is fine."""
        for ring in self._rings:
            ring.close()
        self._records.close()


RECORD_BYTES = (size_of(Ring) + 63) // 64 * 64


def _entry_bytes(page: PageOffset) -> int:
    return DESCRIPTOR_BYTES if page in (PageOffset.RX_RING, PageOffset.TX_RING) else ADDRESS_BYTES


def _view(address: int, size: int, kind: str) -> memoryview[Any]:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B").cast(kind)  # type: ignore[call-overload,no-any-return]
