"""From packets into TX, past the kernel, and home through COMPLETION: the one way out.

What sendto says stands in xsk/path/calls.py.
"""

from __future__ import annotations

from xskit.jit import as_i64, i64, inlined
from xskit.memory import I64, Record, record_at, size_of
from xskit.xsk.path.books import TX_REFUSED, books_at, count_drop
from xskit.xsk.path.calls import EAGAIN, EBUSY, ENETDOWN, ENOBUFS, ENODEV, ENXIO, kick_transmit
from xskit.xsk.path.lines import LAST, NIL, REFUSED, SET, packet_line
from xskit.xsk.path.pool import (
    FREE,
    HELD,
    TX,
    PacketMemory,
    frame_of,
    give_frame,
    lock,
    memory_at,
    move,
    pool_of,
    unlock,
)
from xskit.xsk.path.rings import (
    INDEX_MASK,
    LEAST_TAKEN,
    Ring,
    available,
    needs_wakeup,
    publish,
    read_address,
    release,
    ring_at,
    unconsumed,
    write_descriptor,
)

KICKS = 4096
"""System calls for one batch at most; more would mean that the kernel makes no progress."""

RETRY_NS = 100_000
"""How long a queue is left alone between two kicks that brought nothing."""
DOWN_RETRY_NS = 10_000_000
"""The same while the port is down."""


class Transmitter(Record):
    """One transmit queue: one thread at a time."""

    memory: I64  # address of the PacketMemory
    tx: I64  # address of a Ring
    completion: I64  # address of a Ring
    fd: I64
    number: I64  # of the socket: stands in `next` of the frames' lines while they are in TX
    zero_copy: I64  # 1: sendto only wakes the driver
    always: I64  # 1: bound without need_wakeup: the kernel never says when it needs a call
    told_late: I64  # 1: TX may still show what sendto has taken from it
    refusals: I64  # packets that were refused and are not completed yet, where nobody says which
    outstanding: I64  # frames that the kernel has not completed
    outstanding_packets: I64
    refused: I64  # packets that the kernel refused to send
    down: I64  # errno while the port cannot send, else 0
    failure: I64  # errno of a call that failed for a reason not known here, else 0
    progress_ns: I64  # when a completion came last while some were awaited; 0 when none are
    retry_ns: I64  # when to kick again what the kernel left in TX
    kicks: I64
    strays: I64  # completed addresses that named no frame in TX; they are skipped


transmitter_at = record_at(Transmitter)
TRANSMITTER_BYTES = size_of(Transmitter)


@inlined
def write_packet(transmitter: Transmitter, tx: Ring, descriptors: int, handle: int) -> int:
    """Write a packet's descriptors behind the `descriptors` already written, where there is room for them; returns the
    new number, or the same one where a frame of it is not held: then it stays where it is. `submit` hands them over."""
    memory = memory_at(transmitter.memory)
    table, base = memory.table, memory.base
    before = descriptors
    frame = handle
    while frame != NIL:
        part = packet_line(table, frame)
        if not move(pool_of(memory, part), part, frame, HELD, TX):
            take_back(memory, handle, frame)
            return before
        following = i64(part.fragment)
        if i64(part.state) & SET == 0:
            part.next = transmitter.number
        if following == NIL:  # all that `reap` needs: the first frame may be home, and full again, before the last
            part.length = packet_line(table, handle).length
            part.state = i64(part.state) & SET | LAST
        else:
            part.state = i64(part.state) & SET
        write_descriptor(tx, descriptors, part.address - base, i64(part.span), 0 if following == NIL else 1)
        descriptors += 1
        frame = following
    return descriptors


@inlined
def take_back(memory: PacketMemory, handle: int, end: int) -> None:
    """The frames of a packet before frame `end`, which no descriptor shows to the kernel yet, are held again."""
    while handle != end:
        line = packet_line(memory.table, handle)
        move(pool_of(memory, line), line, handle, TX, HELD)
        handle = i64(line.fragment)


