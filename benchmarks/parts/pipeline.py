"""Part `engine`, second half: the whole generated pipeline loss + bottleneck + delay, in virtual time.

64 packets in groups of eight of equal time make a batch; the bottleneck is overloaded by 2 %, its queue of 50 packets
is full, and one packet in a hundred is lost before it. Every packet takes a frame and its line is written before;
whatever leaves is taken out of the exit FIFO, its line is read, and its frame goes home. All that is in the figure.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from measure import Paired, Result, cpu_ns, interleave, median_interval, paired_result, pinned
from twins import check_layout, function, load
from xskit.engine.fifo import drop_head, fifo_at, first_time, head_packet
from xskit.engine.packets import counters_at
from xskit.engine.pipe import Pipe, pipe_at
from xskit.engine.pipeline import Pipeline
from xskit.engine.records import Exit
from xskit.engine.stage import Capacity, Stage
from xskit.jit import call_pointer, compiled, inlined
from xskit.memory import I64, Record, Region, record_at, record_view, size_of
from xskit.stages import delay, loss
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.delay import Delay
from xskit.stages.loss import Loss
from xskit.stages.queues import droptail
from xskit.units import QueueLimit
from xskit.xsk.path.lines import NIL, packet_line
from xskit.xsk.path.pool import FREE, HELD, give_packet, memory_at, move, pool_at, take_frame
from xskit.xsk.path.receive import ARRIVAL_BYTES, Arrival, arrival_at
from xskit.xsk.path.table import FramePool, PacketTable

BURST = 64
STEP_NS = 100
LENGTH = 1000
RATE_BPS = round(LENGTH * 8 / (1.03 * STEP_NS) * 1e9)
ABSOLUTE_NS = 60


class Drive(Record):
    """What the driver knows; the twin's `struct drive`."""

    run: I64
    block: I64
    batch: I64
    clock_ns: I64
    step_ns: I64
    checksum: I64  # wraps


drive_at = record_at(Drive)


@inlined
def feed(pipe: Pipe, batch: int, begin_ns: int, step_ns: int) -> None:
    """A batch of arrivals, counted in."""
    counters = counters_at(pipe.counters)
    pool = pool_at(pipe.pool)
    for number in range(64):
        time_ns = begin_ns + (number >> 3) * 8 * step_ns
        handle = take_frame(pool)
        packet = packet_line(pipe.table, handle)
        move(pool, packet, handle, FREE, HELD)
        packet.arrived_ns = time_ns
        packet.length = 1000
        packet.frames = 1
        packet.fragment = NIL
        counters.received += 1
        counters.received_bytes += 1000
        counters.in_flight += 1
        counters.in_flight_bytes += 1000
        counters.in_flight_frames += 1
        arrival = arrival_at(batch + number * ARRIVAL_BYTES)
        arrival.time_ns = time_ns
        arrival.handle = handle
        arrival.length = 1000


@inlined
def drain(drive: Drive, pipe: Pipe) -> None:
    """Take out what has left, as sent."""
    leaving = fifo_at(pipe.exits)
    counters = counters_at(pipe.counters)
    memory = memory_at(pipe.memory)
    while leaving.head != leaving.tail:
        time_ns = first_time(leaving)
        packet = head_packet(leaving)
        drop_head(leaving)
        handle = packet & 0xFFFF_FFFF
        length = packet >> 32
        counters.sent += 1
        counters.sent_bytes += length
        counters.in_flight -= 1
        counters.in_flight_bytes -= length
        spent_ns = time_ns - packet_line(pipe.table, handle).arrived_ns
        drive.checksum += counters.sent * (spent_ns + handle)
        counters.in_flight_frames -= give_packet(memory, handle)


@compiled("int64(int64, int64)")
def drive_pipeline(address: int, bursts: int) -> int:
    """So many batches through the pipeline; returns the packets sent since the beginning."""
    drive = drive_at(address)
    pipe = pipe_at(drive.block)
    for _ in range(bursts):
        begin_ns = drive.clock_ns
        drive.clock_ns = begin_ns + 64 * drive.step_ns
        feed(pipe, drive.batch, begin_ns, drive.step_ns)
        call_pointer(drive.run, drive.block, drive.batch, 64, drive.clock_ns - 1)
        drain(drive, pipe)
    return counters_at(pipe.counters).sent


def stages(in_flight: int) -> list[Stage]:
    """Loss, bottleneck, delay: so many packets are held at a step a packet."""
    return [
        Loss(0.01),
        Bottleneck(RATE_BPS, limit=QueueLimit(unit="packets", value=50)),
        Delay(in_flight * STEP_NS),
    ]


