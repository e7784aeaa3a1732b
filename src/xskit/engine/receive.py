"""A direction's batch: packets admitted or dropped, stamped; and FILL kept full."""

from __future__ import annotations

from xskit.engine.checksum import FINISHED, LEFT, finish_checksum
from xskit.engine.packets import Counters, DropCause, counters_at
from xskit.engine.pipe import pipe_at
from xskit.engine.records import BATCH, Direction, direction_at
from xskit.engine.sums import word
from xskit.jit import compiled, i64, inlined
from xskit.xsk.path.books import count_drop
from xskit.xsk.path.lines import PacketLine, packet_line
from xskit.xsk.path.pool import give_packet, memory_at, pool_at
from xskit.xsk.path.receive import ARRIVAL_BYTES, RECEIVER_BYTES, arrival_at, receive, receiver_at, refill, wake

EGRESS_MTU = int(DropCause.EGRESS_MTU)
MEMORY_FULL = int(DropCause.MEMORY_FULL)
SUPER_PACKET = int(DropCause.SUPER_PACKET)
TOO_MANY_FRAGMENTS = int(DropCause.TOO_MANY_FRAGMENTS)
UNADMITTED = (MEMORY_FULL, SUPER_PACKET, TOO_MANY_FRAGMENTS, EGRESS_MTU)
"""Causes of drops in `admit`: such packets never meet a stage."""


@inlined
def gather(direction: Direction) -> int:
    """Fill the batch from all ingress queues, each in its turn first; returns how many packets were admitted.

    Times are left at the kernel's stamp, 0 where there is none: `stamp` settles them when the clock was read.
    """
    found = i64(0)
    queue = direction.rotate
    for _ in range(direction.ingress_count):
        found = receive(receiver_at(direction.ingress + queue * RECEIVER_BYTES), direction.rx_batch, found, BATCH)
        queue += 1
        if queue == direction.ingress_count:
            queue = 0
    direction.rotate += 1
    if direction.rotate == direction.ingress_count:
        direction.rotate = 0
    admitted = i64(0)
    counters = counters_at(direction.counters)
    for number in range(found):
        admitted += admit(direction, counters, number, admitted)
    return admitted


@inlined
def fits_tagged(direction: Direction, packet: PacketLine, length: int) -> bool:
    """Whether a packet is short enough without its outer VLAN tag, and can be sent with the tag beside it."""
    if length > direction.tagged_length or i64(packet.span) < 18:
        return False
    return word(packet.address + 12) in (0x8100, 0x88A8)


@inlined
def admit(direction: Direction, counters: Counters, number: int, place: int) -> int:
    """Let entry `number` of the batch in, as entry `place`, and return 1; or drop it, and return 0."""
    arrival = arrival_at(direction.rx_batch + number * ARRIVAL_BYTES)
    handle, length = i64(arrival.handle), i64(arrival.length)
    packet = packet_line(direction.table, handle)
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
        give_packet(memory_at(direction.memory), handle)
        return 0
    counters.in_flight_frames += frames
    counters.peak_frames = max(counters.peak_frames, counters.in_flight_frames)
    if place < number:
        moved = arrival_at(direction.rx_batch + place * ARRIVAL_BYTES)
        moved.time_ns = arrival.time_ns
        moved.handle = handle
        moved.length = length
    if direction.finish_checksums:
        answer = finish_checksum(direction.table, handle)
        if answer == FINISHED:
            counters.checksums += 1
        elif answer == LEFT:
            counters.unfinished += 1
    return 1


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
def refill_all(direction: Direction) -> None:
    """Keep every FILL ring as full as possible."""
    for number in range(direction.ingress_count):
        receiver = receiver_at(direction.ingress + number * RECEIVER_BYTES)
        refill(receiver)
        if receiver.obeys:
            wake(receiver, 0)


@compiled("int64(int64)")
def fill_direction(address: int) -> int:
    """Fill the FILL rings of the Direction at an address, from Python; returns the frames left in the pool."""
    direction = direction_at(address)
    refill_all(direction)
    return pool_at(direction.pool).count
