"""What Python calls: whole batches in one step, so that no signal and no other thread ever sees half of one.

A batch is an array of PacketRow records. A row names a packet by its handle and the number that its line had then: so a
packet that has gone is known as gone, whatever its frames hold by now.

    take_batch     RX -> rows; the rows of the batch before end
    end_rows       packets are kept, or their frames go home
    draft_rows     free frames -> rows, to be written by the caller
    submit_rows    rows -> TX, and the kernel is told
    drive          what lies in TX is sent; what is completed comes home

Each works under the memory's lock, and outside of it while the kernel is called. An Inbox or Outbox whose `open` is 0
is closed, or belongs to the process from which this one was forked: there its memory reads as zeros.
"""

from __future__ import annotations

from xskit.jit import as_i64, as_u8, compiled, i64, inlined
from xskit.memory import I64, U32, Record, record_at, size_of
from xskit.xsk.path.calls import wait_for_event
from xskit.xsk.path.lines import KEPT, NIL, PacketLine, forget_packet, packet_line
from xskit.xsk.path.pool import (
    FREE,
    HELD,
    PacketMemory,
    Pool,
    give_packet,
    lock,
    memory_at,
    move,
    pool_at,
    take_frame,
    unlock,
)
from xskit.xsk.path.receive import ARRIVAL_BYTES, Receiver, arrival_at, receive, receiver_at, refill, wake
from xskit.xsk.path.rings import available, ring_at, room
from xskit.xsk.path.transmit import Transmitter, kick, kick_by_hand, reap, submit, transmitter_at, write_packet

CLOSED = -1
"""Result: the socket is closed."""
GONE = -2
"""Result: a packet has gone."""


class PacketRow(Record):
    """A packet of a batch."""

    address: I64  # offset of its first byte in the packet memory
    arrived_ns: I64  # the program's stamp; 0: none
    length: U32  # bytes of the whole packet
    frames: U32
    handle: U32
    number: U32  # of the packet, in its line


class Inbox(Record):
    """The receiving side of a socket."""

    open: I64
    receiver: I64  # address of a Receiver
    arrivals: I64  # address of `room` Arrival records
    rows: I64  # address of `room` PacketRow records: the last batch
    count: I64  # packets of the last batch
    room: I64
    epoll: I64  # a descriptor that tells of packets, and when it is time to give up
    event: I64  # address of room for a struct epoll_event


class Outbox(Record):
    """The sending side of a socket."""

    open: I64
    transmitter: I64  # address of a Transmitter
    pool: I64  # address of the Pool that drafts come from
    offset: I64  # where in its frame a packet begins
    capacity: I64  # bytes of a packet that a frame takes
    drafts: I64  # address of `room` words: handle and number << 32 of each draft
    draft_count: I64
    room: I64


row_at = record_at(PacketRow)
inbox_at = record_at(Inbox)
outbox_at = record_at(Outbox)

ROW_BYTES = size_of(PacketRow)


@inlined
def is_held(line: PacketLine, number: int) -> bool:
    """Whether the packet of that number still is in its frames, and with the process."""
    return i64(line.number) == number and i64(line.owner) == HELD


@inlined
def end_held(memory: PacketMemory, words: int, count: int, spared: int) -> None:
    """Frames go home, of those packets that are still held and do not have the state bit `spared`."""
    held = as_i64(words)
    for place in range(count):
        handle, number = held[place] & 0xFFFF_FFFF, (held[place] >> 32) & 0xFFFF_FFFF
        line = packet_line(memory.table, handle)
        if is_held(line, number) and i64(line.state) & spared == 0:
            give_packet(memory, handle)


@inlined
def end_batch(memory: PacketMemory, inbox: Inbox) -> None:
    """The last batch ends: those of its packets that are still held, and not kept, go home."""
    for place in range(inbox.count):
        row = row_at(inbox.rows + place * ROW_BYTES)
        handle = i64(row.handle)
        line = packet_line(memory.table, handle)
        if is_held(line, i64(row.number)) and i64(line.state) & KEPT == 0:
            give_packet(memory, handle)
    inbox.count = 0


@compiled("int64(int64, int64, int64)")
def take_batch(address: int, limit: int, wait_ms: int) -> int:
    """End the last batch, fill FILL, and receive at most `limit` packets into the rows of the Inbox at an address.
    Where none is there, sleep until one comes, once and so long at most.

    Returns how many, or CLOSED. 0 before the time is over: a signal came, or there is something else to do, or not a
    single frame is free. `limit` 0: only the first two.
    """
    inbox = inbox_at(address)
    if inbox.open == 0:
        return CLOSED
    receiver = receiver_at(inbox.receiver)
    memory = memory_at(receiver.memory)
    lock(memory, receiver.memory)
    end_batch(memory, inbox)
    refill(receiver)
    count = receive_rows(memory, receiver, inbox, limit)
    starving = pool_at(receiver.pool).count == 0
    unlock(memory, receiver.memory)
    wake(receiver, i64(0))
    if count > 0 or wait_ms == 0 or starving:
        return count
    wait_for_event(inbox.epoll, inbox.event, wait_ms)
    lock(memory, receiver.memory)
    count = receive_rows(memory, receiver, inbox, limit)
    unlock(memory, receiver.memory)
    return count


