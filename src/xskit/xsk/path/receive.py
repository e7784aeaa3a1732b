"""From RX into a batch of packets, and FILL kept full: the one way in, for sockets, the engine and benchmarks."""

from __future__ import annotations

from xskit.jit import as_i64, i64, inlined, prefetch, unlikely
from xskit.memory import I64, Record, record_at, size_of
from xskit.xsk.path.calls import kick_receive
from xskit.xsk.path.lines import NIL, forget_packet, packet_line
from xskit.xsk.path.pool import (
    ADDRESS_MASK,
    FILL,
    FREE,
    HELD,
    PacketMemory,
    frame_of,
    free_frame_at,
    give_packet,
    memory_at,
    move,
    offset_of_address,
    pool_at,
    pool_of,
)
from xskit.xsk.path.rings import (
    Ring,
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
from xskit.xsk.path.sizes import LINE_SHIFT


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
    packets: I64  # received; these three are counted before RX shows them as taken
    frames: I64
    bytes: I64
    strays: I64  # descriptors skipped: of no frame of FILL, of more than it holds, or the rest of such a packet
    kicks: I64
    fill_fails: I64  # times that FILL had no room for frames that were free


class Stamp(Record):
    """What the program leaves in the 8 bytes before a packet."""

    time_ns: I64


stamp_at = record_at(Stamp)
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
    table, base, frame_bytes, stamped = memory.table, memory.base, memory.frame_bytes, receiver.stamped
    joining = receiver.head != NIL or receiver.broken != 0
    first, taken, length = count, i64(0), i64(0)
    fetch_ahead(memory, rx, ready, STAMP_BYTES * stamped)
    for number in range(ready):
        address = descriptor_address(rx, number)
        tail = descriptor_tail(rx, number)
        span = tail & 0xFFFF_FFFF
        continues = (tail >> 32) & 1
        frame = frame_of(memory, address)
        if unlikely(frame < 0):
            break_packet(receiver, memory, continues)
            joining = continues != 0
            continue
        line = packet_line(table, frame)
        if not move(pool_of(memory, line), line, frame, FILL, HELD):
            break_packet(receiver, memory, continues)
            joining = continues != 0
            continue
        taken += 1
        length += span
        offset = offset_of_address(memory, address)
        place = offset - frame * frame_bytes
        forget_packet(line)
        if unlikely(place + span > frame_bytes):
            give_packet(memory, frame)
            break_packet(receiver, memory, continues)
            joining = continues != 0
            continue
        line.address = base + offset
        line.length = span
        line.span = span
        line.frames = 1
        time_ns = i64(0)
        if stamped and place >= STAMP_BYTES:
            stamp = stamp_at(base + offset - STAMP_BYTES)
            time_ns = stamp.time_ns
            stamp.time_ns = 0  # the frame's next packet may have none
        line.arrived_ns = time_ns
        if continues or joining:
            joining = continues != 0
            frame = join(receiver, memory, frame, continues)
            if frame == NIL:
                continue
            span, time_ns = i64(packet_line(table, frame).length), packet_line(table, frame).arrived_ns
        arrival = arrival_at(batch + count * ARRIVAL_BYTES)
        arrival.time_ns = time_ns
        arrival.handle = frame
        arrival.length = span
        count += 1
    receiver.filled -= taken
    receiver.packets += count - first
    receiver.frames += taken
    receiver.bytes += length
    release(rx, ready)
    return count


@inlined
def recycle(receiver: Receiver, most: int) -> int:
    """Packets are received and dropped unseen: what came in RX goes back into FILL at once; returns how many frames.

    They stay FILL's the whole time, so the packet table is left alone. Goes through both rings in stretches without a
    wrap: half of what a packet costs here would be its places in them.
    """
    rx, fill = ring_at(receiver.rx), ring_at(receiver.fill)
    ready = available(rx, most)
    if ready <= 0:
        return 0
    free = room(fill, ready)
    if free < ready:
        receiver.fill_fails += 1
        ready = free
    memory = memory_at(receiver.memory)
    end = (memory.frames * memory.frame_bytes) & ADDRESS_MASK  # not negative: both comparisons are compiled as one
    keep = i64(ADDRESS_MASK) if memory.unaligned else i64(-1)  # in aligned mode the kernel itself cuts off the offset
    total = i64(0)  # of lengths in the low half; they cannot run over. The high half counts fragments that go on
    done = written = i64(0)
    while done < ready:
        come, back = (rx.local + done) & rx.mask, (fill.local + written) & fill.mask
        run = min(ready - done, rx.mask + 1 - come, fill.mask + 1 - back)
        descriptors, addresses = as_i64(rx.entries + (come << 4)), as_i64(fill.entries + (back << 3))
        place = i64(0)
        for number in range(run):
            address = descriptors[2 * number] & keep
            if address < 0 or address >= end:
                continue
            total += descriptors[2 * number + 1]
            addresses[place] = address
            place += 1
        written += place
        done += run
    receiver.packets += written - (total >> 32)
    receiver.frames += written
    receiver.bytes += total & 0xFFFF_FFFF
    receiver.strays += ready - written
    publish(fill, written)
    release(rx, ready)
    return ready


@inlined
def fetch_ahead(memory: PacketMemory, rx: Ring, count: int, before: int) -> None:
    """Have the lines and the first bytes of `count` packets brought near: they have not been touched since they were
    in FILL. Where frames are no power of two, or not aligned, this fetches something else, and does no harm."""
    table, base, shift = memory.table, memory.base, max(memory.frame_shift, 0)
    for number in range(count):
        address = descriptor_address(rx, number)
        prefetch(table + ((address >> shift) << LINE_SHIFT))
        prefetch(base + address - before)


@inlined
def fetch_lines(memory: PacketMemory, rx: Ring, count: int) -> None:
    """The same of the lines alone."""
    table, shift = memory.table, max(memory.frame_shift, 0)
    for number in range(count):
        prefetch(table + ((descriptor_address(rx, number) >> shift) << LINE_SHIFT))


@inlined
def join(receiver: Receiver, memory: PacketMemory, frame: int, continues: int) -> int:
    """A frame of a packet of several has come; returns the packet's handle when it was the last one, else NIL."""
    if receiver.broken:
        give_packet(memory, frame)
        break_packet(receiver, memory, continues)
        return NIL
    head = receiver.head
    line = packet_line(memory.table, frame)
    if head == NIL:
        line.frames = 2  # so many at least
        receiver.head = frame
        receiver.tail = frame
        return NIL
    line.frames = 0
    whole = packet_line(memory.table, head)
    whole.length += i64(line.span)
    packet_line(memory.table, receiver.tail).fragment = frame
    receiver.tail = frame
    if continues:
        whole.frames += 1
        return NIL
    receiver.head = NIL
    return head


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
    wanted = min(receiver.target - receiver.filled, pool.count)
    if wanted <= 0:
        return
    fill = ring_at(receiver.fill)
    count = room(fill, wanted)
    if count < wanted:
        receiver.fill_fails += 1
    memory = memory_at(receiver.memory)
    table, frame_bytes, socket = memory.table, memory.frame_bytes, receiver.number
    stack = pool.frames
    left = pool.count
    written = i64(0)
    for _ in range(count):
        left -= 1
        frame = i64(free_frame_at(stack + (left << 2)).frame)
        line = packet_line(table, frame)
        if move(pool, line, frame, FREE, FILL):
            line.next = socket
            write_address(fill, written, frame * frame_bytes)
            written += 1
    pool.count = left
    receiver.filled += written
    publish(fill, written)


@inlined
def wake(receiver: Receiver, always: int) -> int:
    """Tell the kernel of frames in FILL where it asks for that, or `always`; 0, or the errno of the call."""
    if always or receiver.busy_poll or needs_wakeup(ring_at(receiver.fill)):
        receiver.kicks += 1
        return kick_receive(receiver.fd)
    return 0
