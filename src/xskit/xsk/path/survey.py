"""Where every frame is at one moment: no call that moves frames is at work meanwhile, in whatever thread.

The kernel goes on. So what comes from it is looked at before what goes to it: no frame is seen twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xskit.jit import as_i64, as_u8, as_u32, compiled, i64, load_acquire32
from xskit.memory import I64, Record, layout, record_at, size_of
from xskit.xsk.path.lines import packet_line
from xskit.xsk.path.pool import free_frame_at, lock, memory_at, pool_at, unlock
from xskit.xsk.path.rings import INDEX_MASK, ring_at

__all__ = ["Survey"]


class Look(Record):
    """One ring, and what lies in it."""

    ring: I64  # address of a Ring
    words: I64  # 64-bit words that an entry has
    entries: I64  # address of as many words as the ring has entries: the first word of each entry
    count: I64


look_at = record_at(Look)
LOOK_BYTES = size_of(Look)


class Survey:
    """What the rings, the packet table and the free stack of a pool say at one moment.

    Args:
        pool: address of a Pool record.
        frames: of the packet memory.
        rings: (address of the Ring record, 64-bit words that an entry has, entries) of each, in the order in which they
            are to be looked at. Callers keep them mapped.

    Attributes:
        entries: of each ring the first words of the entries between its indices.
        owners: of every frame of the packet memory.
        free: the numbers of the free frames; the last one goes out first.
    """

    def __init__(self, pool: int, frames: int, rings: Sequence[tuple[int, int, int]]) -> None:
        looks = np.zeros(len(rings), layout(Look))
        found = [np.zeros(size, np.int64) for _, _, size in rings]
        looks["ring"], looks["words"] = [ring for ring, _, _ in rings], [words for _, words, _ in rings]
        looks["entries"] = [_at(entries) for entries in found]
        self.owners = np.zeros(frames, np.uint8)
        free = np.zeros(frames, np.uint32)
        count = survey(pool, _at(looks), len(rings), _at(self.owners), _at(free))
        self.free = free[:count]
        self.entries = [entries[:seen] for entries, seen in zip(found, looks["count"].tolist(), strict=True)]


@compiled("int64(int64, int64, int64, int64, int64)")
def survey(address: int, looks: int, count: int, owners: int, free: int) -> int:
    """Fill in Look records, the owner of every frame, and the free frames of the Pool at an address; returns how many
    those are."""
    pool = pool_at(address)
    memory = memory_at(pool.memory)
    lock(memory, pool.memory)
    for number in range(count):
        look = look_at(looks + number * LOOK_BYTES)
        ring = ring_at(look.ring)
        size = i64(ring.size)
        if size > 0:
            first = load_acquire32(ring.consumer)
            pending = min((load_acquire32(ring.producer) - first) & INDEX_MASK, size)
            source, target = as_i64(ring.entries), as_i64(look.entries)
            for place in range(pending):
                target[place] = source[((first + place) & ring.mask) * look.words]
            look.count = pending
    said = as_u8(owners)
    for frame in range(memory.frames):
        said[frame] = packet_line(memory.table, frame).owner
    stack = as_u32(free)
    for place in range(pool.count):
        stack[place] = free_frame_at(pool.frames + (place << 2)).frame
    total = pool.count
    unlock(memory, pool.memory)
    return total


def _at(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)
