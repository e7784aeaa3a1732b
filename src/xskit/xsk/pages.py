"""Packet memory and rings: address space that is mapped for as long as Python can reach it.

    Umem -------> Pages ------> mmap object <---- memoryview <---- slices, NumPy arrays
    MappedRing -> RingPages --> mmap object <---- memoryview <---- slices, NumPy arrays

The mmap object exports the bytes and unmaps the pages when it is collected. Every view refers to it, so a view that
outlives `close` still reads memory, and never a hole that would end the process.

The pages of a ring go at `close`, because the kernel keeps the queue busy for as long as one is mapped. Zeros are
mapped in their place, and an old view reads them.

A forked child has a mapping at the same address, which reads as zeros. The parent's pages are not copied on write, so
the kernel goes on using the right ones.
"""

from __future__ import annotations

import mmap
from contextlib import ExitStack, suppress

from xskit import libc
from xskit._fork import not_inherited
from xskit.closing import Closing
from xskit.memory import HUGE_PAGE_BYTES, PAGE_BYTES, address_of, no_memory, populate_memory

__all__ = ["Pages", "RingPages"]

MADV_WIPEONFORK = 18
"""Since Linux 4.14, for private anonymous memory without hugetlb (include/uapi/asm-generic/mman-common.h)."""

MAP_FIXED, MAP_NORESERVE, MAP_HUGETLB = 0x10, 0x4000, 0x40000
"""include/uapi/asm-generic/mman-common.h."""


class Pages(Closing):
    """At least `size` zeroed bytes, page aligned, that stay mapped until the last view of them is gone.

    Args:
        size: bytes.
        populate: touch every page now.
        huge: ask for transparent huge pages.
        hugetlb: take pages from the hugetlb pool instead (vm.nr_hugepages); fails where it is too small.

    Attributes:
        address: where they begin; 0 once closed.
        view: the `size` bytes, writable; empty once closed.

    Raises:
        KernelError: the memory is not to be had.
    """

    def __init__(self, size: int, *, populate: bool, huge: bool, hugetlb: bool) -> None:
        unit = HUGE_PAGE_BYTES if huge or hugetlb else PAGE_BYTES
        mapped = max(unit, (size + unit - 1) // unit * unit)
        # Private hugetlb pages would be copied at a fork. MADV_DONTFORK is no answer: before the hook can fill the hole
        # in the child, its allocator may have mapped something else there.
        kind = mmap.MAP_SHARED | MAP_HUGETLB if hugetlb else mmap.MAP_PRIVATE
        with ExitStack() as undo:
            try:
                memory = mmap.mmap(-1, mapped, flags=mmap.MAP_ANONYMOUS | kind)
                undo.callback(memory.close)
                self.address = address = address_of(memory)
                if hugetlb:
                    not_inherited(memory, lambda _: _blank(address, mapped))
                else:
                    memory.madvise(MADV_WIPEONFORK)
                if huge and not hugetlb:
                    with suppress(OSError):  # a kernel without them
                        memory.madvise(mmap.MADV_HUGEPAGE)
                if populate:
                    populate_memory(address, mapped)
            except OSError as error:
                remedy = f"sysctl vm.nr_hugepages={mapped // HUGE_PAGE_BYTES}" if hugetlb else None
                raise no_memory(mapped, error, remedy) from error
            undo.pop_all()
        self.view = memoryview(memory)[:size]

    def close(self) -> None:
        """Let go of the pages; twice is fine. They are unmapped when the last view of them is gone."""
        self.address = 0
        self.view = memoryview(b"")


class RingPages(Closing):
    """The pages of one ring, until `close`, with zeros in their place from then on.

    Args:
        fd: the socket.
        offset: the ring, as mmap(2) knows it (PageOffset).
        size: bytes.

    Attributes:
        address: where they begin.
        view: the `size` bytes, writable.

    Raises:
        OSError: as mmap(2) says.
    """

    def __init__(self, fd: int, offset: int, size: int) -> None:
        self._mapped = mapped = -(-size // PAGE_BYTES) * PAGE_BYTES
        memory = mmap.mmap(-1, mapped, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        self.address = address = address_of(memory)
        try:
            _map_over(address, mapped, mmap.MAP_SHARED | mmap.MAP_POPULATE, fd, offset)
        except OSError:
            _blank(address, mapped)  # a mapping that fails leaves a hole
            raise
        not_inherited(memory, lambda _: _blank(address, mapped))
        self.view = memoryview(memory)[:size]
        self._closed = False

    def close(self) -> None:
        """Unmap the ring, and map zeros in its place; twice is fine."""
        if not self._closed:
            _blank(self.address, self._mapped)
            self._closed = True


def _blank(address: int, size: int) -> None:
    """Put zeros in the place of pages that the kernel, or a parent process, has as well."""
    _map_over(address, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)


def _map_over(address: int, size: int, flags: int, fd: int, offset: int) -> None:
    """mmap(2) in the place of what is mapped at an address. Raises OSError."""
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if libc.shared.mmap(address, size, access, flags | MAP_FIXED, fd, offset) != address:
        raise libc.failure()
