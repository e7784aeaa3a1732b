"""A ring mapped into this process, and its Ring record, by which compiled code works on it.

After `close`, and in a forked child, the ring has no entries: `size` of the record is 0, its indices are equal, and
zeros are mapped where it was (xsk/pages.py). What still works on it finds nothing to do.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from xskit._fork import not_inherited
from xskit.abi.xdp import SOL_XDP, MmapOffsets, PageOffset, RingOffsets, SocketOption
from xskit.memory import RecordBlock, address_of, offset_of, record_view, size_of
from xskit.xsk.errors import Call, explain
from xskit.xsk.pages import RingPages
from xskit.xsk.path.rings import INDEX_MASK, NEED_WAKEUP, Ring

__all__ = ["DESCRIPTOR", "MappedRing", "RingSet"]

ADDRESS = np.dtype(np.uint64)
ADDRESS_BYTES = ADDRESS.itemsize

DESCRIPTOR = np.dtype([("address", np.uint64), ("length", np.uint32), ("options", np.uint32)])
"""struct xdp_desc."""

_STATE = [offset_of(Ring, name) // 8 for name in ("size", "mask", "local", "remote")]


class MappedRing:
    """One end of one ring.

    Args:
        memory: the bytes of the ring.
        page: which ring of a socket it is.
        offsets: where in the memory its parts are (XDP_MMAP_OFFSETS).
        size: entries.
        record: the bytes of the Ring record to fill in.

    Attributes:
        size: entries; 0 once closed.
        record: address of the Ring record, which lasts as long as this object.
        entries: all of them, a NumPy array over the ring itself: addresses (u8), in RX and TX `DESCRIPTOR`. It can be
            written where this side produces.
    """

    def __init__(
        self, memory: memoryview, page: PageOffset, offsets: RingOffsets, size: int, record: memoryview
    ) -> None:
        produces = page in (PageOffset.FILL_RING, PageOffset.TX_RING)
        kind = _entry(page)
        self.page = page
        self.size = size
        self._pages: RingPages | None = None
        self._producer = memory[offsets.producer :][:4].cast("I")
        self._consumer = memory[offsets.consumer :][:4].cast("I")
        self._flags = memory[offsets.flags :][:4].cast("I")
        entries = memory[offsets.descriptors :][: size * kind.itemsize]
        self.entries = np.frombuffer(entries if produces else entries.toreadonly(), kind)
        self._state = record.cast("q")
        self.record = address_of(record)
        base = address_of(memory)
        ring = record_view(Ring, self.record, record)
        ring.producer = base + offsets.producer
        ring.consumer = base + offsets.consumer
        ring.flags = base + offsets.flags
        ring.entries = base + offsets.descriptors
        ring.size = size
        ring.mask = size - 1
        ring.local = self._producer[0] if produces else self._consumer[0]
        ring.remote = self._consumer[0] if produces else self._producer[0]
        not_inherited(self, MappedRing._empty)

    @classmethod
    def map(cls, fd: int, page: PageOffset, offsets: RingOffsets, size: int, record: memoryview) -> Self:
        """Map a ring of the socket `fd`. Raises OSError as mmap(2) says."""
        pages = RingPages(fd, page, offsets.descriptors + size * _entry(page).itemsize)
        ring = cls(pages.view, page, offsets, size, record)
        ring._pages = pages
        return ring

    def pending(self) -> int:
        """Entries between the two indices: published and not yet consumed; 0 once closed."""
        first = self._consumer[0]  # looked at before the other one, which is never behind it
        return min((self._producer[0] - first) & INDEX_MASK, self.size)

    def needs_wakeup(self) -> bool:
        """The kernel asks for a system call before it goes on with this ring."""
        return bool(self._flags[0] & NEED_WAKEUP)

    def looked_at(self) -> tuple[int, int, int]:
        """For a Survey: the address of the Ring record, the 64-bit words that an entry has, and entries."""
        return self.record, self.entries.itemsize // ADDRESS_BYTES, len(self.entries)

    def _empty(self) -> None:
        """Nothing can be read or written any more, whatever the indices in the ring say."""
        self.size = 0
        for place in _STATE:
            self._state[place] = 0

    def close(self) -> None:
        """Unmap the ring; twice is fine. The queue stays busy for as long as any of its rings is mapped.

        Views of it read zeros from now on. No compiled code may be at work on it.
        """
        self._empty()
        if self._pages is not None:
            self._pages.close()


class RingSet:
    """The rings of one socket, mapped, and their records.

    The records and the address space of the rings last until this object and all views of the rings are gone.

    Args:
        handle: the socket.
        rx, tx, fill, completion: how many entries it was given; 0: the socket has no such ring.

    Raises:
        SocketError: a ring cannot be mapped.
    """

    def __init__(self, handle: socket.socket, *, rx: int, tx: int, fill: int, completion: int) -> None:
        offsets = MmapOffsets.unpack(handle.getsockopt(SOL_XDP, SocketOption.MMAP_OFFSETS, MmapOffsets.LAYOUT.size))
        self._rings: list[MappedRing] = []
        records = RecordBlock(4 * RECORD_BYTES).view
        fd = handle.fileno()
        try:
            self.rx = self._map(fd, PageOffset.RX_RING, offsets.rx, rx, records)
            self.tx = self._map(fd, PageOffset.TX_RING, offsets.tx, tx, records)
            self.fill = self._map(fd, PageOffset.FILL_RING, offsets.fill, fill, records)
            self.completion = self._map(fd, PageOffset.COMPLETION_RING, offsets.completion, completion, records)
        except BaseException:
            self.close()
            raise

    def _map(
        self, fd: int, page: PageOffset, offsets: RingOffsets, size: int, records: memoryview
    ) -> MappedRing | None:
        if not size:
            return None
        record = records[len(self._rings) * RECORD_BYTES :][:RECORD_BYTES]
        try:
            ring = MappedRing.map(fd, page, offsets, size, record)
        except OSError as error:
            raise explain(Call.MAP, error, ring=page.name.removesuffix("_RING")) from error
        self._rings.append(ring)
        return ring

    def close(self) -> None:
        """Unmap all of them; twice is fine. See MappedRing.close."""
        with ExitStack() as stack:
            for ring in self._rings:
                stack.callback(ring.close)


RECORD_BYTES = (size_of(Ring) + 63) // 64 * 64


def _entry(page: PageOffset) -> np.dtype[Any]:
    return DESCRIPTOR if page in (PageOffset.RX_RING, PageOffset.TX_RING) else ADDRESS
