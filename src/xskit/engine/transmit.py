"""From the exit FIFO into TX: what is due leaves, and is timed; what cannot leave is dropped.

A packet that fits only with its outer VLAN tag beside it (skb->vlan_tci) leaves by a packet socket, when TX is empty:
AF_XDP cannot send it so.
"""

from __future__ import annotations

from xskit.engine.clock import read_clock
from xskit.engine.fifo import count as fifo_count
from xskit.engine.fifo import drop_head, head_packet, packet_at_position
from xskit.engine.histogram import add
from xskit.engine.packets import DropCause, counters_at
from xskit.engine.records import BATCH, EGRESS_BYTES, Direction, Egress, Exit, egress_at
from xskit.jit import as_i64, i64, inlined
from xskit.xsk.path.books import TX_REFUSED, count_drop
from xskit.xsk.path.calls import ENETDOWN, send_message
from xskit.xsk.path.lines import NIL, packet_line
from xskit.xsk.path.pool import give_packet, memory_at
from xskit.xsk.path.rings import ring_at, room, unconsumed
from xskit.xsk.path.transmit import collect, kick, submit, write_packet

PORT_DOWN = int(DropCause.PORT_DOWN)
TAG_BYTES = 4
"""Of a VLAN tag."""
MESSAGE_HEAD_BYTES, VECTOR_BYTES, MOST_VECTORS = 56, 16, 18
MESSAGE_BYTES = MESSAGE_HEAD_BYTES + VECTOR_BYTES * MOST_VECTORS
"""struct msghdr on a machine of 64 bits, and a struct iovec for each frame."""


@inlined
def transmit(direction: Direction, leaving: Exit, scratch: int) -> int:
    """Send what is due at an exit, one batch at most; returns how many packets were taken out."""
    waiting = min(fifo_count(leaving), BATCH)
    if waiting == 0:
        return 0
    egress = egress_at(leaving.egress)
    if egress.down and egress.outstanding > 0:  # `collect` tries with what lies in TX; with nothing there, we try
        return discard_due(direction, leaving, waiting)
    tx = ring_at(egress.tx)
    first = leaving.head
    descriptors = i64(0)
    packets = i64(0)
    taken = 0
    free = room(tx, BATCH * direction.max_frames)
    while taken < waiting:
        handle = packet_at_position(leaving, first + taken) & 0xFFFF_FFFF
        line = packet_line(direction.table, handle)
        if descriptors + i64(line.frames) > free:
            break
        if i64(line.length) > direction.max_length:  # admitted, to be sent with its tag beside it
            if taken == 0:
                return transmit_tagged(direction, leaving, egress, handle, scratch)
            break
        written = write_packet(egress, tx, descriptors, handle)
        packets += written > descriptors
        descriptors = written
        taken += 1
    if taken == 0:
        return 0
    leaving.head = first + taken
    submit(egress, tx, descriptors, packets)
    kick(egress)
    record_times(direction, leaving, first, taken, read_clock(scratch))
    return taken


@inlined
def transmit_tagged(direction: Direction, leaving: Exit, egress: Egress, handle: int, scratch: int) -> int:
    """Send the next packet by the packet socket; returns 1, or 0 while an earlier packet is in TX."""
    if unconsumed(ring_at(egress.tx)) != 0:
        return 0
    head = as_i64(egress.message)
    vectors = egress.message + MESSAGE_HEAD_BYTES
    count = i64(0)
    frame = handle
    while frame != NIL:
        part = packet_line(direction.table, frame)
        vector = as_i64(vectors + count * VECTOR_BYTES)
        vector[0], vector[1] = part.address, i64(part.span)
        frame = i64(part.fragment)
        count += 1
    head[2], head[3] = vectors, count
    code = send_message(egress.tagged_fd, egress.message)
    first = leaving.head
    drop_head(leaving)
    record_times(direction, leaving, first, i64(1), read_clock(scratch))
    counters = counters_at(direction.counters)
    length = i64(packet_line(direction.table, handle).length)
    counters.in_flight_frames -= give_packet(memory_at(direction.memory), handle)
    if code != 0:
        count_drop(counters, PORT_DOWN if code == ENETDOWN else TX_REFUSED, length)
    else:
        counters.sent += 1
        counters.sent_bytes += length
        counters.in_flight -= 1
        counters.in_flight_bytes -= length
    return 1


@inlined
def record_times(direction: Direction, leaving: Exit, first: int, taken: int, now_ns: int) -> None:
    """After sendto returned: how late each packet is, and how long it was inside."""
    for position in range(first, first + taken):
        entry = as_i64(leaving.entries + ((position & leaving.mask) << 4))
        late_ns = now_ns - entry[0]
        add(direction.lateness, late_ns)
        arrived_ns = packet_line(direction.table, entry[1] & 0xFFFF_FFFF).arrived_ns
        limit_ns = direction.late_limit_ns
        if arrived_ns >= direction.since_ns:
            add(direction.owd, now_ns - arrived_ns - direction.owd_base_ns)
        else:
            limit_ns = direction.earlier_limit_ns
        if late_ns > limit_ns:
            direction.late += 1


@inlined
def discard_due(direction: Direction, leaving: Exit, waiting: int) -> int:
    """The port cannot send: what is due is lost, as it would be on a cable pulled out."""
    counters = counters_at(direction.counters)
    for _ in range(waiting):
        packet = head_packet(leaving)
        drop_head(leaving)
        count_drop(counters, PORT_DOWN, packet >> 32)
        counters.in_flight_frames -= give_packet(memory_at(direction.memory), packet & 0xFFFF_FFFF)
    return waiting


@inlined
def collect_all(leaving: Exit, now_ns: int) -> int:
    """Reap every queue of an exit, and kick where the kernel left something; returns the frames come home."""
    done = i64(0)
    for number in range(leaving.egress_count):
        done += collect(egress_at(leaving.egress + number * EGRESS_BYTES), now_ns)
    return done
