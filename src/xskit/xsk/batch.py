"""A batch of packets as one array: no Python object a packet."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import lru_cache
from itertools import repeat
from sys import is_finalizing
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from xskit.arguments import literal, whole
from xskit.errors import UsageError
from xskit.xsk.packet import ROW, Origin, Packet, as_tuples, end_packets, gone
from xskit.xsk.path.entry import GONE, ROW_BYTES, draft_batch, gather
from xskit.xsk.path.lines import NIL
from xskit.xsk.scratch import borrow, give_back

if TYPE_CHECKING:
    from xskit.xsk.umem import Umem

__all__ = ["Batch", "Drafts"]


class Batch:
    """Packets in packet memory, a row each.

    A batch that was received is valid until the next call that receives on its socket, unless `keep` is called. What
    is sent or released is gone from then on. `batch[4]` is a Packet; `batch[2:5]` and `batch[mask]`, with an array of
    truth values or of indices, are batches of some of its packets.
    """

    __slots__ = ("_origin", "_rows")

    def __init__(self, origin: Origin, rows: np.ndarray[Any, Any] | bytearray) -> None:
        self._origin = origin
        self._rows = rows
        """PacketRow records, as bytes until somebody wants an array."""

    @property
    def rows(self) -> np.ndarray[Any, Any]:
        """A structured array: `address` of the packet's first byte as an offset in the packet memory, `length` in
        bytes, `frames`, `arrived_ns` (CLOCK_MONOTONIC; 0 where the driver takes no stamp), and `handle` and `number`,
        by which xskit knows the packet. Lengths may not be changed."""
        if type(self._rows) is bytearray:
            self._rows = np.frombuffer(self._rows, ROW)
        return self._rows  # type: ignore[return-value]

    @rows.setter
    def rows(self, rows: np.ndarray[Any, Any]) -> None:
        self._rows = rows

    def packed(self) -> bytes | bytearray:
        """PacketRow records, one after the other. Raises UsageError where `rows` is something else."""
        return self._rows if type(self._rows) is bytearray else checked(self.rows).tobytes()

    @property
    def queue(self) -> int:
        """The RX queue that they came by."""
        return self._origin.queue

    def __len__(self) -> int:
        return len(self._rows) // ROW_BYTES if type(self._rows) is bytearray else len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Packet: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray[Any, Any]) -> Batch: ...
    def __getitem__(self, index: int | slice | np.ndarray[Any, Any]) -> Packet | Batch:
        if isinstance(index, (slice, np.ndarray, list)):
            return Batch(self._origin, self.rows[index])
        return Packet(self._origin, self.rows[operator.index(index)].item())

    def __iter__(self) -> Iterator[Packet]:
        return map(Packet, repeat(self._origin), as_tuples(self.packed()))

    @property
    def umem(self) -> Umem:
        """The packet memory that they lie in."""
        return self._origin.umem

    def view(self, row: int) -> memoryview:
        """The bytes of one packet; see `Packet.view`."""
        return self[whole("row", row, 0, len(self.rows) - 1)].view

    def column(self, offset: int, kind: Any = "u1") -> np.ndarray[Any, Any]:
        """The field at a fixed offset of every packet, copied: `batch.column(12, ">u2")` are all EtherTypes.

        Bytes behind a packet's end read as zeros.

        Args:
            offset: from the packet's first byte.
            kind: a NumPy type, as `np.dtype` takes it.

        Raises:
            UsageError: not a type of fixed size, an offset below 0, or one of the packets has gone.
        """
        try:
            dtype = _known_type(kind)
        except TypeError:  # a list cannot be looked up
            dtype = _type(kind)
        offset = whole("offset", offset, 0, (1 << 32) - 1)
        rows, size, umem = self.packed(), dtype.itemsize, self._origin.umem
        count, end = len(rows) // ROW_BYTES, len(rows) // ROW_BYTES * (ROW_BYTES + size)
        held = umem.views or self._hold()
        space = borrow(end)
        space.view[: len(rows)] = rows
        answer = gather(umem.record, space.address, count, offset, size, space.address + len(rows))
        values = bytearray(space.view[len(rows) : end])
        give_back(space)
        del held
        if answer <= GONE:
            raise gone(umem, f"packet {GONE - answer} of the batch")
        return np.frombuffer(values, dtype)

    def keep(self) -> Batch:
        """Let all of them outlive the next call that receives: they hold their frames until they are released or sent.

        Raises:
            UsageError: one of them has gone.
        """
        held = self._hold()
        if end_packets(self._origin.umem, self.packed(), keep=True):
            raise gone(self._origin.umem, "a packet of the batch")
        del held
        return self

    def release(self) -> None:
        """Give back the frames of those that are still held; twice is fine."""
        self._origin.umem.end_packets(checked(self.rows))

    def _hold(self) -> tuple[memoryview, ...]:
        """What compiled code must have meanwhile."""
        try:
            return self._origin.umem.hold()
        except UsageError:
            raise gone(self._origin.umem, "the batch") from None

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} packets, queue {self.queue}>"


class Drafts(Origin):
    """Where packets come from that are to be written and sent: their frames go home when nobody refers to them any
    more."""

    __slots__ = ("__weakref__", "_rows")

    def __init__(self, umem: Umem) -> None:
        super().__init__(umem, 0)
        self._rows = np.zeros(0, ROW)

    def note(self, packet: Packet) -> None:
        """No call that receives ends them, so nobody asks for their views. A list of them would be a cycle."""

    def make(self, lengths: np.ndarray[Any, Any]) -> Batch:
        """A batch of packets of these lengths; fewer where frames are missing."""
        umem = self.umem
        rows = np.zeros(len(lengths), ROW)
        rows["length"], rows["handle"] = lengths, NIL
        self._rows = rows
        umem.recall()
        held = umem.hold()
        umem.lend(self, rows)
        made = draft_batch(umem.pool.address, umem.packet_offset, umem.capacity, _at(rows), len(rows))
        del held
        return Batch(self, rows[:made].copy())

    def __del__(self) -> None:
        rows = getattr(self, "_rows", None)
        if rows is not None and not is_finalizing():
            self.umem.end_packets(rows)


def _type(kind: Any) -> np.dtype[Any]:
    """A NumPy type of fixed size. Raises UsageError."""
    try:
        dtype: np.dtype[Any] = np.dtype(kind)
    except TypeError as error:
        raise UsageError(f'kind must be a NumPy type such as ">u2", not {literal(kind)}') from error
    if dtype.hasobject or not 0 < dtype.itemsize <= 1 << 16:
        raise UsageError(f'kind must be a NumPy type of fixed size such as ">u2", not {literal(kind)}')
    return dtype


_known_type = lru_cache(_type)


def checked(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows one after the other in memory, as compiled code takes them. Raises UsageError where they are something
    else."""
    if not isinstance(rows, np.ndarray) or rows.dtype != ROW or rows.ndim != 1:
        raise UsageError(f"rows must be the structured array of a Batch, not {literal(rows)}")
    return np.ascontiguousarray(rows)


def _at(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)
