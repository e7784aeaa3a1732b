"""Sending: packets that lie ready, numbered and timed where that is asked for, at a pace or as fast as it goes."""

from __future__ import annotations

from xskit.bench.loops.records import BenchQueue, Source, source_at
from xskit.engine.clock import read_any_clock, read_clock
from xskit.jit import as_u32, i64, inlined
from xskit.xsk.path.books import books_at, count_in
from xskit.xsk.path.lines import packet_line
from xskit.xsk.path.pool import FREE, memory_at, pool_at, take_frame
from xskit.xsk.path.rings import ring_at, room
from xskit.xsk.path.transmit import Transmitter, kick, reap, submit, transmitter_at, write_packet


@inlined
def regain(transmitter: Transmitter) -> None:
    """What the kernel has left in TX it is to take now; what it has sent comes home."""
    if transmitter.outstanding > 0:
        kick(transmitter)
        reap(transmitter)


@inlined
def send(queue: BenchQueue, scratch: int) -> int:
    """One batch out of a queue's source; returns how many packets."""
    source, transmitter = source_at(queue.source), transmitter_at(queue.transmitter)
    regain(transmitter)
    if source.halt or source.left == 0:
        return 0
    if source.cycle_ns > 0 and not is_due(source, read_clock(scratch)):
        return 0
    count = min(queue.batch, pool_at(source.pool).count, source.left)
    count = room(ring_at(transmitter.tx), count * source.frames) // source.frames
    if count > 0:
        put(source, transmitter, count, scratch)
        kick(transmitter)
        reap(transmitter)
    return count


@inlined
def is_due(source: Source, now_ns: int) -> bool:
    """Whether the next cycle has begun; how late that is seen is counted."""
    if now_ns < source.due_ns:
        return False
    if source.due_ns > 0:
        late_ns = now_ns - source.due_ns
        source.late_min_ns = late_ns if source.cycles == 0 else min(source.late_min_ns, late_ns)
        source.late_max_ns = max(source.late_max_ns, late_ns)
        source.late_sum_ns += late_ns
        source.cycles += 1
        source.due_ns += source.cycle_ns
    else:
        source.due_ns = now_ns + source.cycle_ns
    return True


@inlined
def put(source: Source, transmitter: Transmitter, count: int, scratch: int) -> None:
    """Hand over `count` packets; they lie ready, and TX has room for them."""
    pool, tx = pool_at(source.pool), ring_at(transmitter.tx)
    table = memory_at(transmitter.memory).table
    offset = source.stamp_offset
    time_ns = read_any_clock(source.clock, scratch) if offset > 0 else i64(0)
    descriptors = i64(0)
    for number in range(count):
        handle = take_frame(pool)
        if offset > 0:
            stamp(packet_line(table, handle).address + offset, source.sequence + number, time_ns)
        descriptors = write_packet(transmitter, tx, descriptors, handle, FREE)
    source.sequence += count
    source.left -= count
    count_in(books_at(pool.books), count, descriptors, count * source.length)
    submit(transmitter, tx, descriptors, count)


@inlined
def swapped(value: int) -> int:
    """A 32-bit word between host and network byte order."""
    low = ((value >> 24) & 0xFF) | ((value >> 8) & 0xFF00)
    return low | ((value & 0xFF00) << 8) | ((value & 0xFF) << 24)


@inlined
def stamp(address: int, sequence: int, time_ns: int) -> None:
    """The number and the time of struct pktgen_hdr, behind its magic number (net/core/pktgen.c)."""
    words = as_u32(address)
    words[1] = swapped(sequence)
    words[2] = swapped(time_ns // 1_000_000_000)
    words[3] = swapped(time_ns % 1_000_000_000 // 1000)