class Bench:
    """One pipeline with its frames, ready to be driven."""

    def __init__(self, in_flight: int) -> None:
        frames = in_flight + 16 * BURST
        self.table = PacketTable(frames)
        self.frames = FramePool(self.table, 0, frames)
        self.pipeline = Pipeline(
            stages(in_flight),
            pool=self.frames,
            capacity=Capacity(frames, 2 * in_flight * STEP_NS),
            seed=1,
            name="benchmark",
        )
        self.memory = Region(size_of(Drive) + BURST * ARRIVAL_BYTES)
        self.address = self.memory.address
        self.view = record_view(Drive, self.address)
        self.view.run, self.view.block = self.pipeline.run, self.pipeline.block
        self.view.batch = self.address + size_of(Drive)
        self.view.step_ns, self.view.clock_ns = STEP_NS, STEP_NS
        self.twin_addresses = pipeline_addresses(self.pipeline)

    @property
    def twin(self) -> int:
        """Address of the twin's `struct pipeline`."""
        return int(self.twin_addresses.ctypes.data)

    def numbers(self) -> list[int]:
        """Everything that is counted, and the checksum of all departures."""
        block = self.pipeline.reading()._array(0, self.pipeline.reading_bytes // 8)
        # Records hold addresses of their own memory too: these differ, and say nothing.
        low, high = self.pipeline.block, self.pipeline.block + self.pipeline._arena.size
        foreign = {self.table.address, self.table.memory, self.frames.address}
        return [n for n in block.tolist() if not low <= n < high and n not in foreign] + [self.view.checksum]

    def close(self) -> None:
        """Give the memory back."""
        self.memory.close()
        self.pipeline.close()
        self.frames.close()
        self.table.close()


def pipeline_addresses(pipeline: Pipeline) -> np.ndarray[Any, Any]:
    """The twin's `struct pipeline` over a pipeline's own records: loss, bottleneck, delay."""
    places = pipeline._places
    at = pipeline.block
    lost, neck, late = places
    return np.array(
        [
            at,
            *(at + lost.state, at + lost.parameters, at + lost.random),
            *(at + neck.state, at + neck.parameters),
            *(at + late.state, at + late.parameters, at + late.random),
        ],
        np.int64,
    )


def twin_library() -> ctypes.CDLL:
    """The C pipeline, checked against the stages' records."""
    library = load("pipeline")
    records = (loss.Parameters, loss.State, droptail.Parameters, droptail.State, delay.Parameters, delay.State)
    check_layout(library, "pipeline_sizes", (*records, Pipe, Exit, Arrival, Drive))
    return library


def measure_pipeline(in_flight: int, rounds: int) -> Paired:
    """Both implementations in turns over one and the same pipeline; ns of CPU time a packet."""
    twin = function(twin_library(), "drive_pipeline", 3)
    check_equal(twin)
    bench = Bench(in_flight)
    bursts = max(2000, in_flight // BURST // 8)
    try:
        drive_pipeline(bench.address, in_flight * 5 // 2 // BURST)
        return interleave(
            lambda: cpu_ns(lambda: drive_pipeline(bench.address, bursts)) / (bursts * BURST),
            lambda: cpu_ns(lambda: twin(bench.address, bench.twin, bursts)) / (bursts * BURST),
            rounds,
        )
    finally:
        bench.close()


def check_equal(twin: Any) -> None:
    """Each over memory of its own, from the same beginning: equal counters and departures, or no comparison."""
    ours, theirs = Bench(10_000), Bench(10_000)
    drive_pipeline(ours.address, 1000)
    twin(theirs.address, theirs.twin, 1000)
    numbers = ours.numbers(), theirs.numbers()
    dropped = ours.pipeline.reading().dropped()
    ours.close()
    theirs.close()
    if numbers[0] != numbers[1]:
        raise SystemExit("pipeline: the twin counts otherwise")
    if not dropped[1][0] or not dropped[2][0]:
        raise SystemExit("pipeline: nothing was dropped, so not everything was compared")


def run(cpu: int, quick: bool) -> list[Result]:
    """The lines of the table."""
    with pinned(cpu):
        paired = measure_pipeline(100_000, 40 if quick else 200)
    what = "loss + bottleneck + delay, 100,000 in flight"
    middle, low, high = median_interval(paired.ours)
    return [
        Result(
            "engine",
            what,
            f"{middle:.1f} ns/packet [{low:.1f}, {high:.1f}]",
            f"C twin {np.median(paired.twin):.1f}",
            f"<= {ABSOLUTE_NS} ns",
            middle <= ABSOLUTE_NS,
            {"ours": middle, "low": low, "high": high},
        ),
        paired_result("engine", what, paired, None),
    ]
