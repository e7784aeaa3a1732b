"""The rings in the hands of the user: entries are looked at and written by the caller, and taken over in one step.

    peek, reserve     nothing moves, nothing is written: where the next entries lie, and how many there are
    release_rx        RX entries are taken; their frames are the caller's     FILL -> HELD
    submit_fill       frames go to the kernel, to receive into                HELD -> FILL
    submit_tx         packets go to the kernel, to be sent                    HELD -> TX
    release_completed COMPLETION entries are taken; frames are the caller's   TX -> HELD
    take_frames       free frames become the caller's                         FREE -> HELD
    give_frames       the caller's frames come home                           HELD -> FREE

The caller may hand on a frame that is held and that no packet of several frames lies in. Each function checks all
entries before it moves any: a refusal changes nothing. What the caller writes into a ring later, the kernel checks.

Each but the first two works under the memory's lock, from one receiving or one sending thread. Results below 0 are
refusals: see `refusal`.
"""

from __future__ import annotations

from xskit.jit import as_i64, compiled, i64, inlined, load_acquire32, unlikely
from xskit.xsk.path.books import TX_REFUSED, books_at, count_drop
from xskit.xsk.path.lines import KEPT, LAST, NIL, PacketLine, forget_packet, packet_line
from xskit.xsk.path.pool import (
    ADDRESS_MASK,
    FILL,
    FREE,
    HELD,
    TX,
    PacketMemory,
    frame_of,
    give_frame,
    give_packet,
    lock,
    memory_at,
    move,
    offset_of_address,
    pool_at,
    pool_of,
    take_frame,
    unlock,
)
from xskit.xsk.path.receive import fetch_lines, receiver_at
from xskit.xsk.path.rings import (
    INDEX_MASK,
    PACKET_CONTINUES,
    TX_METADATA,
    Ring,
    available,
    descriptor_address,
    descriptor_tail,
    publish,
    read_address,
    release,
    ring_at,
    room,
)
from xskit.xsk.path.transmit import is_refused, settle, submit, transmitter_at

COUNT_BITS = 31
"""`peek` and `reserve` give the index of the first entry above these bits, and the number of entries in them."""

REASON_BITS = 4

MOVED, OUTSIDE, NOT_HELD, TWICE, SHARED, NOT_FIRST, BEYOND, EMPTY, OPTIONS, METADATA, TOO_LONG, UNFINISHED = range(
    1, 13
)
"""Why entries were refused.

MOVED       they are not those that were reserved or peeked: the ring has moved, or is closed, or this is a child,
            forked meanwhile, where records read as zeros
OUTSIDE     the address lies in no frame
NOT_HELD    the frame is not the caller's
TWICE       it is, but an earlier entry names it already
SHARED      it belongs to a packet of several frames
NOT_FIRST   FILL, unaligned memory: the address is not the first of its frame
BEYOND      TX: the bytes do not all lie in one frame
EMPTY       TX: no bytes
OPTIONS     TX: options that this socket cannot use
METADATA    TX: no room for the metadata before the bytes
TOO_LONG    TX: the packet has too many descriptors
UNFINISHED  TX: the last packet goes on behind the last entry
"""


@inlined
def refusal(entry: int, reason: int) -> int:
    """Entry number `entry` is the first that cannot be taken."""
    return -((entry << REASON_BITS) | reason)


# --- looking ----------------------------------------------------------------------------------------------------


@compiled("int64(int64, int64)", brief=True)
def peek(address: int, limit: int) -> int:
    """Consumer: the next entries, at most `limit` and none behind the end of the array."""
    ring = ring_at(address)
    first = ring.local
    ready = (load_acquire32(ring.producer) - first) & INDEX_MASK
    return show(ring, first, min(ready, limit))


@compiled("int64(int64, int64)", brief=True)
def reserve(address: int, limit: int) -> int:
    """Producer: the next entries that may be written, at most `limit` and none behind the end of the array."""
    ring = ring_at(address)
    first = ring.local
    free = ring.size - ((first - load_acquire32(ring.consumer)) & INDEX_MASK)
    return show(ring, first, min(free, limit))


@inlined
def show(ring: Ring, first: int, count: int) -> int:
    """The answer of both."""
    return (first << COUNT_BITS) | max(i64(0), min(count, ring.size - (first & ring.mask)))


# --- receiving --------------------------------------------------------------------------------------------------


