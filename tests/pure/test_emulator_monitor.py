"""The watch over running workers: books that do not balance are found, whatever is wrong; the measured rate."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from xskit.emulator.monitor import STUCK_NS, Monitor, SaturatedRate, balance
from xskit.emulator.settings import DirectionSettings, read
from xskit.engine.fifo import Fifo
from xskit.engine.packets import DropCause
from xskit.engine.virtual import VirtualPipeline
from xskit.memory import array_at, record_view

SETTINGS = read(DirectionSettings, {"owd": "2ms", "rate": "10Mbit", "queue": "5packets", "loss": "10%"})


@pytest.fixture
def reading():
    """A copy of the numbers of a pipeline with packets in the bottleneck and in the delay, and drops of two causes."""
    with VirtualPipeline(SETTINGS.stages(), packets=256, seed=3) as virtual:
        virtual.run([(10_000 * n, 1000) for n in range(1000)], 10_000_000)
        pipeline = virtual.pipeline
        copy = array_at(pipeline.block, pipeline.reading_bytes, np.uint8).copy()
        yield pipeline.reading(copy)


def exit_of(reading):
    return record_view(Fifo, reading._address + reading._pipeline.exits_offset)


def drops_of(reading):
    return array_at(reading._address + reading._pipeline._drops_offset, 32, np.int64)


def test_books_that_balance(reading):
    counters = reading.counters
    assert min(reading.stage_state(1).packets, reading.stage_state(2).packets, counters.sent) > 0
    assert reading.dropped()[DropCause.LOSS][0] > 0
    assert reading.dropped()[DropCause.QUEUE_FULL][0] > 0
    assert balance(reading, 0) == []


@pytest.mark.parametrize("field", ["received", "duplicated", "injected", "sent"])
@pytest.mark.parametrize("by", [1, -1])
def test_a_packet_too_many_or_too_few(reading, field, by):
    counters = reading.counters
    came, went = counters.received, counters.received
    setattr(counters, field, getattr(counters, field) + by)
    came += by * (field != "sent")
    went += by * (field == "sent")
    assert balance(reading, 0) == [f"{came} packets came, {went} are accounted for"]


@pytest.mark.parametrize("field", ["received_bytes", "duplicated_bytes", "injected_bytes", "sent_bytes"])
def test_a_byte_too_many(reading, field):
    counters = reading.counters
    total = counters.received_bytes
    setattr(counters, field, getattr(counters, field) + 1)
    came, went = (total, total + 1) if field == "sent_bytes" else (total + 1, total)
    assert balance(reading, 0) == [f"{came} bytes came, {went} are accounted for"]


def test_a_packet_counted_in_flight_that_is_nowhere(reading):
    counters = reading.counters
    held = counters.in_flight
    counters.in_flight += 1
    counters.received += 1
    assert balance(reading, 0) == [f"{held + 1} packets are counted as in flight, {held} were found"]


def test_bytes_in_flight_are_checked(reading):
    total = reading.counters.received_bytes
    reading.counters.in_flight_bytes -= 1000
    assert balance(reading, 0) == [f"{total} bytes came, {total - 1000} are accounted for"]


@pytest.mark.parametrize("cause", [DropCause.LOSS, DropCause.TX_REFUSED, 15])
def test_drops_of_every_cause_are_counted(reading, cause):
    received = reading.counters.received
    drops_of(reading)[2 * cause] += 1
    assert balance(reading, 0) == [f"{received} packets came, {received + 1} are accounted for"]


@pytest.mark.parametrize("stage", [1, 2])
def test_a_store_that_lost_a_packet(reading, stage):
    held = reading.counters.in_flight
    reading.stage_state(stage).packets -= 1
    assert balance(reading, 0) == [f"{held} packets are counted as in flight, {held - 1} were found"]


def test_what_waits_in_the_exit_and_for_completion_is_found(reading):
    held = reading.counters.in_flight
    exit_of(reading).tail += 1
    assert balance(reading, 1) == [f"{held} packets are counted as in flight, {held + 2} were found"]
    reading.counters.in_flight += 2
    reading.counters.received += 2
    assert balance(reading, 1) == []


class FakeWorker:
    def __init__(self, directions):
        self.directions = directions
        self.running = True
        self.failure = None


def snapshot(reading, outstanding=0, whole=True, stuck_ns=0):
    return SimpleNamespace(readings=[reading], outstanding=[outstanding], stuck_ns=[stuck_ns], whole=whole)


def test_the_monitor_counts_imbalances_and_keeps_the_sentence(reading):
    seen = []
    monitor = Monitor([FakeWorker([SimpleNamespace(name="wan forward")])], seen.append, lambda: None)
    monitor.check([snapshot(reading)])
    assert (monitor.imbalances, monitor.sentences) == (0, [])
    monitor.check([snapshot(reading, outstanding=1)])
    held = reading.counters.in_flight
    assert monitor.imbalances == 1
    assert monitor.sentences == [f"wan forward: {held} packets are counted as in flight, {held + 1} were found"]
    assert len(seen) == 2


def test_numbers_of_several_moments_are_not_balanced(reading):
    monitor = Monitor([FakeWorker([SimpleNamespace(name="wan forward")])], lambda _: None, lambda: None)
    monitor.check([snapshot(reading, outstanding=1, whole=False)])
    assert monitor.imbalances == 0


def test_a_driver_that_stops_completing_is_told_with_the_longest_time(reading):
    monitor = Monitor([FakeWorker([SimpleNamespace(name="wan forward")])], lambda _: None, lambda: None)
    monitor.check([snapshot(reading, stuck_ns=STUCK_NS)])
    assert monitor.stuck() == [], "a hiccup"
    for seconds in (2, 7, 3, 0):
        monitor.check([snapshot(reading, stuck_ns=seconds * STUCK_NS)])
    assert monitor.stuck() == ["wan forward: the driver completed nothing for 7.0 s though packets lay in TX"]


@pytest.mark.parametrize(
    ("running", "why", "missing", "sentence"),
    [
        (True, None, "port x was deleted while the link was running", "port x was deleted while the link was running"),
        (False, None, None, "a worker stopped unexpectedly"),
        (False, "a worker cannot run on CPU 3", None, "a worker cannot run on CPU 3"),
    ],
)
def test_a_run_that_cannot_go_on(running, why, missing, sentence):
    worker = FakeWorker([])
    worker.running, worker.failure = running, why
    worker.snapshot = lambda: SimpleNamespace(readings=[], outstanding=[], stuck_ns=[], whole=True)
    monitor = Monitor([worker], lambda _: None, lambda: missing)
    monitor.start()
    assert monitor.wait(60)
    assert monitor.failure == sentence
    monitor.stop()
    monitor.stop()


def measured(snapshots, settle_ns=0, from_ns=0):
    rate = SaturatedRate(settle_ns, from_ns)
    for one in snapshots:
        rate.add(*one)
    return rate.bps


def test_rate_of_a_saturated_window():
    assert measured([(0, 0, 7, True), (1_000_000, 1250, 7, True)]) == 10_000_000


def test_what_was_sent_at_the_rate_before_does_not_count():
    before = [(0, 0, 7, True), (1_000_000, 9999, 7, True), (2_000_000, 20_000, 7, True)]
    assert measured(before, from_ns=2_500_000) is None
    assert measured([*before, (3_000_000, 30_000, 7, True), (4_000_000, 31_250, 7, True)], from_ns=2_500_000) == 1e7


def test_windows_add_up():
    assert measured([(0, 0, 7, True), (1_000_000, 1250, 7, True), (3_000_000, 2500, 7, True)]) == 2500 * 8e9 / 3e6


@pytest.mark.parametrize(
    "snapshots",
    [
        [],
        [(0, 0, 7, True)],
        [(0, 0, 7, False), (1_000_000, 1250, 7, True)],
        [(0, 0, 7, True), (1_000_000, 1250, 7, False)],
        [(0, 0, 7, True), (1_000_000, 1250, 8, True)],
        [(1_000_000, 0, 7, True), (1_000_000, 1250, 7, True)],
    ],
    ids=["none", "one", "empty at first", "empty at last", "idle in between", "no time"],
)
def test_no_rate_without_a_saturated_window(snapshots):
    assert measured(snapshots) is None


def test_only_saturated_windows_count():
    snapshots = [
        (0, 0, 1, False),
        (1_000, 5, 2, True),
        (2_000, 1005, 2, True),
        (3_000, 1010, 3, True),
        (4_000, 3010, 3, True),
        (5_000, 3011, 3, False),
    ]
    assert measured(snapshots) == 3000 * 8e9 / 2000


def test_what_left_the_bottleneck_before_it_was_saturated_does_not_count():
    snapshots = [(1_000 * n, max(n - 3, 0) * 1000, 4, True) for n in range(8)]  # an owd of 3 us: nothing is sent yet
    assert measured(snapshots, settle_ns=3_000) == 1000 * 8e9 / 1000
    assert measured(snapshots) < 1000 * 8e9 / 1000


def test_a_snapshot_that_comes_late_is_left_out():
    assert measured([(0, 0, 7, True), (2_000, 2000, 7, True), (1_000, 1000, 7, True), (3_000, 3000, 7, True)]) == 8e9
