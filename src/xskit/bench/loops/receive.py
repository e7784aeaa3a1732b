"""Receiving: drop, hand over to TX, check."""

from __future__ import annotations

from xskit.bench.loops.records import WINDOW, BenchQueue, Check, check_at
from xskit.bench.loops.transmit import collect, frame_mask, frame_of, kick, packet_at, swapped
from xskit.jit import as_i64, as_u8, as_u32, external, i64, inlined
from xskit.xsk.path.calls import kick_receive
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
    write_descriptor,
)

MAC_BYTES = 12
STAMP_BYTES = 16
"""sizeof(struct pktgen_hdr)."""

_memcmp = external("memcmp", "int32", "int64", "int64", "uint64")


@inlined
def wake_receive(queue: BenchQueue) -> None:
    """RX is empty: a driver may be waiting to be told of frames in FILL, or be polled by this very call."""
    if queue.busy_poll or needs_wakeup(ring_at(queue.fill)):
        queue.empty_polls += 1
        kick_receive(queue.fd)


@inlined
def arrived(queue: BenchQueue) -> int:
    """How many descriptors may be taken from RX now, and their frames put into FILL."""
    ready = available(ring_at(queue.rx), queue.batch)
    if ready == 0:
        wake_receive(queue)
        return 0
    free = room(ring_at(queue.fill), ready)
    if free < ready:
        queue.fill_fails += 1
    return free


@inlined
def drop(queue: BenchQueue) -> int:
    """rxdrop: count, and give the frames back; returns how many packets ended."""
    ready = arrived(queue)
    if ready == 0:
        return 0
    rx, fill = ring_at(queue.rx), ring_at(queue.fill)
    keep = frame_mask(queue)
    total = i64(0)  # of lengths in the low half; they cannot run over. The high half counts fragments that go on
    come, taken, come_mask = i64(rx.entries), i64(rx.local), i64(rx.mask)
    free, given, free_mask = as_i64(fill.entries), i64(fill.local), i64(fill.mask)
    for number in range(ready):
        descriptor = as_i64(come + (((taken + number) & come_mask) << 4))
        total += descriptor[1]
        free[(given + number) & free_mask] = descriptor[0] & keep
    queue.received += ready - (total >> 32)
    queue.received_bytes += total & 0xFFFF_FFFF
    queue.received_frames += ready
    publish(fill, ready)
    release(rx, ready)  # last: who sees RX empty sees all of it counted
    return ready


@inlined
def swap_macs(address: int) -> None:
    """Source and destination change places."""
    first, second = as_i64(address), as_u32(address + 8)
    a, b = first[0], i64(second[0])
    first[0] = ((a >> 48) & 0xFFFF) | (b << 16) | (a << 48)
    second[0] = (a >> 16) & 0xFFFF_FFFF


@inlined
def hand_over(source: BenchQueue, target: BenchQueue, swap: int) -> int:
    """l2fwd and forward: from RX of one queue to TX of another one, or of the same; returns how many descriptors."""
    collect(target, source)
    ready = available(ring_at(source.rx), source.batch)
    if ready == 0:
        wake_receive(source)
        return 0
    rx, tx = ring_at(source.rx), ring_at(target.tx)
    ready = room(tx, ready)
    packets = length = i64(0)
    continues = source.continues
    for number in range(ready):
        address, tail = descriptor_address(rx, number), descriptor_tail(rx, number)
        if swap and continues == 0:
            swap_macs(packet_at(source, address))
        continues = (tail >> 32) & 1
        write_descriptor(tx, number, address, tail & 0xFFFF_FFFF, continues)
        length += tail & 0xFFFF_FFFF
        packets += 1 - continues
        if target.last != 0:
            as_u8(target.last)[frame_of(target, address)] = 1 - continues
    source.continues = continues
    source.received += packets
    source.received_bytes += length
    source.received_frames += ready
    target.submitted += packets
    target.submitted_bytes += length
    target.outstanding += ready
    publish(tx, ready)
    release(rx, ready)
    kick(target)
    return ready


@inlined
def verify(queue: BenchQueue) -> int:
    """loss: compare what came with what was sent, and give the frames back; returns how many descriptors."""
    ready = arrived(queue)
    if ready == 0:
        return 0
    rx, fill = ring_at(queue.rx), ring_at(queue.fill)
    check = check_at(queue.check)
    packets = length = i64(0)
    for number in range(ready):
        address, tail = descriptor_address(rx, number), descriptor_tail(rx, number)
        span = tail & 0xFFFF_FFFF
        compare(check, packet_at(queue, address), span)
        length += span
        if ((tail >> 32) & 1) == 0:
            packets += 1
            if check.offset != check.length or check.bad:
                check.corrupted += 1
            check.offset = check.bad = 0
        write_address(fill, number, address & frame_mask(queue))
    queue.received += packets
    queue.received_bytes += length
    queue.received_frames += ready
    publish(fill, ready)
    release(rx, ready)  # last: who sees RX empty sees all of it counted
    return ready


@inlined
def compare(check: Check, address: int, span: int) -> None:
    """One fragment with its part of the template; the first one also has the number."""
    offset = check.offset
    check.offset += span
    if check.offset > check.length:
        check.bad = 1
        return
    if offset > 0:
        if _memcmp(address, check.template + offset, span) != 0:
            check.bad = 1
        return
    at = check.stamp_offset
    if at == 0:
        if _memcmp(address + MAC_BYTES, check.template + MAC_BYTES, span - MAC_BYTES) != 0:
            check.bad = 1
        return
    behind = at + STAMP_BYTES
    if (
        span < behind
        or _memcmp(address + MAC_BYTES, check.template + MAC_BYTES, at + 4 - MAC_BYTES) != 0
        or _memcmp(address + behind, check.template + behind, span - behind) != 0
    ):
        check.bad = 1
        return
    note_number(check, swapped(i64(as_u32(address + at)[1])))


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
