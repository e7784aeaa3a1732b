"""The packet table and its frame pools, from Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from xskit.closing import Closing
from xskit.jit import compiled
from xskit.memory import HUGE_PAGE_BYTES, layout, record_view, size_of
from xskit.xsk.pages import Pages
from xskit.xsk.path.books import DROPS_BYTES, Books
from xskit.xsk.path.lines import PacketLine
from xskit.xsk.path.owner import FrameError, Owner, Sighting
from xskit.xsk.path.pool import POOL_BYTES, PacketMemory, Pool, frame_of, memory_at
from xskit.xsk.path.sizes import FREE_BYTES, LINE_BYTES
from xskit.xsk.path.survey import Survey

__all__ = ["FramePool", "PacketTable"]


class PacketTable(Closing):
    """A line for each of `frames` frames, and the record by which compiled code knows the packet memory.

    Args:
        frames: of the packet memory.
        base: its address; 0: frames have no bytes (virtual time).
        frame_bytes: of each.
        unaligned: addresses in rings have the offset in the frame in their top bits.
        pools: the most pools that its frames are divided into.
        shared: several threads use it at once.
        populate: touch all of it now.

    Attributes:
        address: of the lines.
        memory: address of the PacketMemory record.
        bytes: what it takes.
    """

    def __init__(
        self,
        frames: int,
        *,
        base: int = 0,
        frame_bytes: int = 1,
        unaligned: bool = False,
        pools: int = 2,
        shared: bool = False,
        populate: bool = True,
    ) -> None:
        self.frames = frames
        size = frames * LINE_BYTES
        self._pages = Pages(size, populate=populate, huge=size >= HUGE_PAGE_BYTES, hugetlb=False)
        head = -(-size_of(PacketMemory) // POOL_BYTES) * POOL_BYTES
        self._records = Pages(head + POOL_BYTES * pools, populate=True, huge=False, hugetlb=False)
        self.address = self._pages.address
        self.memory = self._records.address
        self.bytes = size
        self._pools, self._most_pools, self._pool_count = self.memory + head, pools, 0
        view = record_view(PacketMemory, self.memory, self._records.view)
        view.base, view.frames, view.frame_bytes, view.unaligned = base, frames, frame_bytes, int(unaligned)
        shift = frame_bytes.bit_length() - 1
        view.frame_shift = shift if 1 << shift == frame_bytes and not unaligned else -1
        view.table, view.pools, view.shared = self.address, self._pools, int(shared)

    @property
    def lines(self) -> np.ndarray[Any, Any]:
        """The lines themselves, in place."""
        return np.frombuffer(self._pages.view, layout(PacketLine))

    def owners(self) -> np.ndarray[Any, Any]:
        """The Owner of every frame, a copy."""
        owners: np.ndarray[Any, Any] = self.lines["owner"].copy()
        return owners

    @property
    def view(self) -> memoryview:
        """The bytes of the lines, in place. It keeps them mapped; in a forked child it reads as zeros."""
        return self._pages.view

    def frame_of(self, address: int) -> int:
        """The number of the frame that an address in a ring means; -1 where it means none of this memory."""
        return frame_number(self.memory, address)

    def hold(self) -> tuple[memoryview, ...]:
        """Views that keep mapped what compiled code works on."""
        return self._pages.view, self._records.view

    def next_pool(self) -> tuple[int, int]:
        """For FramePool: the address and the number of the next Pool record."""
        assert self._pool_count < self._most_pools, "the packet table was made for fewer pools"
        number = self._pool_count
        self._pool_count += 1
        return self._pools + number * POOL_BYTES, number

    def close(self) -> None:
        """Give the memory back; twice is fine. Views of it keep it mapped."""
        self._pages.close()
        self._records.close()


@compiled("int64(int64, int64)")
def frame_number(memory: int, address: int) -> int:
    """`frame_of`, from Python, with the address of the PacketMemory."""
    return frame_of(memory_at(memory), address)


class FramePool(Closing):
    """Frames `first` to `first + count - 1` of a packet table, all free.

    Args:
        table: the packet table; it is closed by whoever made it.
        first, count: the frames that belong here.
        books: address of the Books in which their packets count; 0: books of its own.

    Attributes:
        address: of the Pool record; `view` is that record.
        number: by which the lines of its frames name it.
    """

    def __init__(self, table: PacketTable, first: int, count: int, *, books: int = 0) -> None:
        self.table = table
        own = -(-FREE_BYTES * count // 64) * 64
        drops = own + size_of(Books)
        self._pages = Pages(drops + DROPS_BYTES, populate=True, huge=own >= HUGE_PAGE_BYTES, hugetlb=False)
        start = self._pages.address
        self.address, self.number = table.next_pool()
        self.view = record_view(Pool, self.address, (table, self._pages.view))
        self.view.frames, self.view.count, self.view.capacity = start, count, count
        self.view.memory, self.view.books, self.view.first = table.memory, books or start + own, first
        if not books:
            record_view(Books, start + own).drops = start + drops
        # The first frames on top: they are the ones handed out first.
        self._places()[:] = np.arange(first + count - 1, first - 1, -1, dtype=np.uint32)
        if self.number:
            table.lines["home"][first : first + count] = self.number

    def hold(self) -> tuple[memoryview, ...]:
        """A view that keeps mapped what compiled code works on."""
        return (self._pages.view,)

    @property
    def free(self) -> int:
        """Frames that nobody uses."""
        return int(self.view.count)

    @property
    def books(self) -> Books:
        """What became of its packets."""
        return record_view(Books, self.view.books)

    def stack(self) -> np.ndarray[Any, Any]:
        """The numbers of the free frames, a copy; the last one goes out first."""
        return self._places()[: self.free].copy()

    def _places(self) -> np.ndarray[Any, Any]:
        return np.frombuffer(self._pages.view, np.uint32, int(self.view.capacity))

    def check(self, places: Iterable[Sighting] = (), survey: Survey | None = None) -> dict[Owner, int]:
        """Prove that every frame is in exactly one place, and count them by place: see Umem.check.

        Args:
            places: every entry of every ring, of frames that are this pool's.
            survey: the moment at which they were seen; None: nothing moves.

        Raises:
            FrameError: a frame is in two places, in a place that its owner does not explain, or lost.
        """
        first, count = int(self.view.first), int(self.view.capacity)
        if self.view.violations:
            raise FrameError(
                f"{self.view.violations} moves did not start where the frame was; the first was frame "
                f"{self.view.violated}"
            )
        owners, free = (survey.owners, survey.free) if survey else (self.table.owners(), self.stack())
        seen = dict.fromkeys(free.tolist(), Owner.FREE)
        if len(seen) != len(free):
            raise FrameError("a frame is free twice")
        if np.any(self.table.lines["home"][first : first + count] != self.number):
            raise FrameError("a frame does not know its home")
        for frame in seen:
            if not first <= frame < first + count:
                raise FrameError(f"frame {frame} is on the free stack of frames {first} to {first + count - 1}")
            if owners[frame] != Owner.FREE:
                name = Owner(int(owners[frame])).name
                raise FrameError(f"frame {frame} is on the free stack, but its owner is {name}")
        for frame, place, owner in places:
            if not first <= frame < first + count:
                raise FrameError(f"{place.name} holds frame {frame}: there are frames {first} to {first + count - 1}")
            if frame in seen:
                raise FrameError(f"frame {frame} is in two places: {seen[frame].name} and {place.name}")
            if owners[frame] != owner:
                raise FrameError(f"frame {frame} is in {place.name}, but its owner is {Owner(int(owners[frame])).name}")
            seen[frame] = place
        counts = Counter(Owner(int(owner)) for owner in owners[first : first + count])
        if counts[Owner.FREE] != len(free):
            raise FrameError(f"{counts[Owner.FREE]} frames are free, but {len(free)} can be had: some are lost")
        for frame, place in seen.items():
            said = Owner(int(owners[frame]))
            if place != said:
                counts[place] += 1
                counts[said] -= 1
        return {owner: counts[owner] for owner in Owner}

    def close(self) -> None:
        """Give the memory back; twice is fine."""
        self._pages.close()
