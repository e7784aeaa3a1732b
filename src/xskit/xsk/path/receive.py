"""From RX into a batch of packets, and FILL kept full: the one way in, for sockets, the engine and benchmarks."""

from __future__ import annotations

from xskit.jit import as_i64, i64, inlined
from xskit.memory import I64, Record, record_at, size_of
from xskit.xsk.path.calls import kick_receive
from xskit.xsk.path.lines import NIL, forget_packet, packet_line
from xskit.xsk.path.pool import (
    FILL,
    FREE,
    HELD,
    PacketMemory,
    frame_of,
    give_packet,
    memory_at,
    move,
    offset_of_address,
    pool_at,
    pool_of,
    take_frame,
)
from xskit.xsk.path.rings import (
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


class Arrival(Record):
    """One entry of a batch: a packet and when it came."""

    time_ns: I64
    handle: I64
    length: I64


class Receiver(Record):
    """One receive queue: one thread at a time."""

    memory: I64  # address of the PacketMemory
    pool: I64  # address of the Pool that FILL is filled from
    rx: I64  # address of a Ring
    fill: I64  # address of a Ring
    fd: I64
    stamped: I64  # 1: the program leaves its arrival stamp in the 8 bytes before the packet
    obeys: I64  # 1: the driver takes frames from FILL only in a call, where FILL says so (zero copy)
    busy_poll: I64  # 1: a call polls the driver, whatever FILL says
    target: I64  # frames that FILL and the kernel should have
    filled: I64  # frames that they have
    number: I64  # of the socket: stands in `next` of the frames' lines while they are in FILL
    head: I64  # a packet of several frames that is not complete yet: handle, or NIL
    tail: I64
    broken: I64  # 1: the rest of a packet is still to come of which a piece was a stray
    strays: I64  # descriptors skipped: of no frame of FILL, of more than it holds, or the rest of such a packet
    kicks: I64
    fill_fails: I64  # times that FILL could not be filled up: the pool was empty


arrival_at = record_at(Arrival)
receiver_at = record_at(Receiver)

ARRIVAL_BYTES = size_of(Arrival)
RECEIVER_BYTES = size_of(Receiver)

STAMP_BYTES = 8
"""Before a packet, where the program leaves its arrival stamp."""


@inlined
def receive(receiver: Receiver, batch: int, count: int, most: int) -> int:
    """Read RX into the batch of Arrival records from entry `count` on; returns the new count, at most `most`.

    An arrival's time is the program's stamp, 0 where there is none.
    """
    rx = ring_at(receiver.rx)
    ready = available(rx, most - count)
    if ready <= 0:
        return count
    memory = memory_at(receiver.memory)
    table, base, frame_bytes = memory.table, memory.base, memory.frame_bytes
    strays = receiver.strays
    for number in range(ready):
        address = descriptor_address(rx, number)
        tail = descriptor_tail(rx, number)
        span = tail & 0xFFFF_FFFF
        continues = (tail >> 32) & 1
        frame = frame_of(memory, address)
        if frame < 0:
            break_packet(receiver, memory, continues)
            continue
        line = packet_line(table, frame)
        if not move(pool_of(memory, line), line, frame, FILL, HELD):
            break_packet(receiver, memory, continues)
            continue
        offset = offset_of_address(memory, address)
        place = offset - frame * frame_bytes
        forget_packet(line)
        if receiver.broken or place + span > frame_bytes:
            give_packet(memory, frame)
            receiver.filled -= 1
            break_packet(receiver, memory, continues)
            continue
        line.address = base + offset
        line.span = span
        if receiver.head == NIL:
            line.length = span
            line.frames = 1
            line.arrived_ns = 0
            if receiver.stamped and place >= STAMP_BYTES:
                stamp = as_i64(line.address - STAMP_BYTES)
                line.arrived_ns = stamp[0]
                stamp[0] = 0  # the frame's next packet may have none
            if continues:
                receiver.head = frame
                receiver.tail = frame
                continue
            head = frame
            whole = line
        else:
            head = receiver.head
            whole = packet_line(table, head)
            whole.length += span
            whole.frames += 1
            packet_line(table, receiver.tail).fragment = frame
            receiver.tail = frame
            if continues:
                continue
            receiver.head = NIL
        arrival = arrival_at(batch + count * ARRIVAL_BYTES)
        arrival.handle = head
        arrival.length = i64(whole.length)
        arrival.time_ns = whole.arrived_ns
        count += 1
    receiver.filled -= ready - (receiver.strays - strays)
    release(rx, ready)
    return count


@inlined
def break_packet(receiver: Receiver, memory: PacketMemory, continues: int) -> None:
    """A descriptor is a stray: the frames that came of its packet go home, and so will those that are still to come."""
    receiver.strays += 1
    if receiver.head != NIL:
        give_packet(memory, receiver.head)
        receiver.head = NIL
    receiver.broken = continues


@inlined
def refill(receiver: Receiver) -> None:
    """Fill FILL up to its target as far as there are frames and room; never wait for it to move."""
    pool = pool_at(receiver.pool)
    wanted = receiver.target - receiver.filled
    if wanted <= 0:
        return
    fill = ring_at(receiver.fill)
    if pool.count < wanted:
        receiver.fill_fails += 1
        wanted = pool.count
    count = room(fill, wanted)
    if count <= 0:
        return
    memory = memory_at(receiver.memory)
    table, frame_bytes = memory.table, memory.frame_bytes
    written = i64(0)
    for _ in range(count):
        frame = take_frame(pool)
        line = packet_line(table, frame)
        if move(pool, line, frame, FREE, FILL):
            line.next = receiver.number
            write_address(fill, written, frame * frame_bytes)
            written += 1
    receiver.filled += written
    publish(fill, written)


@inlined
def wake(receiver: Receiver, always: int) -> int:
    """Tell the kernel of frames in FILL where it asks for that, or `always`; 0, or the errno of the call."""
    if always or receiver.busy_poll or needs_wakeup(ring_at(receiver.fill)):
        receiver.kicks += 1
        return kick_receive(receiver.fd)
    return 0
