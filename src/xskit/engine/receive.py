"""From RX into a batch: packets of one or several frames, stamped, admitted or dropped; and FILL kept full."""

from __future__ import annotations

from xskit.engine.checksum import FINISHED, LEFT, finish_checksum
from xskit.engine.clock import kick_receive
from xskit.engine.packets import (
    FILL,
    FREE,
    HELD,
    NIL,
    DropCause,
    PacketLine,
    count_drop,
    counters_at,
    give_packet,
    move,
    packet_line,
    pool_at,
    take_frame,
)
from xskit.engine.pipe import pipe_at
from xskit.engine.records import ARRIVAL_BYTES, BATCH, Direction, Ingress, arrival_at, direction_at, ingress_at
from xskit.engine.sums import word
from xskit.jit import as_i64, compiled, i64, inlined
from xskit.memory import offset_of, size_of
from xskit.xsk.rings import (
    available,
    descriptor_address,
    descriptor_tail,
    needs_wakeup,
    publish,
    release,
    ring_at,
    room,
    write_address,
)

INGRESS_BYTES = size_of(Ingress)
INGRESS_RX = offset_of(Ingress, "rx")
EGRESS_MTU = int(DropCause.EGRESS_MTU)
MEMORY_FULL = int(DropCause.MEMORY_FULL)
SUPER_PACKET = int(DropCause.SUPER_PACKET)
TOO_MANY_FRAGMENTS = int(DropCause.TOO_MANY_FRAGMENTS)
UNADMITTED = (MEMORY_FULL, SUPER_PACKET, TOO_MANY_FRAGMENTS, EGRESS_MTU)
"""Causes of drops in `admit`: such packets never meet a stage."""


@inlined
def receive(direction: Direction, count: int, ingress: Ingress) -> int:
    """Read a queue's RX ring into the batch from entry `count` on; returns the new count.

    Times are left at the kernel's stamp, 0 where there is none: `stamp` settles them when the clock was read.
    """
    rx = ring_at(ingress.rx)
    ready = available(rx, BATCH - count)
    if ready == 0:
        return count
    pool = pool_at(direction.pool)
    shift = direction.frame_shift
    for number in range(ready):
        address = descriptor_address(rx, number)
        tail = descriptor_tail(rx, number)
        span = tail & 0xFFFF_FFFF
        frame = address >> shift
        packet = packet_line(direction.table, frame)
        packet.address = direction.base + address
        packet.span = span
        packet.fragment = NIL
        move(pool, frame, FILL, HELD)
        continues = (tail >> 32) & 1
        if ingress.head == NIL:
            packet.length = span
            packet.frames = 1
            if continues:
                ingress.head = frame
                ingress.tail = frame
                continue
            head = frame
        else:
            head = ingress.head
            whole = packet_line(direction.table, head)
            whole.length += span
            whole.frames += 1
            packet_line(direction.table, ingress.tail).fragment = frame
            ingress.tail = frame
            if continues:
                continue
            ingress.head = NIL
        count = admit(direction, ingress, count, head)
    release(rx, ready)
    return count


@inlined
def fits_tagged(direction: Direction, packet: PacketLine, length: int) -> bool:
    """Whether a packet is short enough without its outer VLAN tag, and can be sent with the tag beside it."""
    if length > direction.tagged_length or i64(packet.span) < 18:
        return False
    return word(packet.address + 12) in (0x8100, 0x88A8)


@inlined
def admit(direction: Direction, ingress: Ingress, count: int, handle: int) -> int:
    """Take a complete packet into the batch, or drop it; returns the new count."""
    counters = counters_at(direction.counters)
    packet = packet_line(direction.table, handle)
    length = i64(packet.length)
    frames = i64(packet.frames)
    counters.received += 1
    counters.received_bytes += length
    counters.in_flight += 1
    counters.in_flight_bytes += length
    cause = 0
    if length > direction.max_length and not fits_tagged(direction, packet, length):
        cause = SUPER_PACKET if length > direction.wire_length else EGRESS_MTU
    elif frames > direction.max_frames:
        cause = TOO_MANY_FRAGMENTS
    elif counters.in_flight_frames + frames > direction.capacity_frames:
        cause = MEMORY_FULL
    if cause != 0:
        count_drop(counters, cause, length)
        give_packet(pool_at(direction.pool), direction.table, handle)
        return count
    counters.in_flight_frames += frames
    counters.peak_frames = max(counters.peak_frames, counters.in_flight_frames)
    packet.egress = 0
    arrival = arrival_at(direction.rx_batch + count * ARRIVAL_BYTES)
    arrival.handle = handle
    arrival.length = length
    arrival.time_ns = 0
    if ingress.stamped:
        stamp = as_i64(packet.address - 8)
        arrival.time_ns = stamp[0]
        stamp[0] = 0
    if ingress.finish_checksums:
        answer = finish_checksum(direction.table, handle)
        if answer == FINISHED:
            counters.checksums += 1
        elif answer == LEFT:
            counters.unfinished += 1
    return count + 1


@inlined
def stamp(direction: Direction, count: int, now_ns: int) -> None:
    """Settle the arrival times of a batch: the kernel's stamps, but never before the watermark nor before one another.

    The loop has usually looked past a stamp by a microsecond or two when the packet shows up in RX; what had to be
    moved is counted. A stamp from the future, or none, is the time of the batch.
    """
    counters = counters_at(direction.counters)
    floor = pipe_at(direction.block).watermark_ns
    for number in range(count):
        arrival = arrival_at(direction.rx_batch + number * ARRIVAL_BYTES)
        time_ns = arrival.time_ns
        if time_ns <= 0 or time_ns > now_ns:
            counters.unstamped += 1
            time_ns = now_ns
        packet_line(direction.table, arrival.handle).arrived_ns = time_ns
        if time_ns < floor:
            counters.clamped += 1
            counters.clamped_ns = max(counters.clamped_ns, floor - time_ns)
            if floor - time_ns > direction.late_limit_ns:
                direction.moved_late += 1
            time_ns = floor
        floor = time_ns
        arrival.time_ns = time_ns


@inlined
def refill(direction: Direction) -> None:
    """Keep every FILL ring as full as possible; never wait for it to move."""
    pool = pool_at(direction.pool)
    for number in range(direction.ingress_count):
        ingress = ingress_at(direction.ingress + number * INGRESS_BYTES)
        fill = ring_at(ingress.fill)
        if pool.count > 0:
            count = room(fill, pool.count)
            for entry in range(count):
                frame = take_frame(pool)
                move(pool, frame, FREE, FILL)
                write_address(fill, entry, frame << direction.frame_shift)
            if count > 0:
                publish(fill, count)
        if ingress.kick and needs_wakeup(fill):
            kick_receive(ingress.fd)


@compiled("int64(int64)")
def fill_direction(address: int) -> int:
    """Fill the FILL rings of the Direction at an address, from Python; returns the frames left in the pool."""
    direction = direction_at(address)
    refill(direction)
    return pool_at(direction.pool).count
