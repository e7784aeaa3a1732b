"""Latency: send one packet, wait until it is back, look at the clock."""

from __future__ import annotations

from xskit.bench.loops.records import BenchQueue, Echo, Source, echo_at, source_at
from xskit.bench.loops.transmit import is_due, put, regain, swapped
from xskit.engine.clock import read_clock
from xskit.engine.histogram import add
from xskit.jit import as_u32, i64, inlined
from xskit.xsk.path.lines import PacketLine, packet_line
from xskit.xsk.path.pool import give_packet, memory_at, pool_at
from xskit.xsk.path.receive import ARRIVAL_BYTES, arrival_at, receive, receiver_at, refill, wake
from xskit.xsk.path.transmit import kick, transmitter_at

PKTGEN_MAGIC = 0xBE9BE955


@inlined
def ping(queue: BenchQueue, scratch: int) -> int:
    """Send the next packet, or look whether the last one is back; returns 1 where one came back."""
    source, echo, transmitter = source_at(queue.source), echo_at(queue.echo), transmitter_at(queue.transmitter)
    regain(transmitter)
    if echo.waiting or source.halt or source.left == 0:
        return look(queue, source, echo, scratch)
    now_ns = read_clock(scratch)
    if pool_at(source.pool).count == 0 or (source.cycle_ns > 0 and not is_due(source, now_ns)):
        return look(queue, source, echo, scratch)
    echo.waiting = 1
    echo.sent_ns = now_ns
    put(source, transmitter, 1, scratch)
    kick(transmitter)
    return 0


@inlined
def look(queue: BenchQueue, source: Source, echo: Echo, scratch: int) -> int:
    """Take what is in RX; the packet that is waited for is the one with the latest number."""
    receiver = receiver_at(queue.receiver)
    frames = receiver.frames
    count = receive(receiver, queue.arrivals, 0, queue.batch)
    if receiver.frames == frames:
        wake(receiver, 0)
        if echo.waiting and read_clock(scratch) - echo.sent_ns > echo.patience_ns:
            echo.waiting = 0
            echo.lost += 1
        return 0
    now_ns = read_clock(scratch)
    memory = memory_at(receiver.memory)
    back = i64(0)
    for number in range(count):
        handle = arrival_at(queue.arrivals + number * ARRIVAL_BYTES).handle
        if echo.waiting and is_latest(source, packet_line(memory.table, handle)):
            note_time(echo, now_ns - echo.sent_ns)
            back = i64(1)
        else:
            echo.strangers += 1
        give_packet(memory, handle)
    refill(receiver)
    return back


@inlined
def is_latest(source: Source, packet: PacketLine) -> bool:
    """Whether it is the packet that was sent last."""
    if i64(packet.span) < source.stamp_offset + 16:
        return False
    words = as_u32(packet.address + source.stamp_offset)
    return swapped(i64(words[0])) == PKTGEN_MAGIC and swapped(i64(words[1])) == (source.sequence - 1) & 0xFFFF_FFFF


@inlined
def note_time(echo: Echo, round_trip_ns: int) -> None:
    """One more round trip."""
    echo.waiting = 0
    add(echo.histogram, round_trip_ns)
    echo.min_ns = round_trip_ns if echo.count == 0 else min(echo.min_ns, round_trip_ns)
    echo.max_ns = max(echo.max_ns, round_trip_ns)
    echo.sum_ns += round_trip_ns
    echo.count += 1