@inlined
def receive_rows(memory: PacketMemory, receiver: Receiver, inbox: Inbox, limit: int) -> int:
    """At most `limit` packets into the rows of an Inbox; returns how many."""
    rx, most = ring_at(receiver.rx), min(limit, inbox.room)
    count = receive(receiver, inbox.arrivals, i64(0), most)
    while count < most and available(rx, i64(1)) > 0:  # a packet may have several descriptors
        count = receive(receiver, inbox.arrivals, count, most)
    table, base, rows = memory.table, memory.base, inbox.rows
    for place in range(count):
        arrival = arrival_at(inbox.arrivals + place * ARRIVAL_BYTES)
        handle = i64(arrival.handle)
        line = packet_line(table, handle)
        row = row_at(rows + place * ROW_BYTES)
        row.address = line.address - base
        row.arrived_ns = arrival.time_ns
        row.length = arrival.length
        row.frames = line.frames
        row.handle = handle
        row.number = line.number
    inbox.count = count
    return count


@compiled("int64(int64, int64)")
def wake_receiver(address: int, always: int) -> int:
    """Call the kernel for the Inbox at an address, where it asks for that or `always`; returns the errno of recvfrom,
    0, or CLOSED."""
    inbox = inbox_at(address)
    if inbox.open == 0:
        return CLOSED
    return wake(receiver_at(inbox.receiver), always)


@compiled("int64(int64, int64, int64, int64)")
def end_rows(address: int, rows: int, count: int, keep: int) -> int:
    """Of the PacketMemory at an address: keep the packets of PacketRow records, or take their frames home; returns how
    many of them had gone."""
    memory = memory_at(address)
    gone = i64(0)
    lock(memory, address)
    for place in range(count):
        row = row_at(rows + place * ROW_BYTES)
        handle = i64(row.handle)
        line = packet_line(memory.table, handle)
        if handle >= memory.frames or not is_held(line, i64(row.number)):
            gone += 1
        elif keep:
            line.state = i64(line.state) | KEPT
        else:
            give_packet(memory, handle)
    unlock(memory, address)
    return gone


@inlined
def end_drafts(address: int) -> None:
    """Frames of drafts that were not sent go home."""
    outbox = outbox_at(address)
    transmitter = transmitter_at(outbox.transmitter)
    memory = memory_at(transmitter.memory)
    lock(memory, transmitter.memory)
    end_held(memory, outbox.drafts, outbox.draft_count, i64(0))
    outbox.draft_count = 0
    unlock(memory, transmitter.memory)


@inlined
def draft(memory: PacketMemory, pool: Pool, offset: int, capacity: int, row: PacketRow) -> bool:
    """Frames for one row whose length is set; False where there are not enough.

    A packet begins `offset` bytes behind the start of its frame, and a frame takes `capacity` bytes of it.
    """
    length = i64(row.length)
    frames = (length + capacity - 1) // capacity
    if pool.count < frames:
        return False
    table = memory.table
    left = length
    before = i64(NIL)
    for number in range(frames):
        frame = take_frame(pool)
        line = packet_line(table, frame)
        move(pool, line, frame, FREE, HELD)
        forget_packet(line)
        line.address = memory.base + frame * memory.frame_bytes + offset
        line.span = min(left, capacity)
        line.fragment = NIL
        line.state = KEPT
        line.egress = 0
        left -= capacity
        if number == 0:
            line.length = length
            line.frames = frames
            row.address = line.address - memory.base
            row.arrived_ns = 0
            row.frames = frames
            row.handle = frame
            row.number = line.number
        else:
            line.frames = 0
            packet_line(table, before).fragment = frame
        before = frame
    return True


@compiled("int64(int64, int64, int64)")
def draft_rows(address: int, rows: int, count: int) -> int:
    """Frames for rows whose handle is NIL and whose length is set; returns for how many rows they were enough, or
    CLOSED. What is not sent goes home with `finish`, or with the next drafts."""
    outbox = outbox_at(address)
    if outbox.open == 0:
        return CLOSED
    end_drafts(address)
    transmitter = transmitter_at(outbox.transmitter)
    memory = memory_at(transmitter.memory)
    drafts = as_i64(outbox.drafts)
    done = i64(0)
    lock(memory, transmitter.memory)
    while done < count:
        row = row_at(rows + done * ROW_BYTES)
        if i64(row.handle) == NIL:
            if not draft(memory, pool_at(outbox.pool), outbox.offset, outbox.capacity, row):
                break
            drafts[outbox.draft_count] = i64(row.handle) | (i64(row.number) << 32)
            outbox.draft_count += 1
        done += 1
    unlock(memory, transmitter.memory)
    return done


