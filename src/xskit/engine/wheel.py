"""The store of a stage that may reorder: a timing wheel of one level.

    tick = 2**shift ns, one bucket a tick, `buckets` of them (a power of two)

      bitmap   1 bit a bucket: something is in it         summary   1 bit a word of the bitmap
      tails    handle of the last packet in each bucket; its `next` is the first one, so a bucket is a ring

    push: append to the bucket's ring                   O(1), touches the packet and the bucket's last packet
    pop:  take the first of the earliest bucket         O(1), the next bucket is found by the bitmaps

Packets leave in the order of their ticks and, inside a tick, in the order in which they came; each keeps its exact
time. There is no second level: cascading one stalls for milliseconds. The wheel spans `buckets` ticks; a delay that
would not fit is refused before it gets here (see `ticks_for`).
"""

from __future__ import annotations

from xskit.engine.packets import INFINITE_NS
from xskit.engine.sizes import LONGEST_HORIZON_NS, MAX_BUCKETS, MIN_SHIFT
from xskit.jit import as_i64, as_u32, i64, inlined, trailing_zeros
from xskit.memory import I64, Record, record_at
from xskit.xsk.path.lines import packet_line

EMPTY = 1 << 62
"""`first` of an empty wheel."""


class Wheel(Record):
    """One wheel; bucket numbers are absolute ticks, masked where they index."""

    tails: I64  # address of u32 a bucket
    bitmap: I64  # address of u64 words
    summary: I64  # address of u64 words
    mask: I64  # buckets - 1
    shift: I64  # log2 of the tick in ns
    first: I64  # the earliest bucket in use, EMPTY when none is
    now: I64  # packets never go into a bucket before this one
    count: I64


wheel_at = record_at(Wheel)


def ticks_for(horizon_ns: int) -> tuple[int, int]:
    """(buckets, shift) of the finest wheel of at most MAX_BUCKETS that spans a horizon."""
    assert horizon_ns <= LONGEST_HORIZON_NS, "settings that need more are refused"
    shift = MIN_SHIFT
    while (horizon_ns >> shift) + 2 > MAX_BUCKETS:
        shift += 1
    buckets = 4096
    while buckets < (horizon_ns >> shift) + 2:
        buckets *= 2
    return buckets, shift


def memory_for(buckets: int) -> int:
    """Bytes of tails, bitmap and summary."""
    return buckets * 4 + buckets // 8 + max(buckets // 512, 8)


def place(wheel: Wheel, address: int, buckets: int, shift: int) -> None:
    """Lay an empty wheel into zeroed memory of `memory_for(buckets)` bytes."""
    wheel.tails = address
    wheel.bitmap = address + buckets * 4
    wheel.summary = wheel.bitmap + buckets // 8
    wheel.mask = buckets - 1
    wheel.shift = shift
    wheel.first = EMPTY
    wheel.now = 0
    wheel.count = 0


@inlined
def push(wheel: Wheel, table: int, time_ns: int, handle: int) -> None:
    """Store a packet until its time."""
    bucket = max(time_ns >> wheel.shift, wheel.now)
    if wheel.count == 0:
        wheel.first = bucket
    else:
        bucket = min(bucket, min(wheel.first, bucket) + wheel.mask)
        wheel.first = min(wheel.first, bucket)
    index = bucket & wheel.mask
    tails = as_u32(wheel.tails)
    packet = packet_line(table, handle)
    packet.time_ns = time_ns
    word = as_i64(wheel.bitmap + ((index >> 6) << 3))
    bit = 1 << (index & 63)
    if word[0] & bit:
        last = packet_line(table, tails[index])
        packet.next = last.next
        last.next = handle
    else:
        packet.next = handle
        word[0] |= bit
        as_i64(wheel.summary + ((index >> 12) << 3))[0] |= 1 << ((index >> 6) & 63)
    tails[index] = handle
    wheel.count += 1


@inlined
def next_time(wheel: Wheel) -> int:
    """When the first packet may be popped: the end of its tick; INFINITE_NS when there is none."""
    if wheel.count == 0:
        return INFINITE_NS
    return (wheel.first + 1) << wheel.shift


@inlined
def floor_time(wheel: Wheel) -> int:
    """No packet inside has an earlier time: the beginning of the first one's tick; INFINITE_NS when there is none."""
    if wheel.count == 0:
        return INFINITE_NS
    return wheel.first << wheel.shift


@inlined
def span(wheel: Wheel) -> int:
    """How far ahead of the clock a packet's time may lie."""
    return (wheel.mask - 1) << wheel.shift


@inlined
def pop(wheel: Wheel, table: int) -> int:
    """Take the first packet; there must be one. Its line keeps the exact time."""
    index = wheel.first & wheel.mask
    tails = as_u32(wheel.tails)
    tail = i64(tails[index])
    last = packet_line(table, tail)
    handle = i64(last.next)
    wheel.count -= 1
    wheel.now = wheel.first
    if handle != tail:
        last.next = packet_line(table, handle).next
        return handle
    word = as_i64(wheel.bitmap + ((index >> 6) << 3))
    word[0] &= ~(1 << (index & 63))
    if word[0] == 0:
        as_i64(wheel.summary + ((index >> 12) << 3))[0] &= ~(1 << ((index >> 6) & 63))
    wheel.first = _following(wheel, wheel.first + 1) if wheel.count > 0 else EMPTY
    return handle


@inlined
def _following(wheel: Wheel, bucket: int) -> int:
    """The first bucket in use from `bucket` on; there must be one within a turn."""
    index = bucket & wheel.mask
    word = as_i64(wheel.bitmap + ((index >> 6) << 3))[0] & (-1 << (index & 63))
    if word != 0:
        return bucket - (index & 63) + trailing_zeros(word)
    words = (wheel.mask + 1) >> 6
    position = (index >> 6) + 1
    if position == words:
        position = 0
    chunk = as_i64(wheel.summary + ((position >> 6) << 3))[0] & (-1 << (position & 63))
    while chunk == 0:
        position = ((position >> 6) + 1) << 6
        if position >= words:
            position = 0
        chunk = as_i64(wheel.summary + ((position >> 6) << 3))[0]
    position = (position & ~63) + trailing_zeros(chunk)
    found = (position << 6) + trailing_zeros(as_i64(wheel.bitmap + (position << 3))[0])
    return bucket + ((found - index) & wheel.mask)


__all__ = [
    "EMPTY",
    "Wheel",
    "floor_time",
    "memory_for",
    "next_time",
    "place",
    "pop",
    "push",
    "span",
    "ticks_for",
    "wheel_at",
]
