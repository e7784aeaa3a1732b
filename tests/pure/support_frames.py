"""Frames and packets that nobody received: moved from owner to owner by hand."""

from __future__ import annotations

import numpy as np

from xskit.jit import compiled
from xskit.xsk.batch import Drafts
from xskit.xsk.packet import Packet
from xskit.xsk.path.lines import packet_line
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import FREE, give_frame, memory_at, move, pool_at, take_frame
from xskit.xsk.path.table import FramePool
from xskit.xsk.umem import Umem


@compiled("int64(int64, int64)")
def _take(address: int, target: int) -> int:
    pool = pool_at(address)
    if pool.count == 0:
        return -1
    frame = take_frame(pool)
    move(pool, packet_line(memory_at(pool.memory).table, frame), frame, FREE, target)
    return frame


@compiled("int64(int64, int64, int64, int64)")
def _move(address: int, frame: int, origin: int, target: int) -> int:
    pool = pool_at(address)
    if not move(pool, packet_line(memory_at(pool.memory).table, frame), frame, origin, target):
        return 0
    if target == FREE:
        give_frame(pool, frame)
    return 1


def take(pool: FramePool, count: int, target: Owner) -> list[int]:
    """At most so many free frames go to an owner."""
    frames = [_take(pool.address, target) for _ in range(count)]
    return [frame for frame in frames if frame >= 0]


def moves(pool: FramePool, frame: int, origin: Owner, target: Owner) -> bool:
    """A frame goes from one owner to another; False where it was elsewhere."""
    return bool(_move(pool.address, frame, origin, target))


def held_packet(umem: Umem, *spans: int) -> Packet:
    """A packet in as many frames as there are spans, with bytes that tell their place."""
    batch = Drafts(umem).make(np.array(spans))
    rows = batch.rows
    handles, lines = rows["handle"], umem.table.lines
    lines["fragment"][handles[:-1]] = handles[1:]
    lines["frames"][handles[0]], lines["length"][handles[0]] = len(spans), sum(spans)
    rows["frames"][0], rows["length"][0] = len(spans), sum(spans)
    value = 0
    for address, span in zip(rows["address"].tolist(), spans, strict=True):
        umem.view(address, span)[:] = bytes((value + number) % 251 for number in range(span))
        value += span
    return batch[0]