@compiled("int64(int64, int64, int64, int64, int64)")
def draft_batch(address: int, offset: int, capacity: int, rows: int, count: int) -> int:
    """The same from the Pool at an address, for packets that stay until somebody ends or sends them."""
    pool = pool_at(address)
    memory = memory_at(pool.memory)
    done = i64(0)
    lock(memory, pool.memory)
    while done < count and draft(memory, pool, offset, capacity, row_at(rows + done * ROW_BYTES)):
        done += 1
    unlock(memory, pool.memory)
    return done


@compiled("int64(int64, int64, int64, int64)")
def submit_rows(address: int, rows: int, count: int, most_frames: int) -> int:
    """Go on with what is being sent, put the packets of PacketRow records into TX as far as there is room, and make the
    kernel take them.

    Returns how many, or CLOSED; or GONE - n, where packet n has gone or has more than `most_frames` frames, and those
    before it were taken.
    """
    outbox = outbox_at(address)
    if outbox.open == 0:
        return CLOSED
    transmitter = transmitter_at(outbox.transmitter)
    if transmitter.outstanding > 0:
        go_on(transmitter)
        if transmitter.down or transmitter.failure:
            return 0
    memory = memory_at(transmitter.memory)
    tx = ring_at(transmitter.tx)
    lock(memory, transmitter.memory)
    free = room(tx, i64(tx.size))
    descriptors = taken = i64(0)
    answer = i64(0)
    while taken < count:
        row = row_at(rows + taken * ROW_BYTES)
        handle = i64(row.handle)
        if handle >= memory.frames:
            answer = GONE - taken
            break
        line = packet_line(memory.table, handle)
        if not is_held(line, i64(row.number)) or i64(line.frames) > most_frames:
            answer = GONE - taken
            break
        if descriptors + i64(line.frames) > free:
            break
        written = write_packet(transmitter, tx, descriptors, handle)
        if written == descriptors:
            answer = GONE - taken
            break
        descriptors = written
        taken += 1
    submit(transmitter, tx, descriptors, taken)
    unlock(memory, transmitter.memory)
    if descriptors > 0:
        kick(transmitter)
    return taken if answer == 0 else answer


@compiled("int64(int64)")
def prepare(address: int) -> int:
    """Send what lies in TX, take home what is completed, drafts too; returns the entries free in TX, or CLOSED."""
    outbox = outbox_at(address)
    if outbox.open == 0:
        return CLOSED
    end_drafts(address)
    transmitter = transmitter_at(outbox.transmitter)
    if transmitter.outstanding > 0:
        go_on(transmitter)
    tx = ring_at(transmitter.tx)
    return room(tx, i64(tx.size))


@compiled("int64(int64)")
def drive(address: int) -> int:
    """Send what lies in TX and take home what is completed; returns the frames that the kernel still has, or CLOSED."""
    outbox = outbox_at(address)
    if outbox.open == 0:
        return CLOSED
    transmitter = transmitter_at(outbox.transmitter)
    go_on(transmitter)
    return i64(transmitter.outstanding)


@compiled("int64(int64)")
def kick_once(address: int) -> int:
    """One sendto, where the kernel asks for it: for those who take COMPLETION by hand. Returns 0, or CLOSED."""
    outbox = outbox_at(address)
    if outbox.open == 0:
        return CLOSED
    kick_by_hand(transmitter_at(outbox.transmitter))
    return 0


@inlined
def go_on(transmitter: Transmitter) -> None:
    """Kick, then reap."""
    kick(transmitter)
    reap(transmitter)


@compiled("int64(int64, int64, int64, int64, int64, int64)")
def gather(address: int, rows: int, count: int, offset: int, size: int, target: int) -> int:
    """Copy `size` bytes at `offset` of each packet, one after the other, zeros behind a packet's end.

    The address is that of the PacketMemory. Returns 0, or GONE - n where packet n has gone.
    """
    memory = memory_at(address)
    for place in range(count):
        row = row_at(rows + place * ROW_BYTES)
        handle = i64(row.handle)
        if handle >= memory.frames:
            return GONE - place
        line = packet_line(memory.table, handle)
        if not is_held(line, i64(row.number)):
            return GONE - place
        copy_bytes(memory, line, offset, size, target + place * size)
    return 0


@inlined
def copy_bytes(memory: PacketMemory, line: PacketLine, offset: int, size: int, target: int) -> None:
    """Bytes of a packet, in whatever frames they lie; zeros behind its end."""
    out = as_u8(target)
    done = i64(0)
    skip = offset
    span = i64(line.span)
    origin = i64(line.address)
    following = i64(line.fragment)
    while done < size:
        if skip < span:
            part = as_u8(origin + skip)
            several = min(span - skip, size - done)
            for byte in range(several):
                out[done + byte] = part[byte]
            done += several
            skip += several
        elif following == NIL:
            while done < size:
                out[done] = 0
                done += 1
        else:
            skip -= span
            part_line = packet_line(memory.table, following)
            span = i64(part_line.span)
            origin = i64(part_line.address)
            following = i64(part_line.fragment)
