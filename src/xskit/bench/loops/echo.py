"""Latency: send one packet, wait until it is back, look at the clock."""

from __future__ import annotations

from xskit.bench.loops.receive import wake_receive
from xskit.bench.loops.records import BenchQueue, Echo, Source, echo_at, source_at
from xskit.bench.loops.transmit import frame_mask, is_due, kick, packet_at, put, regain, swapped
from xskit.engine.clock import read_clock
from xskit.engine.histogram import add
from xskit.jit import as_u32, i64, inlined
from xskit.xsk.path.rings import (
    available,
    descriptor_address,
    descriptor_tail,
    publish,
    release,
    ring_at,
    room,
    write_address,
)

PKTGEN_MAGIC = 0xBE9BE955


@inlined
def ping(queue: BenchQueue, scratch: int) -> int:
    """Send the next packet, or look whether the last one is back; returns 1 where one came back."""
    source, echo = source_at(queue.source), echo_at(queue.echo)
    if queue.outstanding > 0:
        kick(queue)
        regain(queue, source)
    if echo.waiting:
        return look(queue, source, echo, scratch)
    if source.halt or source.left == 0:
        return look(queue, source, echo, scratch)
    now_ns = read_clock(scratch)
    if source.slot_count == 0 or (source.cycle_ns > 0 and not is_due(source, now_ns)):
        return look(queue, source, echo, scratch)
    echo.waiting = 1
    echo.sent_ns = now_ns
    put(queue, source, 1, scratch)
    kick(queue)
    return 0


@inlined
def look(queue: BenchQueue, source: Source, echo: Echo, scratch: int) -> int:
    """Take what is in RX; the packet that is waited for is the one with the latest number."""
    rx = ring_at(queue.rx)
    ready = available(rx, queue.batch)
    if ready == 0:
        wake_receive(queue)
        if echo.waiting and read_clock(scratch) - echo.sent_ns > echo.patience_ns:
            echo.waiting = 0
            echo.lost += 1
        return 0
    now_ns = read_clock(scratch)
    fill = ring_at(queue.fill)
    ready = room(fill, ready)
    back = i64(0)
    for number in range(ready):
        address, tail = descriptor_address(rx, number), descriptor_tail(rx, number)
        if queue.continues == 0:
            queue.received += 1
            words = as_u32(packet_at(queue, address) + source.stamp_offset)
            ours = (tail & 0xFFFF_FFFF) >= source.stamp_offset + 16 and swapped(i64(words[0])) == PKTGEN_MAGIC
            if echo.waiting and ours and swapped(i64(words[1])) == (source.sequence - 1) & 0xFFFF_FFFF:
                note_time(echo, now_ns - echo.sent_ns)
                back = i64(1)
            else:
                echo.strangers += 1
        queue.continues = (tail >> 32) & 1
        queue.received_bytes += tail & 0xFFFF_FFFF
        write_address(fill, number, address & frame_mask(queue))
    queue.received_frames += ready
    publish(fill, ready)
    release(rx, ready)
    return back


@inlined
def note_time(echo: Echo, round_trip_ns: int) -> None:
    """One more round trip."""
    echo.waiting = 0
    add(echo.histogram, round_trip_ns)
    echo.min_ns = round_trip_ns if echo.count == 0 else min(echo.min_ns, round_trip_ns)
    echo.max_ns = max(echo.max_ns, round_trip_ns)
    echo.sum_ns += round_trip_ns
    echo.count += 1