@inlined
def submit(transmitter: Transmitter, tx: Ring, descriptors: int, packets: int) -> None:
    """Hand over what `write_packet` wrote."""
    transmitter.outstanding += descriptors
    transmitter.outstanding_packets += packets
    publish(tx, descriptors)


@inlined
def kick(transmitter: Transmitter) -> None:
    """Make the kernel take what lies in TX; what it leaves there is kicked again later. Sets `down` or `failure`."""
    tx = ring_at(transmitter.tx)
    transmitter.down = 0
    idle = i64(0)
    for _ in range(KICKS):
        left = unconsumed(tx)
        if left == 0 or not (transmitter.always or needs_wakeup(tx)):
            return
        code = kick_transmit(transmitter.fd)
        transmitter.kicks += 1
        if code in (ENETDOWN, ENXIO, ENODEV):
            transmitter.down = code
            return
        if transmitter.zero_copy:
            return
        if code == EBUSY:
            mark_refused(transmitter)
        elif code in (EAGAIN, ENOBUFS):
            reap(transmitter)
        elif code != 0:
            transmitter.failure = code
            return
        if unconsumed(tx) == left:
            if not transmitter.told_late:
                return
            if code != EBUSY:
                idle += LEAST_TAKEN
                if idle > left:
                    return


@inlined
def collect(transmitter: Transmitter, now_ns: int) -> int:
    """Reap, and kick where the kernel left something in TX; returns how many frames came home."""
    if transmitter.outstanding == 0:
        transmitter.progress_ns = 0
        return 0
    frames = reap(transmitter)
    if frames > 0 or transmitter.progress_ns == 0:
        transmitter.progress_ns = now_ns
    if transmitter.outstanding > 0 and now_ns >= transmitter.retry_ns:
        kick(transmitter)
        transmitter.retry_ns = now_ns + (DOWN_RETRY_NS if transmitter.down else RETRY_NS)
    return frames


@inlined
def mark_refused(transmitter: Transmitter) -> None:
    """The packet whose last descriptor was just consumed was not sent."""
    transmitter.refused += 1
    if transmitter.told_late:
        transmitter.refusals += 1
        return
    tx = ring_at(transmitter.tx)
    unconsumed(tx)
    position = (tx.remote - 1) & INDEX_MASK
    address = as_i64(tx.entries + ((position & tx.mask) << 4))[0]
    memory = memory_at(transmitter.memory)
    frame = frame_of(memory, address)
    if frame >= 0:
        line = packet_line(memory.table, frame)
        line.state = i64(line.state) | REFUSED


@inlined
def reap(transmitter: Transmitter) -> int:
    """Take completed frames home, to the pool that each belongs to; a packet is sent when its last frame is.

    Returns how many frames came.
    """
    memory = memory_at(transmitter.memory)
    table = memory.table
    strays = transmitter.strays
    lock(memory, transmitter.memory)  # sockets that share the queue share COMPLETION
    completion = ring_at(transmitter.completion)
    done = available(completion, transmitter.outstanding)
    for number in range(done):
        frame = frame_of(memory, read_address(completion, number))
        if frame < 0:
            transmitter.strays += 1
            continue
        line = packet_line(table, frame)
        pool = pool_of(memory, line)
        if not move(pool, line, frame, TX, FREE):
            transmitter.strays += 1
            continue
        books = books_at(pool.books)
        books.in_flight_frames -= 1
        state = i64(line.state)
        if state & LAST:
            length = i64(line.length)
            transmitter.outstanding_packets -= 1
            refused = (state & REFUSED) != 0
            if transmitter.refusals > 0:
                transmitter.refusals -= 1
                refused = True
            if refused:
                count_drop(books, TX_REFUSED, length)
            else:
                books.sent += 1
                books.sent_bytes += length
                books.in_flight -= 1
                books.in_flight_bytes -= length
            give_frame(pool, frame if state & SET == 0 else i64(line.next))
        elif state & SET == 0:
            give_frame(pool, frame)
    release(completion, done)
    unlock(memory, transmitter.memory)
    frames = done - (transmitter.strays - strays)
    transmitter.outstanding -= frames
    return frames
