"""Part `engine`, first half: the delay stores alone, FIFO and timing wheel, against their C twins.

One packet every step: it takes a frame, its line in the packet table is written, it is pushed; 64 steps later whatever
is due is popped, its line is read, and its frame goes home. What is popped, when and in which order, must be equal.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from measure import Paired, Result, cpu_ns, interleave, paired_result, pinned
from twins import check_layout, function, load
from xskit.engine import fifo, wheel
from xskit.engine.fifo import Fifo, drop_head, fifo_at, first_time, head_packet, head_time
from xskit.engine.packets import Counters
from xskit.engine.random import Random, random_at, seed_stream, uniform
from xskit.engine.sizes import ENTRY_BYTES, capacity_for
from xskit.engine.wheel import Wheel, wheel_at
from xskit.jit import compiled, i64, inlined
from xskit.memory import I64, Arena, Record, record_at, record_view, size_of
from xskit.xsk.path.books import Books
from xskit.xsk.path.lines import PacketLine, packet_line
from xskit.xsk.path.pool import PacketMemory, Pool, give_frame, pool_at, take_frame
from xskit.xsk.path.table import FramePool, PacketTable

BURST = 64
LENGTH = 1000
STEP_NS = 100
LIMIT = 1.15


class Drive(Record):
    """What a driver knows; the twin's `struct drive`."""

    store: I64
    pool: I64
    table: I64
    random: I64
    clock_ns: I64
    step_ns: I64
    owd_ns: I64
    jitter_ns: I64
    departed: I64
    checksum: I64  # wraps


drive_at = record_at(Drive)


@inlined
def enter(pool: Pool, table: int, time_ns: int) -> int:
    """A packet comes in."""
    handle = take_frame(pool)
    packet = packet_line(table, handle)
    packet.arrived_ns = time_ns
    packet.length = 1000
    return handle


@inlined
def leave(drive: Drive, pool: Pool, table: int, handle: int, time_ns: int) -> None:
    """A packet goes out."""
    drive.departed += 1
    spent_ns = time_ns - packet_line(table, handle).arrived_ns
    drive.checksum += drive.departed * (spent_ns + handle)
    give_frame(pool, handle)


@compiled("int64(int64, int64)")
def drive_fifo(address: int, bursts: int) -> int:
    """So many bursts through the FIFO; returns the packets that came out since the beginning."""
    drive = drive_at(address)
    store = fifo_at(drive.store)
    pool = pool_at(drive.pool)
    table, step_ns, owd_ns, now_ns = drive.table, drive.step_ns, drive.owd_ns, drive.clock_ns
    for _ in range(bursts):
        now_ns += 64 * step_ns
        while head_time(store) <= now_ns:
            time_ns = first_time(store)
            packet = head_packet(store)
            drop_head(store)
            leave(drive, pool, table, packet & 0xFFFF_FFFF, time_ns)
        for number in range(64):
            time_ns = now_ns - (63 - number) * step_ns
            handle = enter(pool, table, time_ns)
            fifo.push(store, time_ns + owd_ns, handle, i64(1000))
    drive.clock_ns = now_ns
    return drive.departed


@compiled("int64(int64, int64)")
def drive_wheel(address: int, bursts: int) -> int:
    """So many bursts through the wheel; returns the packets that came out since the beginning."""
    drive = drive_at(address)
    store = wheel_at(drive.store)
    pool = pool_at(drive.pool)
    random = random_at(drive.random)
    table, step_ns, owd_ns, now_ns = drive.table, drive.step_ns, drive.owd_ns, drive.clock_ns
    for _ in range(bursts):
        now_ns += 64 * step_ns
        while wheel.next_time(store) <= now_ns:
            handle = wheel.pop(store, table)
            leave(drive, pool, table, handle, packet_line(table, handle).time_ns)
        for number in range(64):
            time_ns = now_ns - (63 - number) * step_ns
            handle = enter(pool, table, time_ns)
            jitter_ns = i64(drive.jitter_ns * (2.0 * uniform(random) - 1.0))
            wheel.push(store, table, time_ns + owd_ns + jitter_ns, handle)
    drive.clock_ns = now_ns
    return drive.departed


