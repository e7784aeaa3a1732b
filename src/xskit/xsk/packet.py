"""A received packet as people see it: one sequence of bytes, whether it lies in one frame or in several."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self, overload

from xskit.errors import UsageError
from xskit.xsk.path.owner import Owner

if TYPE_CHECKING:
    from xskit.xsk.umem import Umem

__all__ = ["Packet"]


class Packet:
    """A packet in packet memory; nothing is copied until asked for.

    It is valid until the next `receive` on its socket, unless `keep` is called. `bytes(packet)` and `packet[:14]`
    are copies; `segments` are the bytes themselves and may be written to.
    """

    __slots__ = ("_parts", "_umem", "_views", "arrived_ns", "kept", "length", "queue")

    def __init__(self, umem: Umem, parts: list[tuple[int, int]], queue: int, arrived_ns: int | None) -> None:
        self._umem = umem
        self._parts = parts
        self._views: tuple[memoryview, ...] | None = None
        self.queue = queue
        """The RX queue it came by."""
        self.arrived_ns = arrived_ns
        """When the driver's program saw it, CLOCK_MONOTONIC; None where the driver takes no stamp."""
        self.length = parts[0][1] if len(parts) == 1 else sum(length for _, length in parts)
        """Bytes of the whole packet, from its Ethernet header on."""
        self.kept = False
        """True once `keep` was called."""

    @property
    def segments(self) -> tuple[memoryview, ...]:
        """The bytes where they lie, one writable view a frame. They are released together with the packet.

        Slices of them and NumPy arrays made of them are not: their memory stays mapped, but soon holds the bytes of
        another packet, and zeros in a forked child."""
        parts = self._alive()
        if self._views is None:
            self._views = tuple(self._umem.view(offset, length) for offset, length in parts)
        return self._views

    def keep(self) -> Self:
        """Let it outlive the next `receive`: it then holds its frames until `release`, or until it is sent."""
        self._alive()
        self.kept = True
        return self

    def release(self) -> None:
        """Give a kept packet's frames back; twice is fine. One that was not kept goes by itself."""
        if self.kept and not self.gone:
            for frame in self.take_frames():
                self._umem.pool.move(frame, Owner.HELD, Owner.FREE)

    @property
    def gone(self) -> bool:
        """True when its frames are no longer its own."""
        return not (self._parts and self._umem.address)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """(offset in the packet memory, length) of each frame's share."""
        return self._alive()

    def lies_in(self, umem: Umem) -> bool:
        """Whether a socket of this packet memory can send it without a copy."""
        return self._umem is umem

    def take_frames(self) -> list[int]:
        """The frames, which the caller now answers for; the packet is gone."""
        size = self._umem.frame_size
        frames = [offset // size for offset, _ in self._alive()]
        for view in self._views or ():
            try:
                view.release()
            except BufferError:
                self._views = None
                self.kept = True  # its frames stay where they are: wrong bytes would be worse than a frame less
                raise UsageError(
                    "a view of a packet is still in use, and its memory is about to hold another packet",
                    remedy="packet.keep() for as long as it is needed, or bytes(packet)",
                ) from None
        self._parts = []
        self._views = None
        return frames

    def _alive(self) -> list[tuple[int, int]]:
        if not self._umem.address:
            raise UsageError("this packet is gone: its packet memory is closed", remedy="bytes(packet) before the end")
        if not self._parts:
            raise UsageError(
                "this packet is gone: its frames went back when the next ones were received, or it was sent",
                remedy="packet.keep() before the next receive()",
            )
        return self._parts

    def __bytes__(self) -> bytes:
        return b"".join(self._umem.read(offset, length) for offset, length in self._alive())

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> bytes: ...
    def __getitem__(self, index: int | slice) -> int | bytes:
        first, span = self._alive()[0]
        if isinstance(index, slice):
            start, stop, step = index.indices(self.length)
            if step == 1 and stop <= span:
                return self._umem.read(first + start, max(0, stop - start))
            return bytes(self)[index]
        place = operator.index(index)
        place += self.length if place < 0 else 0
        if not 0 <= place < self.length:
            raise IndexError(f"byte {index} of a packet of {self.length}")
        for offset, length in self._parts:
            if place < length:
                return self._umem.read(offset + place, 1)[0]
            place -= length
        raise AssertionError("the parts make up the length")

    def __iter__(self) -> Iterator[int]:
        return iter(bytes(self))

    def __repr__(self) -> str:
        state = "gone" if self.gone else "kept" if self.kept else "until the next receive"
        return f"<Packet of {self.length} bytes in {len(self._parts)} frames, queue {self.queue}, {state}>"
