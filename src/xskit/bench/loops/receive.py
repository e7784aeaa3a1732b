"""What becomes of received packets: dropped, handed over to TX, or compared with what was sent."""

from __future__ import annotations

from xskit.bench.loops.records import WINDOW, BenchQueue, Check, check_at
from xskit.bench.loops.transmit import regain, swapped
from xskit.jit import as_i64, as_u32, external, i64, inlined
from xskit.memory import I64, U32, Record, record_at
from xskit.xsk.path.books import books_at, count_in
from xskit.xsk.path.lines import NIL, packet_line
from xskit.xsk.path.pool import give_packet, memory_at, pool_at
from xskit.xsk.path.receive import (
    ARRIVAL_BYTES,
    Receiver,
    arrival_at,
    receive,
    receiver_at,
    recycle,
    refill,
    wake,
)
from xskit.xsk.path.rings import ring_at, room
from xskit.xsk.path.transmit import kick, submit, transmitter_at, write_packet

MAC_BYTES = 12
STAMP_BYTES = 16
"""sizeof(struct pktgen_hdr)."""

_memcmp = external("memcmp", "int32", "int64", "int64", "uint64")


class Macs(Record):
    """Both MAC addresses, where a packet begins: 8 bytes and 4."""

    first: I64
    second: U32


macs_at = record_at(Macs)


@inlined
def drop(queue: BenchQueue) -> int:
    """rxdrop: count, and give the frames back; returns how many there were."""
    receiver = receiver_at(queue.receiver)
    frames = recycle(receiver, queue.batch)
    if frames == 0:
        wake(receiver, 0)
    return frames


@inlined
def swap_macs(address: int) -> None:
    """Source and destination change places."""
    macs = macs_at(address)
    first, second = macs.first, i64(macs.second)
    macs.first = ((first >> 48) & 0xFFFF) | (second << 16) | (first << 48)
    macs.second = (first >> 16) & 0xFFFF_FFFF


@inlined
def unfinished(receiver: Receiver) -> int:
    """Frames of a packet whose last one has not come yet."""
    if receiver.head == NIL:
        return 0
    return i64(packet_line(memory_at(receiver.memory).table, receiver.head).frames) - 1  # it has one for the next


@inlined
def hand_over(source: BenchQueue, target: BenchQueue, swap: bool) -> int:
    """l2fwd and forward: from RX of one queue to TX of another one, or of the same; returns how many frames came."""
    receiver, transmitter = receiver_at(source.receiver), transmitter_at(target.transmitter)
    regain(transmitter)
    refill(receiver)
    tx = ring_at(transmitter.tx)
    begun = unfinished(receiver)
    most = room(tx, begun + source.batch) - begun  # a packet goes out with all of its frames, those from before too
    frames, length = receiver.frames, receiver.bytes
    count = receive(receiver, source.arrivals, 0, most)
    frames = receiver.frames - frames
    if frames == 0:
        wake(receiver, 0)
        return 0
    count_in(books_at(pool_at(receiver.pool).books), count, frames, receiver.bytes - length)
    table = memory_at(receiver.memory).table
    if swap:
        for number in range(count):
            swap_macs(packet_line(table, arrival_at(source.arrivals + number * ARRIVAL_BYTES).handle).address)
    descriptors = packets = i64(0)
    for number in range(count):
        handle = arrival_at(source.arrivals + number * ARRIVAL_BYTES).handle
        written = write_packet(transmitter, tx, descriptors, handle)
        packets += written > descriptors
        descriptors = written
    submit(transmitter, tx, descriptors, packets)
    kick(transmitter)
    return frames


@inlined
def verify(queue: BenchQueue) -> int:
    """loss: compare what came with what was sent; returns how many frames came."""
    receiver = receiver_at(queue.receiver)
    frames = receiver.frames
    count = receive(receiver, queue.arrivals, 0, queue.batch)
    frames = receiver.frames - frames
    if frames == 0:
        wake(receiver, 0)
        return 0
    memory, check = memory_at(receiver.memory), check_at(queue.check)
    for number in range(count):
        handle = arrival_at(queue.arrivals + number * ARRIVAL_BYTES).handle
        if not is_sound(check, memory.table, handle):
            check.corrupted += 1
        give_packet(memory, handle)
    refill(receiver)
    return frames


@inlined
def is_sound(check: Check, table: int, handle: int) -> bool:
    """Whether a packet is the template in all of its frames; if so in the first one, its number is noted."""
    line = packet_line(table, handle)
    if i64(line.length) > check.length or not is_head(check, line.address, i64(line.span)):
        return False
    whole, offset = i64(line.length) == check.length, i64(line.span)
    while line.fragment != NIL:
        line = packet_line(table, line.fragment)
        whole = whole and _memcmp(line.address, check.template + offset, i64(line.span)) == 0
        offset += i64(line.span)
    return whole


@inlined
def is_head(check: Check, address: int, span: int) -> bool:
    """Whether a first frame is as it should be; if so, the number in it is noted."""
    at = check.stamp_offset
    if at == 0:
        return span >= MAC_BYTES and _memcmp(address + MAC_BYTES, check.template + MAC_BYTES, span - MAC_BYTES) == 0
    behind = at + STAMP_BYTES
    if (
        span < behind
        or _memcmp(address + MAC_BYTES, check.template + MAC_BYTES, at + 4 - MAC_BYTES) != 0
        or _memcmp(address + behind, check.template + behind, span - behind) != 0
    ):
        return False
    note_number(check, swapped(i64(as_u32(address + at)[1])))
    return True


@inlined
def note_number(check: Check, low: int) -> None:
    """A number has come, of which the packet has the low 32 bits."""
    step = (low - check.next) & 0xFFFF_FFFF
    if step >= 1 << 31:
        step -= 1 << 32
    number = check.next + step
    seen = as_i64(check.seen)
    if step >= 0:
        for missed in range(max(check.next, number - WINDOW), number):
            place = missed & (WINDOW - 1)
            seen[place >> 6] &= ~(i64(1) << (place & 63))
        check.next = number + 1
    elif -step > WINDOW:
        check.duplicates += 1
        return
    place = number & (WINDOW - 1)
    bit = i64(1) << (place & 63)
    if step >= 0:
        seen[place >> 6] |= bit
        check.unique += 1
    elif seen[place >> 6] & bit:
        check.duplicates += 1
    else:
        seen[place >> 6] |= bit
        check.unique += 1
        check.reordered += 1