class Bench:
    """One store with its frames, ready to be driven."""

    def __init__(self, kind: str, in_flight: int) -> None:
        frames = in_flight + in_flight // 4 + 4 * BURST
        self.table = PacketTable(frames)
        self.frames = FramePool(self.table, 0, frames)
        owd_ns = in_flight * STEP_NS
        buckets, shift = wheel.ticks_for(2 * owd_ns)
        entries = capacity_for(frames)
        arena = Arena()
        drive, store, stream = arena.reserve(size_of(Drive)), arena.reserve(64), arena.reserve(size_of(Random))
        memory = arena.reserve(entries * ENTRY_BYTES if kind == "fifo" else wheel.memory_for(buckets))
        base = arena.open()
        self._arena = arena
        self.address = base + drive
        self.view = record_view(Drive, self.address)
        self.view.store, self.view.random = base + store, base + stream
        self.view.pool, self.view.table = self.frames.address, self.table.address
        self.view.step_ns, self.view.owd_ns, self.view.jitter_ns = STEP_NS, owd_ns, owd_ns // 10
        seed_stream(record_view(Random, base + stream), 1, "benchmark")
        if kind == "fifo":
            view = record_view(Fifo, base + store)
            view.entries, view.mask = base + memory, entries - 1
        else:
            wheel.place(record_view(Wheel, base + store), base + memory, buckets, shift)

    def close(self) -> None:
        """Give the memory back."""
        self._arena.close()
        self.frames.close()
        self.table.close()


def check_equal(kind: str, in_flight: int) -> None:
    """Each implementation over memory of its own, from the same beginning: equal departures, or no comparison."""
    ours, twin = implementations(kind)
    results = []
    for run in (ours, twin):
        bench = Bench(kind, in_flight)
        run(bench.address, 3 * in_flight // BURST)
        results.append((bench.view.departed, bench.view.checksum))
        bench.close()
    if results[0] != results[1]:
        raise SystemExit(f"{kind}: the twin lets other packets out: {results}")


def measure_store(kind: str, in_flight: int, rounds: int) -> Paired:
    """Both implementations in turns over one and the same store; ns of CPU time a packet."""
    ours, twin = implementations(kind)
    bench = Bench(kind, in_flight)
    bursts = max(2000, in_flight // BURST // 8)
    try:
        ours(bench.address, in_flight * 5 // 2 // BURST)
        return interleave(
            lambda: cpu_ns(lambda: ours(bench.address, bursts)) / (bursts * BURST),
            lambda: cpu_ns(lambda: twin(bench.address, bursts)) / (bursts * BURST),
            rounds,
        )
    finally:
        bench.close()


def twin_library() -> ctypes.CDLL:
    """The C stores, checked against the engine's records."""
    library = load("stores")
    check_layout(library, "store_sizes", (PacketLine, PacketMemory, Pool, Books, Counters, Random, Fifo, Wheel, Drive))
    return library


def implementations(kind: str) -> tuple[Callable[[int, int], int], Callable[[int, int], int]]:
    """(ours, the twin)."""
    return {"fifo": drive_fifo, "wheel": drive_wheel}[kind], function(twin_library(), f"drive_{kind}", 2)


def run(cpu: int, quick: bool) -> list[Result]:
    """The lines of the table."""
    results = []
    with pinned(cpu):
        for kind in ("fifo", "wheel"):
            check_equal(kind, 10_000)
            for in_flight in (1_000, 100_000, 1_000_000):
                paired = measure_store(kind, in_flight, 40 if quick else 200)
                results.append(paired_result("engine", f"{kind} store, {in_flight:,} in flight", paired, LIMIT))
    return results
