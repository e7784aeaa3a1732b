"""Raw memory for compiled code: records laid out as C would lay them out, and regions to put them in.

A `Record` is a class whose annotations are its fields:

    class Fifo(Record):
        entries: I64        # address of the first entry
        head: I64

    fifo_at = record_at(Fifo)      # compiled code: fifo_at(address).head += 1

A `Region` is a private anonymous mapping, populated before use so that no page fault lands in the hot loop. A
`RecordBlock` is a small piece that nothing unmaps while Python refers to it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import inspect
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar, get_type_hints

import numpy as np

from xskit import libc
from xskit.closing import Closing
from xskit.errors import KernelError
from xskit.jit import record_pointer

I64 = Annotated[int, "i8"]
U64 = Annotated[int, "u8"]
U32 = Annotated[int, "u4"]
U16 = Annotated[int, "u2"]
U8 = Annotated[int, "u1"]
F64 = Annotated[float, "f8"]

PAGE_BYTES = mmap.PAGESIZE
HUGE_PAGE_BYTES = 2 << 20
MADV_POPULATE_WRITE = 23
"""Since Linux 5.14 (include/uapi/asm-generic/mman-common.h)."""


class Record:
    """A C struct declared by annotations; fields are aligned naturally, in the order in which they are written.

    Compiled code takes it that memory reached through one class is not reached through another one, bases excepted.
    """


SomeRecord = TypeVar("SomeRecord", bound=Record)


_layouts: dict[type[Record], np.dtype[Any]] = {}


def layout(record: type[Record]) -> np.dtype[Any]:
    """The NumPy dtype of a record; worked out once."""
    if record not in _layouts:
        hints = get_type_hints(record, include_extras=True)
        _layouts[record] = np.dtype([(name, hint.__metadata__[0]) for name, hint in hints.items()], align=True)
    return _layouts[record]


def size_of(record: type[Record]) -> int:
    """The size of a record in bytes."""
    return layout(record).itemsize


def offset_of(record: type[Record], field: str) -> int:
    """Where a field begins in its record, in bytes."""
    fields = layout(record).fields
    assert fields is not None
    return int(fields[field][1])


def record_at(record: type[SomeRecord]) -> Callable[[int], SomeRecord]:
    """A function address -> record pointer, for compiled code and for its pure-Python twin."""
    return record_pointer(layout(record), _field_names(record))


def _field_names(record: type[Record]) -> dict[str, str]:
    """Each field under the name of the class that declares it: what tells compiled code which fields are the same."""
    return {
        field: f"{cls.__module__}.{cls.__qualname__}.{field}"
        for cls in reversed(record.__mro__)
        for field in inspect.get_annotations(cls)
    }


class _Pointer:
    """A record seen from Python: attributes are fields, read and written in place."""

    __slots__ = ("_bytes", "_keep")

    def __init__(self, view: memoryview, keep: object) -> None:
        self._bytes = view
        self._keep = keep


_pointers: dict[type[Record], type[_Pointer]] = {}


def _pointer_to(record: type[Record]) -> type[_Pointer]:
    """A class with a property for each field; made once."""
    if record not in _pointers:
        kinds = layout(record)
        fields = {name: _field(kinds[name].char, offset_of(record, name)) for name in kinds.names or ()}
        _pointers[record] = type(f"{record.__name__}View", (_Pointer,), {"__slots__": (), **fields})
    return _pointers[record]


def _field(kind: str, offset: int) -> property:
    """Native in size and order, so that each access is one load or store."""
    code = struct.Struct(kind)
    unpack, pack = code.unpack_from, code.pack_into

    def read(pointer: _Pointer) -> Any:
        return unpack(pointer._bytes, offset)[0]

    def write(pointer: _Pointer, value: float) -> None:
        pack(pointer._bytes, offset, value)

    return property(read, write)


def record_view(record: type[SomeRecord], address: int, keep: object = None) -> SomeRecord:
    """The record at an address, for Python code outside the data plane; `keep` is held for as long as the view."""
    raw = (ctypes.c_char * size_of(record)).from_address(address)
    return _pointer_to(record)(memoryview(raw).cast("B"), keep)  # type: ignore[return-value]


def array_at(address: int, count: int, dtype: Any) -> np.ndarray[Any, Any]:
    """A NumPy array over memory that somebody else keeps alive."""
    kind = np.dtype(dtype)
    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype=kind, count=count)


def address_of(buffer: memoryview | mmap.mmap) -> int:
    """Where the bytes of a writable buffer begin."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


_MAP_FAILED = ctypes.c_void_p(-1).value


