"""A packet as people see it: one sequence of bytes, whether it lies in one frame or in several."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np

from xskit.arguments import whole
from xskit.errors import UsageError
from xskit.memory import layout, offset_of
from xskit.xsk.path.entry import ROW_BYTES, PacketRow, end_rows
from xskit.xsk.path.lines import KEPT, PacketLine
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.sizes import LINE_BYTES
from xskit.xsk.scratch import borrow, give_back

if TYPE_CHECKING:
    from xskit.xsk.umem import Umem

__all__ = ["ROW", "Origin", "Packet", "Sendable", "as_tuples", "end_packets", "gone"]

RowTuple = tuple[int, int, int, int, int, int]
"""The fields of a PacketRow: address, arrived_ns, length, frames, handle, number."""

_STATE, _OWNER = (offset_of(PacketLine, name) for name in ("state", "owner"))
_LINE_WORDS, _NUMBER_WORD = LINE_BYTES // 4, offset_of(PacketLine, "number") // 4
_HELD = int(Owner.HELD)

ROW: np.dtype[Any] = layout(PacketRow)
"""The rows of a Batch."""

_TUPLE = struct.Struct("qqIIII")
as_tuples = _TUPLE.iter_unpack
"""PacketRow records, one after the other in a buffer, as RowTuples: twice as fast as NumPy."""


class Origin:
    """Where packets come from: a side of a socket.

    Attributes:
        umem: the packet memory that they lie in.
        queue: the number of the queue.
        viewed: those of the last batch whose views are in somebody's hands.
    """

    __slots__ = ("queue", "umem", "viewed")

    def __init__(self, umem: Umem, queue: int) -> None:
        self.umem = umem
        self.queue = queue
        self.viewed: list[Packet] = []

    def note(self, packet: Packet) -> None:
        """Somebody has views of a packet."""
        self.viewed.append(packet)

    def let_go(self) -> UsageError | None:
        """The last batch is about to end: release the views of its packets, those of kept ones excepted.

        Returns:
            The error to raise where one is still in use; its packet then counts as kept.
        """
        trouble = None
        for packet in list(self.viewed):
            try:
                if not packet.kept:
                    packet.let_go()
            except UsageError as error:
                trouble = error
            with suppress(ValueError):  # the handler of a signal did the same
                self.viewed.remove(packet)
        return trouble


class Packet:
    """A packet in packet memory; nothing is copied until asked for.

    It is valid until the next call that receives on its socket, unless `keep` is called. `bytes(packet)` and
    `packet[:14]` are copies; `view`, `part` and `segments` are the bytes themselves and may be written to.
    """

    __slots__ = ("_origin", "_row", "_views")

    _views: tuple[memoryview, ...] | None

    def __init__(self, origin: Origin, row: RowTuple) -> None:
        self._origin = origin
        self._row = row

    @property
    def queue(self) -> int:
        """The RX queue it came by."""
        return self._origin.queue

    @property
    def length(self) -> int:
        """Bytes of the whole packet, from its Ethernet header on."""
        return self._row[2]

    @property
    def frames(self) -> int:
        """Frames that it lies in."""
        return self._row[3]

    @property
    def arrived_ns(self) -> int | None:
        """When the driver's program saw it, CLOCK_MONOTONIC; None where the driver takes no stamp."""
        return self._row[1] or None

    @property
    def kept(self) -> bool:
        """True while it is kept beyond the next call that receives."""
        lines = self._origin.umem.line_bytes
        try:
            return not self.gone and bool(lines[self._row[4] * LINE_BYTES + _STATE] & KEPT)
        except IndexError:  # closed only now
            return False

    @property
    def gone(self) -> bool:
        """True when its frames are no longer its own: they went back, or it was sent."""
        umem, row = self._origin.umem, self._row
        try:
            return (
                umem.line_words[row[4] * _LINE_WORDS + _NUMBER_WORD] != row[5]
                or umem.line_bytes[row[4] * LINE_BYTES + _OWNER] != _HELD
                or not umem.data
            )
        except IndexError:  # the packet memory is closed, or the row is none of it
            return True

    @property
    def view(self) -> memoryview:
        """The bytes where they lie, writable. Of a packet in several frames: a copy that cannot be written to.

        It is released together with the packet. Slices of it and NumPy arrays made of it are not: their memory stays
        mapped, but soon holds the bytes of another packet, and zeros in a forked child.
        """
        if self._row[3] == 1:
            return self.segments[0]
        return memoryview(bytes(self))

    def __buffer__(self, flags: int) -> memoryview:
        return self.view

    def part(self, start: int, stop: int) -> memoryview:
        """Bytes `start` to `stop - 1`, without a copy where they lie in one frame.

        Raises:
            UsageError: the packet has gone, or does not have these bytes.
        """
        start = whole("start", start, 0, self.length)
        stop = whole("stop", stop, start, self.length)
        at = 0
        for segment in self.segments:
            if at <= start and stop <= at + len(segment):
                return segment[start - at : stop - at]
            at += len(segment)
        return memoryview(bytes(self))[start:stop]

    @property
    def segments(self) -> tuple[memoryview, ...]:
        """The bytes where they lie, one writable view a frame. They are released together with the packet; see
        `view`."""
        views: tuple[memoryview, ...] | None = getattr(self, "_views", None)
        if self.gone:
            raise gone(self._origin.umem)
        if views is None:
            address, _, length, frames, handle, _ = self._row
            umem = self._origin.umem
            parts = ((address, length),) if frames == 1 else umem.parts(handle)
            views = tuple([umem.view(offset, span) for offset, span in parts])
            self._views = views
            self._origin.note(self)
        return views

    @property
    def parts(self) -> list[tuple[int, int]]:
        """(offset in the packet memory, length) of each frame's share."""
        self.require()
        address, _, length, frames, handle, _ = self._row
        return [(address, length)] if frames == 1 else self._origin.umem.parts(handle)

    @property
    def row(self) -> RowTuple:
        """Its row in a batch."""
        return self._row

    @property
    def umem(self) -> Umem:
        """The packet memory that it lies in."""
        return self._origin.umem

    def keep(self) -> Self:
        """Let it outlive the next call that receives: it then holds its frames until `release`, or until it is sent."""
        if self._end(keep=True):
            raise gone(self._origin.umem)
        return self

    def release(self) -> None:
        """Give its frames back; twice is fine. One that was not kept goes by itself.

        Raises:
            UsageError: a view of it is still in use; its frames stay where they are.
        """
        if not self.gone:
            self.let_go()
            self._end(keep=False)

    def let_go(self) -> None:
        """Release the views. Raises UsageError where one is still in use; the packet then counts as kept."""
        for view in getattr(self, "_views", None) or ():
            try:
                view.release()
            except BufferError:
                self._end(keep=True)  # its frames stay where they are: wrong bytes would be worse than a frame less
                self._views = None
                raise UsageError(
                    "a view of a packet is still in use, and its memory is about to hold another packet",
                    remedy="packet.keep() for as long as it is needed, or bytes(packet)",
                ) from None
        self._views = None

    def _end(self, keep: bool) -> int:
        """Returns 1 where it had gone."""
        try:
            return end_packets(self._origin.umem, _TUPLE.pack(*self._row), keep)
        except UsageError:
            return 1

    def require(self) -> None:
        """Raises UsageError where it has gone."""
        if self.gone:
            raise gone(self._origin.umem)

    def __bytes__(self) -> bytes:
        return self[:]

    def __len__(self) -> int:
        return self._row[2]

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> bytes: ...
    def __getitem__(self, index: int | slice) -> int | bytes:
        if self.gone:
            raise gone(self._origin.umem)
        address, _, length, frames, handle, _ = self._row
        umem = self._origin.umem
        if frames > 1:
            return b"".join([umem.data[offset : offset + span] for offset, span in umem.parts(handle)])[index]
        if not 0 <= address <= umem.size - length:
            umem.view(address, length)  # raises
        if type(index) is slice:
            start, stop, step = index.indices(length)
            if step == 1:
                return umem.data[address + start : address + stop]
        return umem.data[address : address + length][index]

    def __iter__(self) -> Iterator[int]:
        return iter(bytes(self))

    def __repr__(self) -> str:
        state = "gone" if self.gone else "kept" if self.kept else "until the next receive"
        return f"<Packet of {self.length} bytes in {self.frames} frames, queue {self.queue}, {state}>"


Sendable = bytes | bytearray | memoryview | Packet
"""What `send` takes as one packet."""


def end_packets(umem: Umem, rows: bytes | bytearray, keep: bool) -> int:
    """Keep packets (PacketRow records), or take their frames home; returns how many of them had gone.

    Raises:
        UsageError: the packet memory is closed.
    """
    held = umem.hold()
    space = borrow(len(rows))
    space.view[: len(rows)] = rows
    missing = end_rows(umem.record, space.address, len(rows) // ROW_BYTES, int(keep))
    give_back(space)
    del held
    return missing


def gone(umem: Umem, what: str = "this packet") -> UsageError:
    """The error for a packet that is no longer there."""
    if not umem.address:
        return UsageError(f"{what} is gone: its packet memory is closed", remedy="bytes(packet) before the end")
    return UsageError(
        f"{what} is gone: its frames went back when the next ones were received, or it was sent",
        remedy="packet.keep() before the next receive()",
    )