@compiled("int64(int64, int64, int64)", brief=True)
def release_rx(address: int, start: int, count: int) -> int:
    """Take `count` entries from index `start` on; returns how many frames they gave the caller.

    The address is that of a Receiver. A packet that `receive` has begun goes home, and so does the rest of one that
    the last entry leaves unfinished, should `receive` come next.
    """
    receiver = receiver_at(address)
    if receiver.memory == 0:
        return refusal(0, MOVED)
    rx = ring_at(receiver.rx)
    memory = memory_at(receiver.memory)
    lock(memory, receiver.memory)
    if rx.local != start or available(rx, count) < count:
        unlock(memory, receiver.memory)
        return refusal(0, MOVED)
    if count > 0 and receiver.head != NIL:
        receiver.strays += 1
        give_packet(memory, receiver.head)
        receiver.head = NIL
    came = broken = i64(0)
    fetch_lines(memory, rx, count)
    for number in range(count):
        tail = descriptor_tail(rx, number)
        broken = (tail >> 32) & PACKET_CONTINUES
        frame = frame_of(memory, descriptor_address(rx, number))
        if frame < 0:
            receiver.strays += 1
            continue
        line = packet_line(memory.table, frame)
        if not move(pool_of(memory, line), line, frame, FILL, HELD):
            receiver.strays += 1
            continue
        hand_over(line, memory.base + offset_of_address(memory, descriptor_address(rx, number)), tail & 0xFFFF_FFFF)
        came += 1
    receiver.filled -= came
    if count > 0:
        receiver.broken = broken
    release(rx, count)
    unlock(memory, receiver.memory)
    return came


@compiled("int64(int64, int64, int64, int64)", brief=True)
def submit_fill(address: int, start: int, count: int, frames: int) -> int:
    """Hand over the first `count` entries from index `start` on; returns `count`, or a refusal.

    The address is that of a Receiver; at `frames` there is room for `count` words.
    """
    receiver = receiver_at(address)
    if receiver.memory == 0:
        return refusal(0, MOVED)
    fill = ring_at(receiver.fill)
    memory = memory_at(receiver.memory)
    lock(memory, receiver.memory)
    if fill.local != start or room(fill, count) < count:
        unlock(memory, receiver.memory)
        return refusal(0, MOVED)
    claimed = as_i64(frames)
    for number in range(count):
        entry = read_address(fill, number)
        frame = claim(memory, entry, FILL)
        if frame >= 0 and memory.unaligned and entry & ADDRESS_MASK != frame * memory.frame_bytes:
            packet_line(memory.table, frame).owner = HELD
            frame = i64(-NOT_FIRST)
        if frame < 0:
            reason = unclaim(memory, frames, number, entry, -frame)
            unlock(memory, receiver.memory)
            return refusal(number, reason)
        claimed[number] = frame
    for number in range(count):
        packet_line(memory.table, claimed[number]).next = receiver.number
    receiver.filled += count
    publish(fill, count)
    unlock(memory, receiver.memory)
    return count


# --- sending ----------------------------------------------------------------------------------------------------


@compiled("int64(int64, int64, int64, int64, int64, int64)", brief=True)
def submit_tx(address: int, start: int, count: int, frames: int, most_frames: int, metadata_bytes: int) -> int:
    """Hand over the first `count` descriptors from index `start` on; returns how many packets they were, or a refusal.

    The address is that of a Transmitter; at `frames` there is room for `2 * count` words. A packet may have
    `most_frames` descriptors, and begins at least `metadata_bytes` behind the start of its frame.
    """
    transmitter = transmitter_at(address)
    if transmitter.memory == 0:
        return refusal(0, MOVED)
    tx = ring_at(transmitter.tx)
    memory = memory_at(transmitter.memory)
    table = memory.table
    lock(memory, transmitter.memory)
    if tx.local != start or room(tx, count) < count:
        unlock(memory, transmitter.memory)
        return refusal(0, MOVED)
    claimed, lengths = as_i64(frames), as_i64(frames + 8 * count)
    parts = length = packets = i64(0)
    for number in range(count):
        entry, tail = descriptor_address(tx, number), descriptor_tail(tx, number)
        span, options = tail & 0xFFFF_FFFF, (tail >> 32) & 0xFFFF_FFFF
        frame = claim(memory, entry, TX)
        parts += 1
        length += span
        wrong = i64(0)
        if frame < 0:
            wrong = -frame
        else:
            claimed[number] = frame
            place = offset_of_address(memory, entry) - frame * memory.frame_bytes
            if span == 0:
                wrong = i64(EMPTY)
            elif place + span > memory.frame_bytes:
                wrong = i64(BEYOND)
            elif options & ~(PACKET_CONTINUES | (TX_METADATA if metadata_bytes else 0)):
                wrong = i64(OPTIONS)
            elif place < metadata_bytes:
                wrong = i64(METADATA)
            elif parts > most_frames or (most_frames == 1 and options & PACKET_CONTINUES):
                wrong = i64(TOO_LONG)
            elif number == count - 1 and options & PACKET_CONTINUES:
                wrong = i64(UNFINISHED)
            if wrong:
                packet_line(table, frame).owner = HELD
        if wrong:
            reason = unclaim(memory, frames, number, entry, wrong)
            unlock(memory, transmitter.memory)
            return refusal(number, reason)
        lengths[number] = 0
        if options & PACKET_CONTINUES == 0:
            lengths[number] = length
            packets += 1
            parts = length = i64(0)
    for number in range(count):
        line = packet_line(table, claimed[number])
        length = lengths[number]
        books = books_at(pool_of(memory, line).books)
        books.in_flight_frames += 1
        line.next = transmitter.number
        line.state = LAST if length > 0 else 0
        if length > 0:
            line.length = length
            books.in_flight += 1
            books.in_flight_bytes += length
    submit(transmitter, tx, count, packets)
    unlock(memory, transmitter.memory)
    return packets


