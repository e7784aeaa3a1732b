"""Every verdict, carried out: drop, mark, duplicate, inject; and the exit that a stage chooses."""

from __future__ import annotations

import ipaddress
import struct

import numpy as np
import pytest

from tests.pure import support_verdicts as stages
from xskit.engine.fifo import Fifo
from xskit.engine.packets import DropCause
from xskit.engine.pipeline import Pipeline
from xskit.engine.stage import Capacity
from xskit.engine.virtual import VirtualPipeline
from xskit.engine.wheel import ticks_for
from xskit.jit import call_pointer, compiled
from xskit.memory import Region, array_at, record_view
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.delay import Delay
from xskit.stages.delay_free import FreeDelay
from xskit.xsk.path.lines import NIL, PacketLine
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.receive import ARRIVAL_BYTES
from xskit.xsk.path.table import FramePool, PacketTable

FRAME_SHIFT = 11
FRAMES = 16


@compiled("int64(int64, int64, int64, int64, int64)")
def run(function, block, batch, count, until_ns):
    return call_pointer(function, block, batch, count, until_ns)


def ipv4(ecn: int) -> bytes:
    """An Ethernet frame with an IPv4 header whose checksum is right."""
    source, target = (ipaddress.ip_address(text).packed for text in ("198.18.0.1", "198.18.0.2"))
    header = struct.pack("!BBHHHBBH", 0x45, 0xB8 | ecn, 40, 7, 0, 64, 17, 0) + source + target
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", ~total & 0xFFFF) + header[12:]
    return bytes(12) + b"\x08\x00" + header + bytes(range(20))


def ipv6(ecn: int) -> bytes:
    return bytes(12) + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28 | (0x2C | ecn) << 20, 8, 17, 64) + bytes(40)


