"""The packet table and the frame pools, from Python: who owns which frames when the engine starts."""

from __future__ import annotations

from typing import Any

import numpy as np

from xskit.engine.packets import DirectionPool
from xskit.engine.sizes import FREE_BYTES, LINE_SHIFT
from xskit.memory import Arena, Region, array_at, record_view, size_of


class PacketTable:
    """One line for each frame of the packet memory.

    Args:
        frames: of the packet memory.
        debug: keep the owner of every frame and check every move.
    """

    def __init__(self, frames: int, *, debug: bool = False) -> None:
        self.frames = frames
        self._lines = Region(frames << LINE_SHIFT, huge=frames << LINE_SHIFT >= 1 << 21)
        self._owners = Region(frames) if debug else None
        self.address = self._lines.address
        self.bytes = self._lines.size

    @property
    def owners_address(self) -> int:
        """Address of one byte a frame in debug mode, else 0."""
        return 0 if self._owners is None else self._owners.address

    def owners(self) -> np.ndarray[Any, Any]:
        """The owner of every frame, debug mode only."""
        assert self._owners is not None, "the packet table was made without debug"
        return self._owners.array(self.frames, np.uint8).copy()

    def close(self) -> None:
        """Give the memory back; twice is fine."""
        self._lines.close()
        if self._owners is not None:
            self._owners.close()


class FrameStack:
    """The frame pool of one direction: frames `first` to `first + count - 1`, all free."""

    def __init__(self, table: PacketTable, first: int, count: int, *, frame_shift: int = 0) -> None:
        self._arena = Arena()
        record, frames = self._arena.reserve(size_of(DirectionPool)), self._arena.reserve(FREE_BYTES * count)
        base = self._arena.open()
        self.address = base + record
        self.view = record_view(DirectionPool, self.address)
        self.view.frames = base + frames
        self.view.count = self.view.capacity = count
        self.view.base = first
        self.view.frame_shift = frame_shift
        self.view.owners = table.owners_address
        # The first frames on top: they are the ones handed out first.
        array_at(base + frames, count, np.uint32)[:] = np.arange(first + count - 1, first - 1, -1, dtype=np.uint32)

    def close(self) -> None:
        """Give the memory back; twice is fine."""
        self._arena.close()
