"""The end of a socket: every frame that it had goes home, or to the sockets that share its queue.

    end_receiving     the last batch, and what was not read from RX, go home
    end_sending       drafts, what is completed, and what the kernel has not taken from TX, go home
    hand_over_...     what the kernel still has counts for another socket of the queue from now on
    take_back         the kernel has let go of the queue: what it had goes home

The first two come before the kernel socket is closed; `take_back` comes after, with the last socket of the queue.
"""

from __future__ import annotations

from xskit.jit import compiled, i64, inlined
from xskit.xsk.path.entry import end_batch, end_drafts, inbox_at, outbox_at
from xskit.xsk.path.lines import NIL, packet_line
from xskit.xsk.path.pool import (
    FILL,
    FREE,
    TX,
    PacketMemory,
    frame_of,
    give_frame,
    give_packet,
    lock,
    memory_at,
    move,
    pool_of,
    unlock,
)
from xskit.xsk.path.receive import receiver_at
from xskit.xsk.path.rings import available, descriptor_address, publish, release, ring_at, unconsumed
from xskit.xsk.path.transmit import reap, transmitter_at


@inlined
def take_home(memory: PacketMemory, frame: int, owner: int) -> int:
    """A frame that the kernel had goes home; 1, or 0 where it is none that it had."""
    if frame < 0:
        return i64(0)
    line = packet_line(memory.table, frame)
    pool = pool_of(memory, line)
    if not move(pool, line, frame, owner, FREE):
        return i64(0)
    give_frame(pool, frame)
    return i64(1)


@compiled("int64(int64)")
def end_receiving(address: int) -> int:
    """The receiving side is closed for good: the last batch, an incomplete packet and what was not read go home.

    Returns how many frames were not read.
    """
    inbox = inbox_at(address)
    receiver = receiver_at(inbox.receiver)
    memory = memory_at(receiver.memory)
    inbox.open = 0
    lock(memory, receiver.memory)
    end_batch(memory, inbox)
    if receiver.head != NIL:
        give_packet(memory, receiver.head)
        receiver.head = NIL
    rx = ring_at(receiver.rx)
    ready = available(rx, i64(rx.size))
    unread = i64(0)
    for number in range(ready):
        unread += take_home(memory, frame_of(memory, descriptor_address(rx, number)), FILL)
    release(rx, ready)
    receiver.filled -= unread
    unlock(memory, receiver.memory)
    return unread


@compiled("int64(int64)")
def end_sending(address: int) -> int:
    """The sending side is closed for good: drafts go home, and what was completed; and what the kernel has not taken
    from TX, where it takes packets only when it is called.

    Returns how many frames the kernel still has.
    """
    outbox = outbox_at(address)
    end_drafts(address)
    transmitter = transmitter_at(outbox.transmitter)
    memory = memory_at(transmitter.memory)
    outbox.open = 0
    reap(transmitter)
    if transmitter.zero_copy == 0 and transmitter.told_late == 0:
        lock(memory, transmitter.memory)
        tx = ring_at(transmitter.tx)
        left = unconsumed(tx)
        publish(tx, -left)
        for number in range(left):
            transmitter.outstanding -= take_home(memory, frame_of(memory, descriptor_address(tx, number)), TX)
        unlock(memory, transmitter.memory)
    return i64(transmitter.outstanding)


@compiled("int64(int64, int64)")
def hand_over_filled(address: int, target: int) -> int:
    """What an Inbox has given to FILL and not got back counts for the Inbox at `target` from now on."""
    receiver, other = receiver_at(inbox_at(address).receiver), receiver_at(inbox_at(target).receiver)
    memory = memory_at(receiver.memory)
    lock(memory, receiver.memory)
    other.filled += receiver.filled
    receiver.filled = 0
    unlock(memory, receiver.memory)
    return 0


@compiled("int64(int64, int64)")
def hand_over_sent(address: int, target: int) -> int:
    """What an Outbox has given to TX and not got back counts for the Outbox at `target` from now on."""
    transmitter, other = transmitter_at(outbox_at(address).transmitter), transmitter_at(outbox_at(target).transmitter)
    memory = memory_at(transmitter.memory)
    lock(memory, transmitter.memory)
    other.outstanding += transmitter.outstanding
    other.outstanding_packets += transmitter.outstanding_packets
    transmitter.outstanding = 0
    transmitter.outstanding_packets = 0
    unlock(memory, transmitter.memory)
    return 0


@compiled("int64(int64, int64)")
def take_back(address: int, number: int) -> int:
    """The kernel has let go of a queue: the frames that it had from sockets of that number go home.

    The address is that of the PacketMemory. Returns how many frames.
    """
    memory = memory_at(address)
    found = i64(0)
    lock(memory, address)
    for frame in range(memory.frames):
        line = packet_line(memory.table, frame)
        owner = i64(line.owner)
        if owner in (FILL, TX) and i64(line.next) == number:
            found += take_home(memory, frame, owner)
    unlock(memory, address)
    return found
