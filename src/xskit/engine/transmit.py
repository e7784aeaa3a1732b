"""From the exit FIFO into TX, past the kernel, and home through COMPLETION.

What sendto says in copy mode (net/xdp/xsk.c, __xsk_generic_xmit; measured on 6.18):

    0        sent, or it met a descriptor that it threw out: look whether TX is empty, call again if not
    EAGAIN   its budget is used up, or COMPLETION is full: reap, call again
    EBUSY    exactly one packet, the last one consumed, was refused; it is completed all the same
    ENETDOWN the port is down: what lies in TX stays there until it is up
    ENXIO    the port is gone

Before Linux 6.17 (`told_late`) what was taken in a call that ends with EAGAIN or EBUSY stays in TX for us to see: the
call that finds nothing more to take tells it. A packet was refused there, but nobody knows which: the next one that is
completed is counted as it.

In zero copy sendto only wakes the driver, and only when TX says need_wakeup.

A packet that fits only with its outer VLAN tag beside it (skb->vlan_tci) leaves by a packet socket, when TX is empty:
AF_XDP cannot send it so.
"""

from __future__ import annotations

from xskit.engine.clock import (
    EAGAIN,
    EBUSY,
    ENETDOWN,
    ENODEV,
    ENXIO,
    kick_transmit,
    read_clock,
    send_message,
)
from xskit.engine.fifo import count as fifo_count
from xskit.engine.fifo import drop_head, head_packet
from xskit.engine.histogram import add
from xskit.engine.packets import (
    FREE,
    HELD,
    LAST,
    NIL,
    REFUSED,
    TX,
    DropCause,
    count_drop,
    counters_at,
    give_frame,
    give_packet,
    move,
    packet_line,
    pool_at,
)
from xskit.engine.records import BATCH, Direction, Egress, Exit, egress_at
from xskit.jit import as_i64, i64, inlined
from xskit.memory import size_of
from xskit.xsk.rings import (
    INDEX_MASK,
    LEAST_TAKEN,
    Ring,
    available,
    needs_wakeup,
    publish,
    read_address,
    release,
    ring_at,
    room,
    unconsumed,
    write_descriptor,
)

EGRESS_BYTES = size_of(Egress)
TX_REFUSED = int(DropCause.TX_REFUSED)
PORT_DOWN = int(DropCause.PORT_DOWN)
TAG_BYTES = 4
"""Of a VLAN tag."""
MESSAGE_HEAD_BYTES, VECTOR_BYTES, MOST_VECTORS = 56, 16, 18
MESSAGE_BYTES = MESSAGE_HEAD_BYTES + VECTOR_BYTES * MOST_VECTORS
"""struct msghdr on a machine of 64 bits, and a struct iovec for each frame."""
KICKS = 4096
"""System calls for one batch at most; more would mean that the kernel makes no progress."""

RETRY_NS = 100_000
"""How long a queue is left alone between two kicks that brought nothing."""
DOWN_RETRY_NS = 10_000_000
"""The same while the port is down."""


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
    taken = 0
    free = room(tx, BATCH * direction.max_frames)
    while taken < waiting:
        handle = head_packet(leaving) & 0xFFFF_FFFF
        line = packet_line(direction.table, handle)
        if descriptors + i64(line.frames) > free:
            break
        if i64(line.length) > direction.max_length:  # admitted, to be sent with its tag beside it
            if taken == 0:
                return transmit_tagged(direction, leaving, egress, handle, scratch)
            break
        descriptors = write_packet(direction, tx, descriptors, handle)
        drop_head(leaving)
        taken += 1
    if taken == 0:
        return 0
    egress.outstanding += descriptors
    egress.outstanding_packets += taken
    publish(tx, descriptors)
    kick(direction, egress)
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
    counters.in_flight_frames -= give_packet(pool_at(direction.pool), direction.table, handle)
    if code != 0:
        count_drop(counters, PORT_DOWN if code == ENETDOWN else TX_REFUSED, length)
    else:
        counters.sent += 1
        counters.sent_bytes += length
        counters.in_flight -= 1
        counters.in_flight_bytes -= length
    return 1