def checksum_is_right(frame: bytes) -> bool:
    total = sum(struct.unpack("!10H", frame[14:34]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


class Bench:
    """A pipeline over real packet memory, without a kernel."""

    def __init__(self, verdict: int, *, egress: int = 0, exits: int = 1, frames: int = FRAMES) -> None:
        self.memory = Region(FRAMES << FRAME_SHIFT)
        self.table = PacketTable(FRAMES, base=self.memory.address, frame_bytes=1 << FRAME_SHIFT)
        self.pool = FramePool(self.table, 0, frames)
        self.pipeline = Pipeline(
            [stages.EveryThird(verdict, egress)],
            pool=self.pool,
            capacity=Capacity(FRAMES),
            exits=exits,
        )

    def send(self, *frames: bytes) -> None:
        counters = self.pipeline.counters
        for frame in frames:
            self.pool.view.count -= 1
            handle = int(array_at(self.pool.view.frames, FRAMES, np.uint32)[self.pool.view.count])
            self.table.lines["owner"][handle] = Owner.HELD
            address = self.memory.address + (handle << FRAME_SHIFT) + 256
            array_at(address, len(frame), np.uint8)[:] = np.frombuffer(frame, np.uint8)
            line = self.line(handle)
            line.address, line.length, line.span = address, len(frame), len(frame)
            line.fragment, line.frames, line.egress = NIL, 1, 0
            counters.received += 1
            counters.received_bytes += len(frame)
            counters.in_flight += 1
            counters.in_flight_bytes += len(frame)
            counters.in_flight_frames += 1
            with Region(ARRIVAL_BYTES) as batch:
                array_at(batch.address, 3, np.int64)[:] = (counters.received, handle, len(frame))
                run(self.pipeline.run, self.pipeline.block, batch.address, 1, counters.received)

    def line(self, handle: int) -> PacketLine:
        return record_view(PacketLine, self.table.address + 64 * handle)

    def left(self, number: int = 0) -> list[bytes]:
        """The frames in an exit, in order."""
        fifo: Fifo = self.pipeline.exits[number]
        entries = array_at(fifo.entries, 2 * (fifo.mask + 1), np.int64)
        handles = [int(entries[2 * (n & fifo.mask) + 1]) & 0xFFFF_FFFF for n in range(fifo.head, fifo.tail)]
        lines = [self.line(handle) for handle in handles]
        return [bytes(array_at(line.address, line.span, np.uint8)) for line in lines]

    def balanced(self) -> bool:
        counters = self.pipeline.counters
        drops = sum(count for count, _ in self.pipeline.reading().dropped())
        came = counters.received + counters.duplicated + counters.injected
        return came == drops + counters.in_flight and self.pool.view.violations == 0


@pytest.fixture
def bench(request):
    made = Bench(**request.param)
    yield made
    made.pipeline.close()
    made.pool.close()
    made.table.close()
    made.memory.close()


@pytest.mark.parametrize("bench", [{"verdict": stages.DROPPED}], indirect=True)
def test_drop_frees_the_frame_and_counts_the_cause(bench):
    bench.send(*(ipv4(0) + bytes([n]) for n in range(6)))
    assert [frame[-1] for frame in bench.left()] == [0, 1, 3, 4]
    assert bench.pipeline.reading().dropped()[DropCause.LOSS] == (2, 2 * len(ipv4(0) + b"x"))
    assert bench.pool.view.count == FRAMES - 4
    assert bench.balanced()


@pytest.mark.parametrize("bench", [{"verdict": stages.DUPLICATE}], indirect=True)
def test_a_duplicate_follows_its_packet_in_a_frame_of_its_own(bench):
    bench.send(*(ipv4(0) + bytes([n]) for n in range(4)))
    assert [frame[-1] for frame in bench.left()] == [0, 1, 2, 2, 3]
    assert bench.left()[2] == bench.left()[3]
    counters = bench.pipeline.counters
    assert (counters.duplicated, counters.duplicated_bytes, counters.in_flight) == (1, len(ipv4(0)) + 1, 5)
    assert counters.in_flight_frames == 5
    assert bench.balanced()


@pytest.mark.parametrize("bench", [{"verdict": stages.DUPLICATE, "frames": 3}], indirect=True)
def test_without_a_free_frame_there_is_no_duplicate(bench):
    bench.send(*(ipv4(0) for _ in range(3)))
    assert len(bench.left()) == 3
    assert bench.pipeline.counters.duplicated == 0
    assert bench.balanced()


@pytest.mark.parametrize("bench", [{"verdict": stages.MARK}], indirect=True)
@pytest.mark.parametrize(("make", "place", "shift"), [(ipv4, 15, 0), (ipv6, 15, 4)])
@pytest.mark.parametrize(("before", "after", "marked"), [(0, 0, 0), (1, 3, 1), (2, 3, 1), (3, 3, 0)])
def test_mark_turns_ect_into_ce(bench, make, place, shift, before, after, marked):
    frame = make(before)
    bench.send(frame, frame, frame)
    unmarked, _, third = bench.left()
    assert unmarked == frame
    assert third[place] >> shift & 3 == after
    assert third[:place] + third[place + 1 :] == frame[:place] + frame[place + 1 :] or make is ipv4
    assert make is ipv6 or checksum_is_right(third)
    assert bench.pipeline.counters.marked == marked
    assert bench.balanced()


@pytest.mark.parametrize("bench", [{"verdict": stages.MARK}], indirect=True)
def test_what_is_no_ip_is_not_marked(bench):
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    bench.send(arp, arp, arp)
    assert bench.left() == [arp, arp, arp]
    assert bench.pipeline.counters.marked == 0


@pytest.mark.parametrize("bench", [{"verdict": stages.REPLACED}], indirect=True)
def test_inject_counts_the_packet_that_came_as_dropped_and_the_new_one_as_injected(bench):
    bench.send(*(ipv4(0) for _ in range(3)))
    counters = bench.pipeline.counters
    assert (counters.injected, counters.injected_bytes) == (1, stages.INJECTED_BYTES)
    assert bench.pipeline.reading().dropped()[DropCause.LOSS] == (1, len(ipv4(0)))
    assert counters.in_flight_bytes == 2 * len(ipv4(0)) + stages.INJECTED_BYTES
    assert len(bench.left()) == 3
    assert bench.balanced()


SHAPES = [
    [stages.EveryThird(stages.REPLACED), Delay(1000)],
    [stages.EveryThird(stages.REPLACED), Bottleneck(rate_bps=10**10), Delay(1000), Delay(300)],
    [Delay(700), stages.EveryThird(stages.REPLACED), Bottleneck(rate_bps=10**10), Delay(1000)],
    [stages.EveryThird(stages.REPLACED), stages.EveryThird(stages.REPLACED), Delay(1000)],
]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_injected_leaves_behind_what_leaves_earlier_however_arrivals_are_cut(shape):
    arrivals = [(time_ns, 100) for time_ns in (0, 100, 1500, 1600, 1700, 1800, 5000, 5001, 5002, 5003, 5004, 9000)]
    with VirtualPipeline(shape) as at_once, VirtualPipeline(shape) as one_by_one:
        left = at_once.run(arrivals, 20_000)
        assert len(left) == len(arrivals)
        assert at_once.pipeline.counters.injected > 0
        times = [departure.time_ns for departure in left]
        assert times == sorted(times)
        assert left == [one for arrival in arrivals for one in one_by_one.run([arrival], arrival[0])] + one_by_one.run(
            [], 20_000
        )


def test_what_is_injected_leaves_behind_a_wheel_to_within_its_tick():
    tick_ns = 1 << ticks_for(2000)[1]
    with VirtualPipeline([stages.EveryThird(stages.REPLACED), FreeDelay(1000)], horizon_ns=2000) as virtual:
        left = virtual.run([(0, 100), (100, 100), (1100 + 2 * tick_ns, 100)], 20_000)
        assert [departure.number for departure in left] == [0, 1, 2]


@pytest.mark.parametrize("bench", [{"verdict": 0, "egress": 2, "exits": 3}], indirect=True)
def test_a_stage_chooses_the_exit(bench):
    bench.send(ipv4(0), ipv4(1))
    assert [len(bench.left(number)) for number in range(3)] == [0, 0, 2]
    assert bench.pipeline.reading().held() == 2


def test_a_duplicate_meets_the_stages_behind():
    with VirtualPipeline([stages.EveryThird(stages.DUPLICATE), Delay(1000)]) as virtual:
        departures = virtual.run([(n * 10, 100) for n in range(3)], 10_000)
        assert [(packet.number, packet.time_ns) for packet in departures] == [
            (0, 1000), (1, 1010), (2, 1020), (2, 1020),
        ]  # fmt: skip
