"""Sending: kicks, completions, and packets that lie ready."""

from __future__ import annotations

from xskit.bench.loops.records import BenchQueue, Source, source_at
from xskit.bench.loops.rounds import read_any_clock
from xskit.engine.clock import read_clock
from xskit.jit import as_u8, as_u32, i64, inlined
from xskit.xsk.path.calls import EBUSY, ENETDOWN, ENODEV, ENXIO, kick_transmit
from xskit.xsk.path.rings import (
    available,
    needs_wakeup,
    publish,
    read_address,
    release,
    ring_at,
    room,
    unconsumed,
    write_address,
    write_descriptor,
)

KICKS = 4096
"""System calls in a row at most."""

OFFSET_SHIFT = 48
ADDRESS_MASK = (1 << OFFSET_SHIFT) - 1
"""Unaligned mode has the offset in the frame in the bits above (include/uapi/linux/if_xdp.h)."""


@inlined
def frame_mask(queue: BenchQueue) -> int:
    """What is left of an address when it goes back into FILL. In aligned mode the kernel itself cuts off the offset."""
    return i64(ADDRESS_MASK) if queue.unaligned else i64(-1)


@inlined
def packet_at(queue: BenchQueue, address: int) -> int:
    """Where in this process the bytes of a descriptor are."""
    if queue.unaligned:
        return queue.base + (address & ADDRESS_MASK) + (address >> OFFSET_SHIFT)
    return queue.base + address


@inlined
def frame_of(queue: BenchQueue, address: int) -> int:
    """The number of the frame."""
    if queue.unaligned:
        return (address & ADDRESS_MASK) // queue.frame_bytes
    return address // queue.frame_bytes


@inlined
def kick(queue: BenchQueue) -> None:
    """Make the kernel take what lies in TX, where it says that it needs to be told."""
    tx = ring_at(queue.tx)
    queue.down = 0
    for _ in range(KICKS):
        left = unconsumed(tx)
        if left == 0 or not (queue.wake_always or needs_wakeup(tx)):
            return
        code = kick_transmit(queue.fd)
        if queue.zero_copy:
            queue.wakeups += 1
            return
        queue.copy_kicks += 1
        if code == EBUSY:
            queue.refused += 1
        elif code in (ENETDOWN, ENXIO, ENODEV):
            queue.down = code
            return
        if unconsumed(tx) == left:
            return


@inlined
def collect(queue: BenchQueue, home: BenchQueue) -> int:
    """Frames that were sent go into the FILL ring of the queue they came from; returns how many came."""
    if queue.outstanding == 0:
        return 0
    kick(queue)
    completion = ring_at(queue.completion)
    done = available(completion, queue.outstanding)
    if done == 0:
        return 0
    fill = ring_at(home.fill)
    free = room(fill, done)
    if free < done:
        home.fill_fails += 1
        done = free
    packets = done
    if queue.last != 0:
        packets = 0
        for number in range(done):
            packets += i64(as_u8(queue.last)[frame_of(queue, read_address(completion, number))])
    keep = frame_mask(queue)
    for number in range(done):
        write_address(fill, number, read_address(completion, number) & keep)
    publish(fill, done)
    release(completion, done)
    queue.outstanding -= done
    queue.completed += packets
    return done


@inlined
def regain(queue: BenchQueue, source: Source) -> int:
    """Slots whose last frame was completed are free again; returns how many."""
    if queue.outstanding == 0:
        return 0
    completion = ring_at(queue.completion)
    done = available(completion, queue.outstanding)
    if done == 0:
        return 0
    slots = as_u32(source.slots)
    free = source.slot_count
    frames = source.slot_frames
    for number in range(done):
        frame = read_address(completion, number) // queue.frame_bytes
        if frames == 1:
            slots[free] = frame
            free += 1
        elif frame % frames == frames - 1:
            slots[free] = frame // frames
            free += 1
    queue.completed += free - source.slot_count
    source.slot_count = free
    release(completion, done)
    queue.outstanding -= done
    return done


@inlined
def send(queue: BenchQueue, scratch: int) -> int:
    """One batch out of a queue's source; returns how many packets."""
    source = source_at(queue.source)
    if queue.outstanding > 0:
        kick(queue)
        regain(queue, source)
    if source.halt or source.left == 0:
        return 0
    if source.cycle_ns > 0 and not is_due(source, read_clock(scratch)):
        return 0
    count = min(queue.batch, source.slot_count, source.left)
    tx = ring_at(queue.tx)
    frames = source.slot_frames
    count = room(tx, count) if frames == 1 else room(tx, count * frames) // frames
    if count > 0:
        put(queue, source, count, scratch)
        kick(queue)
        regain(queue, source)
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
def put(queue: BenchQueue, source: Source, count: int, scratch: int) -> None:
    """Write `count` packets into TX; the room is there."""
    tx = ring_at(queue.tx)
    slots = as_u32(source.slots)
    frames = source.slot_frames
    time_ns = i64(0)
    if source.stamp_offset > 0:
        time_ns = read_any_clock(source.clock, scratch)
    entry = i64(0)
    for number in range(count):
        slot = i64(slots[source.slot_count - 1 - number])
        address = slot * frames * queue.frame_bytes
        if source.stamp_offset > 0:
            stamp(queue.base + address + source.stamp_offset, source.sequence + number, time_ns)
        for _ in range(frames - 1):
            write_descriptor(tx, entry, address, source.span, 1)
            address += queue.frame_bytes
            entry += 1
        write_descriptor(tx, entry, address, source.last_span, 0)
        entry += 1
    publish(tx, entry)
    source.slot_count -= count
    source.sequence += count
    source.left -= count
    queue.outstanding += entry
    queue.submitted += count
    queue.submitted_bytes += count * source.length


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