@inlined
def write_packet(direction: Direction, tx: Ring, descriptors: int, handle: int) -> int:
    """Write a packet's descriptors behind the `descriptors` already written; returns the new number."""
    pool = pool_at(direction.pool)
    frame = handle
    while frame != NIL:
        part = packet_line(direction.table, frame)
        following = i64(part.fragment)
        if following == NIL:  # all that `reap` needs: the first frame may be home, and full again, before the last
            part.length = packet_line(direction.table, handle).length
            part.state = LAST
        else:
            part.state = 0
        options = 0 if following == NIL else 1
        write_descriptor(tx, descriptors, part.address - direction.base, part.span, options)
        move(pool, frame, HELD, TX)
        descriptors += 1
        frame = following
    return descriptors


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
        counters.in_flight_frames -= give_packet(pool_at(direction.pool), direction.table, packet & 0xFFFF_FFFF)
    return waiting


@inlined
def kick(direction: Direction, egress: Egress) -> None:
    """Make the kernel take what lies in TX; what it leaves there is kicked again by `collect`."""
    tx = ring_at(egress.tx)
    egress.down = 0
    idle = i64(0)
    for _ in range(KICKS):
        left = unconsumed(tx)
        if left == 0 or not needs_wakeup(tx):
            return
        code = kick_transmit(egress.fd)
        egress.kicks += 1
        if code in (ENETDOWN, ENXIO, ENODEV):
            egress.down = code
            return
        if egress.zero_copy:
            return
        if code == EBUSY:
            mark_refused(direction, egress)
        elif code == EAGAIN:
            reap(direction, egress)
        if unconsumed(tx) == left:
            if not egress.told_late:
                return
            if code != EBUSY:
                idle += LEAST_TAKEN
                if idle > left:
                    return


@inlined
def collect(direction: Direction, leaving: Exit, now_ns: int) -> int:
    """Reap every queue of an exit, and kick where the kernel left something in TX; returns the frames come home."""
    done = 0
    for number in range(leaving.egress_count):
        egress = egress_at(leaving.egress + number * EGRESS_BYTES)
        if egress.outstanding > 0:
            frames = reap(direction, egress)
            done += frames
            if frames > 0 or egress.progress_ns == 0:
                egress.progress_ns = now_ns
            if egress.outstanding > 0 and now_ns >= egress.retry_ns:
                kick(direction, egress)
                egress.retry_ns = now_ns + (DOWN_RETRY_NS if egress.down else RETRY_NS)
        else:
            egress.progress_ns = 0
    return done


@inlined
def mark_refused(direction: Direction, egress: Egress) -> None:
    """The packet whose last descriptor was just consumed was not sent."""
    if egress.told_late:
        egress.refusals += 1
        return
    tx = ring_at(egress.tx)
    unconsumed(tx)
    position = (tx.remote - 1) & INDEX_MASK
    address = as_i64(tx.entries + ((position & tx.mask) << 4))[0]
    packet_line(direction.table, address >> direction.frame_shift).state |= REFUSED


@inlined
def reap(direction: Direction, egress: Egress) -> int:
    """Take completed frames home; a packet is sent when its last frame is. Returns how many frames came."""
    completion = ring_at(egress.completion)
    done = available(completion, egress.outstanding)
    if done == 0:
        return 0
    counters = counters_at(direction.counters)
    pool = pool_at(direction.pool)
    table = direction.table
    for number in range(done):
        frame = read_address(completion, number) >> direction.frame_shift
        part = packet_line(table, frame)
        if part.state & LAST:
            length = i64(part.length)
            egress.outstanding_packets -= 1
            refused = (part.state & REFUSED) != 0
            if egress.refusals > 0:
                egress.refusals -= 1
                refused = True
            if refused:
                count_drop(counters, TX_REFUSED, length)
            else:
                counters.sent += 1
                counters.sent_bytes += length
                counters.in_flight -= 1
                counters.in_flight_bytes -= length
        move(pool, frame, TX, FREE)
        give_frame(pool, frame)
    counters.in_flight_frames -= done
    egress.outstanding -= done
    release(completion, done)
    return done
