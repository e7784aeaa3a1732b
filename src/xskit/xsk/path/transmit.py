"""From packets into TX, past the kernel, and home through COMPLETION: the one way out.

What sendto says stands in xsk/path/calls.py.
"""

from __future__ import annotations

from xskit.jit import as_i64, fused, i64, inlined, unlikely
from xskit.memory import I64, Record, record_at, size_of
from xskit.xsk.path.books import TX_REFUSED, Books, books_at, count_drop
from xskit.xsk.path.calls import EAGAIN, EBUSY, ENETDOWN, ENOBUFS, ENODEV, ENXIO, kick_transmit
from xskit.xsk.path.lines import LAST, NIL, REFUSED, SET, packet_line
from xskit.xsk.path.pool import (
    FREE,
    HELD,
    TX,
    PacketMemory,
    Pool,
    frame_of,
    free_frame_at,
    lock,
    memory_at,
    move,
    pool_at,
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
    packets: I64  # handed over
    refused: I64  # of these, the ones that the kernel refused to send
    down: I64  # errno while the port cannot send, else 0
    failure: I64  # errno of a call that failed for a reason not known here, else 0
    progress_ns: I64  # when a completion came last while some were awaited; 0 when none are
    retry_ns: I64  # when to kick again what the kernel left in TX
    kicks: I64
    strays: I64  # completed addresses that named no frame in TX; they are skipped


transmitter_at = record_at(Transmitter)
TRANSMITTER_BYTES = size_of(Transmitter)


@fused
def write_packet(transmitter: Transmitter, tx: Ring, descriptors: int, handle: int, origin: int = HELD) -> int:
    """Write a packet's descriptors behind the `descriptors` already written, where there is room for them; returns the
    new number, or the same one where a frame of it is elsewhere than at `origin`: then it stays where it is. `submit`
    hands them over. The origin is FREE where the packet lies ready in a pool.
    """
    memory = memory_at(transmitter.memory)
    line = packet_line(memory.table, handle)
    if i64(line.fragment) != NIL:
        return write_frames(transmitter, tx, descriptors, handle, origin)
    if not move(pool_of(memory, line), line, handle, origin, TX):
        return descriptors
    write_descriptor(tx, descriptors, line.address - memory.base, i64(line.span), 0)
    state = i64(line.state) & SET
    if state == 0:
        line.next = transmitter.number
    line.state = state | LAST
    return descriptors + 1


@inlined
def write_frames(transmitter: Transmitter, tx: Ring, descriptors: int, handle: int, origin: int) -> int:
    """As `write_packet`, a packet of several frames."""
    memory = memory_at(transmitter.memory)
    table, base = memory.table, memory.base
    before = descriptors
    frame = handle
    while frame != NIL:
        part = packet_line(table, frame)
        if not move(pool_of(memory, part), part, frame, origin, TX):
            take_back(memory, handle, frame, origin)
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
def take_back(memory: PacketMemory, handle: int, end: int, origin: int) -> None:
    """The frames of a packet before frame `end`, which no descriptor shows to the kernel yet, are where they were."""
    while handle != end:
        line = packet_line(memory.table, handle)
        move(pool_of(memory, line), line, handle, TX, origin)
        handle = i64(line.fragment)


@inlined
def submit(transmitter: Transmitter, tx: Ring, descriptors: int, packets: int) -> None:
    """Hand over what `write_packet` wrote."""
    transmitter.outstanding += descriptors
    transmitter.outstanding_packets += packets
    transmitter.packets += packets
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
def kick_by_hand(transmitter: Transmitter) -> None:
    """One sendto where the kernel asks for it; COMPLETION stays as it is. Sets `down` or `failure`."""
    tx = ring_at(transmitter.tx)
    transmitter.down = 0
    if unconsumed(tx) == 0 or not (transmitter.always or needs_wakeup(tx)):
        return
    code = kick_transmit(transmitter.fd)
    transmitter.kicks += 1
    if code in (ENETDOWN, ENXIO, ENODEV):
        transmitter.down = code
    elif code == EBUSY:
        mark_refused(transmitter)
    elif code not in (0, EAGAIN, ENOBUFS):
        transmitter.failure = code


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
    lock(memory, transmitter.memory)  # sockets that share the queue share COMPLETION
    completion = ring_at(transmitter.completion)
    done = available(completion, transmitter.outstanding)
    home = i64(0)
    pool = pool_at(memory.pools)
    books, free = books_at(pool.books), pool.count
    frames = packets = length = strays = ended = i64(0)
    for number in range(done):
        frame = frame_of(memory, read_address(completion, number))
        if unlikely(frame < 0):
            strays += 1
            continue
        line = packet_line(table, frame)
        if i64(line.home) != home:
            if frames > 0:
                settle(pool, books, free, frames, packets, length)
            home = i64(line.home)
            pool = pool_of(memory, line)
            books = books_at(pool.books)
            free, frames, packets, length = pool.count, i64(0), i64(0), i64(0)
        if unlikely(not move(pool, line, frame, TX, FREE)):
            strays += 1
            continue
        frames += 1
        state = i64(line.state)
        if state & LAST:
            ended += 1
            if unlikely(is_refused(transmitter, state)):
                count_drop(books, TX_REFUSED, i64(line.length))
            else:
                packets += 1
                length += i64(line.length)
        elif state & SET:
            continue
        free_frame_at(pool.frames + (free << 2)).frame = frame if state & SET == 0 else i64(line.next)
        free += 1
    if frames > 0:
        settle(pool, books, free, frames, packets, length)
    if done > 0:
        release(completion, done)
    transmitter.strays += strays
    transmitter.outstanding_packets -= ended
    transmitter.outstanding -= done - strays
    unlock(memory, transmitter.memory)
    return done - strays


@inlined
def is_refused(transmitter: Transmitter, state: int) -> bool:
    """Whether the kernel refused the packet whose last frame has come back in that state."""
    if unlikely(transmitter.refusals > 0):
        transmitter.refusals -= 1
        return True
    return (state & REFUSED) != 0


@inlined
def settle(pool: Pool, books: Books, free: int, frames: int, packets: int, length: int) -> None:
    """Note what came home to a pool: it is counted in one step, for nearly all of a batch comes home to the same."""
    pool.count = free
    books.in_flight_frames -= frames
    books.sent += packets
    books.sent_bytes += length
    books.in_flight -= packets
    books.in_flight_bytes -= length
