"""What was asked for is what packets get: delay, jitter, loss, rate, queue, memory; by the stamps and by the books."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from tests.real.lab_rig import UDP_OVERHEAD_BYTES, datagram, dropped, lost_by, pair, wait_until
from xskit.emulator.intervals import binomial_interval, median_interval, quantile_interval
from xskit.engine.fifo import Fifo
from xskit.memory import array_at, record_view
from xskit.xsk.path.lines import PacketLine
from xskit.xsk.path.sizes import LINE_BYTES

pytestmark = pytest.mark.root

CONFIDENCE = 0.9999
SMALL = {"memory": "16MiB"}
"""Enough for the few packets of a test, and quickly had."""


def in_the_delay(made) -> list[tuple[int, int]]:
    """(arrival by the kernel's stamp, logical departure) of every packet that the forward delay keeps, in order."""
    live = made.link.forward.live
    made.stop_workers()
    fifo = record_view(Fifo, live.reading().stage_state(2).fifo)
    entries = array_at(fifo.entries, 2 * (fifo.mask + 1), np.int64).reshape(-1, 2)[fifo.head : fifo.tail]
    handles = entries[:, 1] & 0xFFFF_FFFF
    return [
        (record_view(PacketLine, live.view.table + handle * LINE_BYTES).arrived_ns, due_ns)
        for due_ns, handle in zip(entries[:, 0].tolist(), handles.tolist(), strict=True)
    ]


def in_the_wheel(made) -> list[int]:
    """What the forward timing wheel adds to the arrival of each packet that it keeps, in ns, sorted."""
    live = made.link.forward.live
    made.stop_workers()
    lines = [record_view(PacketLine, live.view.table + frame * LINE_BYTES) for frame in live.census()["held"]]
    return sorted(line.time_ns - line.arrived_ns for line in lines)


def test_no_packet_is_early_and_the_median_is_no_less_than_asked():
    with pair(owd="10ms") as made:
        flow = made.flow()
        flow.send(300)
        flow.empty()
        owds_ns = sorted(one.owd_ns for one in flow.take())
        assert owds_ns[0] >= 10_000_000
        assert median_interval(owds_ns, CONFIDENCE)[0] >= 10_000_000
        achieved = made.link.report().links[0].directions[0].achieved["owd_ns"]
        assert 10_000_000 <= achieved["p50"] <= achieved["p99"]
        # The link measures from stamp to sendto, the hosts from sendto to stamp: theirs contains it.
        assert achieved["p50"] * 0.98 <= quantile_interval(owds_ns, 0.5, CONFIDENCE)[1]


def test_the_delay_adds_exactly_what_was_asked():
    with pair(owd="1min", engine=SMALL) as made:
        flow = made.flow()
        flow.send(200)
        held = in_the_delay(made)
        assert len(held) == 200
        for arrived_ns, due_ns in held:
            # A stamp from before the loop's last look counts as that look.
            assert 0 <= due_ns - 60_000_000_000 - arrived_ns <= flow.counters.clamped_ns
        assert sum(due_ns - 60_000_000_000 > arrived_ns for arrived_ns, due_ns in held) <= flow.counters.clamped


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
def test_jitter_is_distributed_as_asked(distribution):
    with pair(
        owd="1min", jitter="5s", jitter_distribution=distribution, order="free", engine={**SMALL, "seed": 3}
    ) as made:
        flow = made.flow()
        flow.send(400)
        drawn_s = [added_ns / 1e9 for added_ns in in_the_wheel(made)]
        assert len(drawn_s) == 400
        low, high = median_interval(drawn_s, CONFIDENCE)
        assert low <= 60 <= high
        quartile_s = 2.5 if distribution == "uniform" else 5 * 0.6744897501960817
        for quantile, value in ((0.25, 60 - quartile_s), (0.75, 60 + quartile_s)):
            low, high = quantile_interval(drawn_s, quantile, CONFIDENCE)
            assert low <= value <= high
        if distribution == "uniform":
            assert 55 <= drawn_s[0] < 56
            assert 64 < drawn_s[-1] <= 65.1
        else:
            assert drawn_s[0] < 50
            assert drawn_s[-1] > 70


def test_loss_is_within_its_interval():
    with pair(loss="5%", engine={"seed": 11}) as made:
        flow = made.flow()
        flow.send(2000)
        flow.empty()
        lost = len(lost_by(flow.numbers(), 2000))
        assert dropped(flow.direction) == {"loss": lost}
        low, high = binomial_interval(lost, 2000, CONFIDENCE)
        assert low <= 0.05 <= high
        achieved = made.link.report().links[0].directions[0].achieved
        assert achieved["loss"] == lost / 2000


def test_a_black_hole():
    with pair(forward={"loss": "100%"}) as made:
        flow = made.flow()
        flow.send(100)
        flow.empty()
        assert dropped(flow.direction) == {"loss": 100}
        back = made.flow(reverse=True, port=7002)
        back.send(20)
        assert len(back.take(20)) == 20


@pytest.mark.parametrize(("overhead", "wire_bytes"), [("L1", 1024), ("L2", 1000), ("L3", 986)])
def test_a_saturated_bottleneck_sends_at_its_rate(overhead, wire_bytes):
    with pair(rate="20Mbit", overhead=overhead, queue="1000packets", owd="1min", engine=SMALL) as made:
        flow = made.flow()
        flow.send(400, 1000)
        wait_until(lambda: flow.direction.live.reading().stage_state(1).packets == 0, "the queue is empty")
        service_ns = wire_bytes * 8 * 1000 / 20
        late_ns = flow.counters.clamped_ns
        passed = [(arrived_ns, due_ns - 60_000_000_000) for arrived_ns, due_ns in in_the_delay(made)]
        busy = [
            left_ns - before_ns
            for (_, before_ns), (arrived_ns, left_ns) in itertools.pairwise(passed)
            if arrived_ns + late_ns <= before_ns
        ]
        assert busy  # the sender was faster than 20 Mbit/s at times
        assert all(math.floor(service_ns) <= gap_ns <= math.ceil(service_ns) for gap_ns in busy)
        gaps_ns = [later - earlier for (_, earlier), (_, later) in itertools.pairwise(passed)]
        assert min(gaps_ns) >= math.floor(service_ns)


def test_the_report_measures_the_rate_while_the_bottleneck_is_saturated():
    with pair(rate="1Mbit", queue="10000packets", owd="1ms") as made:
        flow = made.flow()
        flow.send(400, 1000)  # 3.2 s at this rate

        def achieved():
            return made.link.report().links[0].directions[0].achieved["rate_bps"]

        wait_until(achieved, "a window is over")
        before = flow.counters.sent
        wait_until(lambda: flow.counters.sent >= before + 100, "more has been sent")
        # At either end of a window a packet is under way, and the loop may be held up by the host.
        assert achieved() == pytest.approx(1_000_000, rel=0.25)
        assert made.link.report().links[0].directions[1].achieved["rate_bps"] is None


@pytest.mark.parametrize("limit", ["10packets", "1000B", "1000000ms"])
def test_the_queue_holds_what_was_asked(limit):
    """At 8 bit/s nothing leaves during the test; 1000 s are 1000 bytes then, 10 packets."""
    with pair(rate="8bit", queue=limit) as made:
        flow = made.flow()
        flow.send(50)
        assert flow.counters.in_flight == 10
        assert dropped(flow.direction) == {"queue_full": 40}
        bottleneck = made.link.report().links[0].directions[0].stages[1]
        assert (bottleneck["packets"], bottleneck["peak_bytes"], bottleneck["dropped"]) == (10, 1000, 40)


def of_queues(report) -> list[str]:
    """Its warnings of queues; a busy machine adds others."""
    return [sentence for sentence in report.warnings if "queue = " in sentence]


def test_fragments_fit_into_the_default_queue_of_a_slow_link():
    """A datagram of 2800 bytes is two packets; the second one waits for the first. 50 ms would hold 2500 bytes."""
    with pair(rate="400kbit") as made:
        flow = made.flow()
        for number in range(10):
            flow.sender.send(datagram(number, 2800 + UDP_OVERHEAD_BYTES))
            wait_until(lambda sent=number + 1: flow.counters.sent == 2 * sent, "both fragments have left")
        assert [one.number for one in flow.take(10)] == list(range(10))
        report = made.link.report()
        assert report.links[0].directions[0].asked["queue"] == {"kind": "droptail", "limit": "15180B"}
        assert of_queues(report) == []


def test_the_default_queue_and_the_warning_follow_the_rate():
    with pair() as made:
        made.link.update(rate="8bit")
        flow = made.flow()
        flow.send(14, 1514)
        assert (flow.counters.in_flight, dropped(flow.direction)) == (10, {"queue_full": 4})
        assert of_queues(made.link.report()) == []
        made.link.forward.update(queue="50ms")
        assert of_queues(made.link.report()) == [
            "a-b forward: queue = 50ms holds 0 bytes at 8bit, less than two packets of 1518 bytes: a packet that "
            "comes while another is being sent is dropped; to hold ten: queue = 10packets"
        ]


def test_a_delay_never_drops():
    with pair(owd="10min") as made:
        flow = made.flow()
        flow.send(20_000, 60, burst=128)
        assert flow.counters.in_flight == 20_000
        assert dropped(flow.direction) == {}
        made.assert_books_balance()
        assert len(in_the_delay(made)) == 20_000
        report = made.link.close()
        assert report.links[0].directions[0].packets["in_flight"] == 20_000


def test_memory_that_runs_out_is_a_drop_cause_of_its_own_with_the_number_to_set():
    engine = {"memory": "1MiB", "ring_size": 64}
    with pair(owd="10min", engine=engine) as made:
        flow = made.flow()
        flow.send(6000)
        share = made.link.emulator.plan.directions[0]
        assert flow.counters.in_flight == share.packets
        full = 6000 - share.packets
        assert dropped(flow.direction) == {"memory_full": full}
        made.assert_books_balance()
        report = made.link.report()
        assert not report.valid
        (reason,) = [one for one in report.invalid_because if "memory" in one]
        found = re.fullmatch(
            rf"a-b forward: {full} packets were dropped because packet memory ran out; set memory to (\S+)", reason
        )
        assert found
        assert report.links[0].directions[0].achieved["loss"] == 0
    with pair(owd="10min", engine={**engine, "memory": found[1]}) as made:
        flow = made.flow()
        flow.send(6000)
        assert dropped(flow.direction) == {}