@compiled("int64(int64, int64, int64)", brief=True)
def release_completed(address: int, start: int, count: int) -> int:
    """Take `count` entries from index `start` on; returns how many frames they gave the caller.

    The address is that of a Transmitter.
    """
    transmitter = transmitter_at(address)
    if transmitter.memory == 0:
        return refusal(0, MOVED)
    completion = ring_at(transmitter.completion)
    memory = memory_at(transmitter.memory)
    lock(memory, transmitter.memory)
    if completion.local != start or available(completion, count) < count:
        unlock(memory, transmitter.memory)
        return refusal(0, MOVED)
    came = ended = strays = i64(0)
    for number in range(count):
        frame = frame_of(memory, read_address(completion, number))
        if unlikely(frame < 0):
            strays += 1
            continue
        line = packet_line(memory.table, frame)
        pool = pool_of(memory, line)
        if unlikely(not move(pool, line, frame, TX, HELD)):
            strays += 1
            continue
        books = books_at(pool.books)
        packets = length = i64(0)
        if i64(line.state) & LAST:
            ended += 1
            if unlikely(is_refused(transmitter, i64(line.state))):
                count_drop(books, TX_REFUSED, i64(line.length))
            else:
                packets, length = i64(1), i64(line.length)
        settle(pool, books, pool.count, i64(1), packets, length)
        hand_over(line, i64(line.address), i64(line.span))
        came += 1
    release(completion, count)
    unlock(memory, transmitter.memory)
    transmitter.strays += strays
    transmitter.outstanding_packets -= ended
    transmitter.outstanding -= came
    return came


# --- frames -----------------------------------------------------------------------------------------------------


@compiled("int64(int64, int64, int64, int64)")
def take_frames(address: int, pool_address: int, count: int, addresses: int) -> int:
    """Free frames become the caller's; returns how many, at most `count`. Their addresses go to `addresses`, words.

    The addresses are those of the PacketMemory and of the Pool.
    """
    memory = memory_at(address)
    pool = pool_at(pool_address)
    out = as_i64(addresses)
    lock(memory, address)
    taken = i64(0)
    for _ in range(min(count, pool.count)):
        frame = take_frame(pool)
        line = packet_line(memory.table, frame)
        if move(pool, line, frame, FREE, HELD):
            offset = frame * memory.frame_bytes
            hand_over(line, memory.base + offset, i64(0))
            out[taken] = offset
            taken += 1
    unlock(memory, address)
    return taken


@compiled("int64(int64, int64, int64)")
def give_frames(address: int, count: int, addresses: int) -> int:
    """The caller's frames come home; returns `count`, or a refusal.

    The address is that of the PacketMemory. At `addresses` there are `count` words, which this function overwrites and
    nothing else may change meanwhile.
    """
    memory = memory_at(address)
    words = as_i64(addresses)
    lock(memory, address)
    for number in range(count):
        entry = words[number]
        frame = claim(memory, entry, FREE)
        if frame < 0:
            reason = unclaim(memory, addresses, number, entry, -frame)
            unlock(memory, address)
            return refusal(number, reason)
        words[number] = frame
    for number in range(count):
        give_frame(pool_of(memory, packet_line(memory.table, words[number])), words[number])
    unlock(memory, address)
    return count


# --- what they share --------------------------------------------------------------------------------------------


@inlined
def hand_over(line: PacketLine, address: int, span: int) -> None:
    """A frame that has become HELD is the caller's, as a packet of one frame."""
    forget_packet(line)
    line.address = address
    line.span = span
    line.length = span
    line.frames = 1
    line.state = KEPT


@inlined
def claim(memory: PacketMemory, entry: int, target: int) -> int:
    """The frame of an address leaves the caller for another owner; returns its number, or minus the reason why not."""
    frame = frame_of(memory, entry)
    if frame < 0:
        return i64(-OUTSIDE)
    line = packet_line(memory.table, frame)
    if i64(line.owner) != HELD:
        return i64(-NOT_HELD)
    if i64(line.frames) != 1:
        return i64(-SHARED)
    line.owner = target
    return frame


@inlined
def unclaim(memory: PacketMemory, frames: int, count: int, entry: int, reason: int) -> int:
    """The caller has `count` frames again; returns the reason why `entry` was not claimed, as it is known then."""
    claimed = as_i64(frames)
    for number in range(count):
        packet_line(memory.table, claimed[number]).owner = HELD
    if reason == NOT_HELD and i64(packet_line(memory.table, frame_of(memory, entry)).owner) == HELD:
        return i64(TWICE)
    return reason