def map_memory(size: int, flags: int, fd: int = -1, offset: int = 0) -> int:
    """mmap(2), readable and writable; returns the address.

    Raises:
        OSError: as mmap(2) says.
    """
    address = libc.shared.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, offset)
    if address in (None, _MAP_FAILED):
        raise libc.failure()
    return int(address)


def unmap_memory(address: int, size: int) -> None:
    """munmap(2)."""
    libc.shared.munmap(address, size)


def no_memory(size: int, error: OSError, remedy: str | None = None) -> KernelError:
    """What to raise where mmap(2) or madvise(2) found no `size` bytes."""
    return KernelError(
        f"the kernel has no {size / (1 << 20):.0f} MiB of packet memory to give: {error.strerror}", remedy=remedy
    )


def populate_memory(address: int, size: int) -> None:
    """Touch every page, keeping what it holds on Linux 5.14 and later, and writing zeros before.

    Raises:
        OSError: there is not so much memory.
    """
    step = 64 << 20
    for offset in range(0, size, step):
        length = min(step, size - offset)
        if libc.shared.madvise(address + offset, length, MADV_POPULATE_WRITE) == 0:
            continue
        if ctypes.get_errno() != errno.EINVAL:
            raise libc.failure()
        ctypes.memset(address + offset, 0, length)


class Region(Closing):
    """A private anonymous mapping of at least `size` bytes, page aligned and zeroed.

    Args:
        size: bytes; rounded up to whole pages.
        populate: touch every page now, so that none is first touched in the hot loop.
        huge: ask for transparent huge pages.

    Raises:
        KernelError: the memory is not to be had.
    """

    def __init__(self, size: int, *, populate: bool = True, huge: bool = False) -> None:
        unit = HUGE_PAGE_BYTES if huge else PAGE_BYTES
        self.size = max(unit, (size + unit - 1) // unit * unit)
        self._pid = os.getpid()
        try:
            self.address = map_memory(self.size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise no_memory(self.size, error) from error
        if huge:
            libc.shared.madvise(self.address, self.size, mmap.MADV_HUGEPAGE)
        libc.shared.madvise(self.address, self.size, mmap.MADV_DONTFORK)
        if populate:
            try:
                populate_memory(self.address, self.size)
            except OSError as error:
                self.close()
                raise no_memory(self.size, error) from error

    @property
    def closed(self) -> bool:
        """True once the memory has been given back."""
        return self.address == 0

    def close(self) -> None:
        """Give the memory back; twice is fine. A forked child does not have it."""
        if self.address:
            if self._pid == os.getpid():
                unmap_memory(self.address, self.size)
            self.address = 0

    def array(self, count: int, dtype: Any, offset: int = 0) -> np.ndarray[Any, Any]:
        """A NumPy view of `count` items from `offset` bytes on; valid until close()."""
        assert offset + count * np.dtype(dtype).itemsize <= self.size
        return array_at(self.address + offset, count, dtype)


class RecordBlock:
    """At least `size` zeroed bytes for records, on cache lines of their own, that last until Python forgets them.

    Nothing unmaps them before that, and a forked child has a copy. Compiled code may reach such records after what they
    belong to is closed.

    Attributes:
        address: where they begin.
        view: the bytes. It keeps them, as do its slices.
    """

    def __init__(self, size: int) -> None:
        raw = np.zeros(size + Arena.LINE_BYTES, np.uint8)
        first = -raw.ctypes.data % Arena.LINE_BYTES
        self.address = raw.ctypes.data + first
        self.view = raw[first : first + size].data


class Arena:
    """One region cut into pieces, for records and arrays that live and die together.

    Plan first (`reserve`), then `open`; every piece begins on its own cache line.
    """

    LINE_BYTES = 64

    def __init__(self) -> None:
        self._size = 0
        self._region: Region | None = None

    def reserve(self, size: int) -> int:
        """Ask for `size` bytes; returns the offset of the piece."""
        assert self._region is None, "the arena is already open"
        offset = self._size
        self._size += (size + self.LINE_BYTES - 1) // self.LINE_BYTES * self.LINE_BYTES
        return offset

    def open(self) -> int:
        """Map everything that was reserved; returns the address of offset 0."""
        assert self._region is None, "the arena is already open"
        self._region = Region(max(self._size, 1), huge=self._size >= HUGE_PAGE_BYTES)
        return self._region.address

    @property
    def size(self) -> int:
        """Bytes reserved so far."""
        return self._size

    def close(self) -> None:
        """Give the memory back; twice is fine."""
        if self._region is not None:
            self._region.close()


@contextmanager
def scratch(record: type[SomeRecord]) -> Iterator[tuple[int, SomeRecord]]:
    """A zeroed record with an address of its own, for a short use: yields (address, view)."""
    with Region(size_of(record)) as region:
        yield region.address, record_view(record, region.address, region)
