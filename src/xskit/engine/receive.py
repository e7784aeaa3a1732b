"""A direction's batch: packets admitted or dropped, stamped; and FILL kept full."""

from __future__ import annotations

from xskit.engine.checksum import FINISHED, LEFT, finish_checksum
from xskit.engine.packets import Counters, DropCause, counters_at
from xskit.engine.pipe import pipe_at
from xskit.engine.records import BATCH, Direction, direction_at
from xskit.engine.sums import word
from xskit.jit import compiled, i64, inlined, unlikely
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
    """Fill the batch from all ingress queues, each in its turn first; returns how many packets came.

    Their times are the kernel's stamps, 0 where there is none: `admit` settles them when the clock was read.
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
    return found


@inlined
def fits_tagged(direction: Direction, packet: PacketLine, length: int) -> bool:
    """Whether a packet is short enough without its outer VLAN tag, and can be sent with the tag beside it."""
    if length > direction.tagged_length or i64(packet.span) < 18:
        return False
    return word(packet.address + 12) in (0x8100, 0x88A8)


@inlined
def refusal(direction: Direction, packet: PacketLine, length: int, inside: int) -> int:
    """Why a packet cannot be let in beside `inside` frames: a drop cause, or 0."""
    if length > direction.max_length and not fits_tagged(direction, packet, length):
        return SUPER_PACKET if length > direction.wire_length else EGRESS_MTU
    if i64(packet.frames) > direction.max_frames:
        return TOO_MANY_FRAGMENTS
    if inside + i64(packet.frames) > direction.capacity_frames:
        return MEMORY_FULL
    return 0


@inlined
def admit(direction: Direction, found: int, now_ns: int) -> int:
    """Let the packets of the batch in, or drop them; returns how many are left, in the batch's first entries.

    Arrival times are the kernel's stamps, but never before the watermark nor before one another: the loop has usually
    looked past a stamp by a microsecond or two when the packet shows up in RX. What had to be moved is counted. A stamp
    from the future, or none, is the time of the batch.
    """
    counters = counters_at(direction.counters)
    table = direction.table
    floor_ns = pipe_at(direction.block).watermark_ns
    inside = counters.in_flight_frames
    admitted = total = i64(0)
    for number in range(found):
        arrival = arrival_at(direction.rx_batch + number * ARRIVAL_BYTES)
        handle, length, time_ns = i64(arrival.handle), i64(arrival.length), i64(arrival.time_ns)
        total += length
        packet = packet_line(table, handle)
        cause = refusal(direction, packet, length, inside)
        if unlikely(cause != 0):
            count_drop(counters, cause, length)
            give_packet(memory_at(direction.memory), handle)
            continue
        inside += i64(packet.frames)
        if unlikely(direction.finish_checksums != 0):
            count_checksum(counters, finish_checksum(table, handle))
        if unlikely(time_ns <= 0 or time_ns > now_ns):
            counters.unstamped += 1
            time_ns = now_ns
        packet.arrived_ns = time_ns
        if time_ns < floor_ns:
            counters.clamped += 1
            counters.clamped_ns = max(counters.clamped_ns, floor_ns - time_ns)
            if floor_ns - time_ns > direction.late_limit_ns:
                direction.moved_late += 1
            time_ns = floor_ns
        floor_ns = time_ns
        entry = arrival_at(direction.rx_batch + admitted * ARRIVAL_BYTES)
        entry.time_ns = time_ns
        entry.handle = handle
        entry.length = length
        admitted += 1
    counters.received += found
    counters.received_bytes += total
    counters.in_flight += found
    counters.in_flight_bytes += total
    counters.in_flight_frames = inside
    counters.peak_frames = max(counters.peak_frames, inside)
    return admitted


@inlined
def count_checksum(counters: Counters, answer: int) -> None:
    """Note what `finish_checksum` did."""
    if answer == FINISHED:
        counters.checksums += 1
    elif answer == LEFT:
        counters.unfinished += 1


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
