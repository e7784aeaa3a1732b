"""What a stage says of a packet, and what the engine then does.

A verdict is one word: the kind in its low byte, an argument above.

    PASS         it goes on to the next stage
    DROP  cause  its frames go home, and it is counted under the cause
    MARK         it is marked as having met congestion (ECN CE, RFC 3168), and goes on; one that is not ECN-capable,
                 or no IP, goes on unmarked
    DUPLICATE    it goes on, and a copy of it behind it; without a free frame there is no copy
    HOLD         the stage keeps it (only holding stages, from `push`)
    INJECT cause the stage has turned it into a packet of its own (an ICMP answer) in the same memory, and may have
                 changed its length and chosen its egress: the packet that came counts as dropped under the cause, the
                 new one as injected, and it leaves at once, behind what leaves earlier

A kind says which verdicts its functions may return (`StageKind.verdicts`); only those are compiled into a pipeline.
"""

from __future__ import annotations

from enum import IntEnum

from xskit.engine.packets import DropCause, counters_at
from xskit.engine.pipe import pipe_at
from xskit.jit import as_i64, as_u8, as_u16, i64, inlined
from xskit.xsk.path.books import count_drop
from xskit.xsk.path.lines import NIL, forget_packet, packet_line
from xskit.xsk.path.pool import FREE, HELD, PacketMemory, give_packet, memory_at, move, pool_at, take_frame


class Verdict(IntEnum):
    """The kinds of verdict."""

    PASS = 0
    DROP = 1
    MARK = 2
    DUPLICATE = 3
    HOLD = 4
    INJECT = 5


PASS = int(Verdict.PASS)
HOLD = int(Verdict.HOLD)
MARK = int(Verdict.MARK)
DUPLICATE = int(Verdict.DUPLICATE)


def drop(cause: DropCause) -> int:
    """The verdict DROP with a cause, as a number for compiled code."""
    return int(Verdict.DROP) | int(cause) << 8


def inject(cause: DropCause) -> int:
    """The verdict INJECT with the cause under which the packet that came is counted."""
    return int(Verdict.INJECT) | int(cause) << 8


@inlined
def discard(block: int, handle: int, length: int, cause: int) -> None:
    """Carry out DROP."""
    pipe = pipe_at(block)
    counters = counters_at(pipe.counters)
    count_drop(counters, cause, length)
    counters.in_flight_frames -= give_packet(memory_at(pipe.memory), handle)


@inlined
def replace(block: int, handle: int, length: int, cause: int) -> int:
    """Carry out INJECT, but for the leaving; returns the new packet's length."""
    pipe = pipe_at(block)
    counters = counters_at(pipe.counters)
    count_drop(counters, cause, length)
    new_length = i64(packet_line(pipe.table, handle).length)
    counters.injected += 1
    counters.injected_bytes += new_length
    counters.in_flight += 1
    counters.in_flight_bytes += new_length
    return new_length


@inlined
def duplicate(block: int, handle: int) -> int:
    """A copy of a packet in frames of its own, counted; NIL when there are no frames for it."""
    pipe = pipe_at(block)
    pool = pool_at(pipe.pool)
    counters = counters_at(pipe.counters)
    packet = packet_line(pipe.table, handle)
    frames = i64(packet.frames)
    if pool.count < frames or counters.in_flight_frames + frames > pipe.capacity_frames:
        return NIL
    first = i64(NIL)
    behind = i64(NIL)
    part = handle
    while part != NIL:
        copy = take_frame(pool)
        move(pool, packet_line(pipe.table, copy), copy, FREE, HELD)
        _copy_line(memory_at(pipe.memory), part, copy)
        if first == NIL:
            first = copy
        else:
            packet_line(pipe.table, behind).fragment = copy
        behind = copy
        part = i64(packet_line(pipe.table, part).fragment)
    counters.duplicated += 1
    counters.duplicated_bytes += i64(packet.length)
    counters.in_flight += 1
    counters.in_flight_bytes += i64(packet.length)
    counters.in_flight_frames += frames
    counters.peak_frames = max(counters.peak_frames, counters.in_flight_frames)
    return first


@inlined
def _copy_line(memory: PacketMemory, origin: int, copy: int) -> None:
    """Line and bytes of one frame; without packet memory (virtual time) the line alone."""
    line = packet_line(memory.table, origin)
    target = packet_line(memory.table, copy)
    forget_packet(target)
    target.arrived_ns = line.arrived_ns
    target.length = line.length
    target.span = line.span
    target.frames = line.frames
    target.flow = line.flow
    target.kind = line.kind
    target.transport = line.transport
    target.network = line.network
    target.protocol = line.protocol
    target.egress = line.egress
    target.copy = i64(line.copy) + 1
    if memory.base == 0:
        target.address = line.address
        return
    target.address = line.address + (copy - origin) * memory.frame_bytes
    span = i64(line.span)
    words, new_words = as_i64(line.address), as_i64(target.address)
    for word in range(span >> 3):
        new_words[word] = words[word]
    old_bytes, new_bytes = as_u8(line.address), as_u8(target.address)
    for byte in range(span & ~7, span):
        new_bytes[byte] = old_bytes[byte]


@inlined
def mark(block: int, handle: int) -> None:
    """Carry out MARK: ECT becomes CE in an IPv4 or IPv6 packet without VLAN tag, and the IPv4 checksum follows."""
    pipe = pipe_at(block)
    packet = packet_line(pipe.table, handle)
    if memory_at(pipe.memory).base == 0 or packet.span < 34:
        return
    kind = i64(as_u16(packet.address + 12)[0])  # in memory order
    field = as_u8(packet.address + 14)
    if kind == 0x0008:
        ecn = i64(field[1]) & 3
        if ecn == 0 or ecn == 3:
            return
        old = (i64(field[0]) << 8) | i64(field[1])
        field[1] = i64(field[1]) | 3
        new = (i64(field[0]) << 8) | i64(field[1])
        stored = ((i64(field[10]) << 8) | i64(field[11])) ^ 0xFFFF
        total = stored + (old ^ 0xFFFF) + new  # RFC 1624, equation 3
        total = (total & 0xFFFF) + (total >> 16)
        total = ((total & 0xFFFF) + (total >> 16)) ^ 0xFFFF
        field[10] = total >> 8
        field[11] = total & 0xFF
    elif kind == 0xDD86:
        ecn = (i64(field[1]) >> 4) & 3
        if ecn == 0 or ecn == 3:
            return
        field[1] = i64(field[1]) | 0x30
    else:
        return
    counters_at(pipe.counters).marked += 1
