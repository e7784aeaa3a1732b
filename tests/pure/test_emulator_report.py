"""The report: the shape of its JSON, when a run is invalid and why, and what people see."""

from __future__ import annotations

import bisect
import json
from types import SimpleNamespace

import numpy as np
import pytest

from xskit.emulator.report import Report, direction_report, judge
from xskit.emulator.report_data import SCHEMA, LinkReport, PortReport, WorkerReport
from xskit.emulator.report_text import duration, probability, rate, report_text
from xskit.emulator.settings import DirectionSettings, read
from xskit.engine import histogram
from xskit.engine.virtual import VirtualPipeline
from xskit.memory import array_at

KERNEL = (
    "rx_dropped",
    "rx_invalid_descs",
    "tx_invalid_descs",
    "rx_ring_full",
    "rx_fill_ring_empty_descs",
    "tx_ring_empty_descs",
)
BUCKET_STARTS = [histogram.lowest(bucket) for bucket in range(histogram.BUCKETS)]
MEMORY_REMEDY = "set memory to 64MiB"


def direction(name, settings, *, packets=0, length=1000, late_ns=(), inside_ns=(), since=None, until_ns=1 << 40):
    """The report of a pipeline that met these packets, a microsecond apart."""
    with VirtualPipeline(settings.stages(), packets=1024, seed=5, name=name) as virtual:
        virtual.run([(1_000 * n, length) for n in range(packets)], until_ns)
        for address, values in ((virtual.pipeline.lateness, late_ns), (virtual.pipeline.owd, inside_ns)):
            counts = array_at(address, histogram.BUCKETS, np.int64)
            for value in values:
                counts[bisect.bisect_right(BUCKET_STARTS, value) - 1] += 1
        since = since or SimpleNamespace(since_lost=0, since_received=0, updates=0, owd_base_ns=0)
        return direction_report(name, settings.asked(), virtual.pipeline.reading(), since, virtual.pipeline.kinds, None)


def report(**changes):
    settings = read(DirectionSettings, {"owd": "20ms", "loss": "10%", "rate": "100Mbit"})
    forward = direction("forward", settings, packets=500, late_ns=[3_000] * 99 + [40_000], inside_ns=[20_003_000] * 100)
    made = Report(
        links=[LinkReport("wan", [forward, direction("reverse", DirectionSettings())])],
        ports=[
            PortReport("xk1a", "native", False, 1, dict.fromkeys(KERNEL, 0), ["no driver for zero copy"]),
            PortReport("xk1b", "generic", False, 2, dict.fromkeys(KERNEL, 0)),
        ],
        workers=[WorkerReport(1, "adaptive", 1000, 250, 2, 3_500_000, 17)],
        memory={"frames": 4096},
        duration_ns=1_000_000_000,
    )
    judged = {"imbalances": 0, "violations": 0, "broken": [], "remedy": MEMORY_REMEDY} | changes
    judge(made, **judged)
    return made


def test_the_shape_of_the_json():
    data = json.loads(report().to_json())
    assert list(data) == [
        "schema", "valid", "invalid_because", "warnings", "duration_ns", "links", "ports", "workers", "memory",
    ]  # fmt: skip
    assert (data["schema"], data["valid"], data["invalid_because"]) == (SCHEMA, True, [])
    (link,) = data["links"]
    assert list(link) == ["name", "directions"]
    assert [one["name"] for one in link["directions"]] == ["forward", "reverse"]
    for one in link["directions"]:
        assert list(one) == ["name", "asked", "achieved", "stages", "packets", "bytes", "lateness_ns"]
        assert set(one["achieved"]) >= {"owd_ns", "rate_bps", "loss"}
        assert set(one["achieved"]["owd_ns"]) == {"p50", "p99"}
        assert {"p50", "p99", "p999", "max"} <= set(one["lateness_ns"])
        for books in (one["packets"], one["bytes"]):
            assert set(books) == {"received", "duplicated", "injected", "sent", "dropped", "in_flight"}
        assert [stage["name"] for stage in one["stages"]] == ["loss", "bottleneck", "delay"]
    assert list(data["ports"][0])[:5] == ["name", "xdp_mode", "zero_copy", "queues", "kernel"]
    assert set(data["ports"][0]["kernel"]) == set(KERNEL)
    assert {"cpu", "mode", "loops", "busy", "host_stalls"} <= set(data["workers"][0])


def test_the_books_of_a_direction_balance_and_name_the_causes():
    settings = read(DirectionSettings, {"loss": "20%", "rate": "1Mbit", "queue": "10packets", "owd": "1ms"})
    one = direction("forward", settings, packets=400, until_ns=2_000_000)
    for books in (one.packets, one.bytes):
        came = books["received"] + books["duplicated"] + books["injected"]
        assert came == books["sent"] + sum(books["dropped"].values()) + books["in_flight"]
    assert set(one.packets["dropped"]) == {"loss", "queue_full"}
    assert one.packets["in_flight"] == 10
    assert one.bytes["in_flight"] == 10_000
    lost = one.packets["dropped"]["loss"]
    assert one.achieved["loss"] == lost / 400
    assert one.achieved["loss_packets"] == [lost, 400]
    loss, bottleneck, delay = one.stages
    assert (loss["passed"], loss["dropped"]) == (400 - lost, lost)
    assert bottleneck["dropped"] == one.packets["dropped"]["queue_full"]
    assert (bottleneck["packets"], bottleneck["peak_packets"], delay["packets"]) == (10, 10, 0)


def test_loss_counts_only_packets_that_the_loss_stage_met():
    one = direction("forward", DirectionSettings(), packets=1024)
    assert one.achieved["loss_packets"] == [0, 1024]
    crowded = direction("forward", read(DirectionSettings, {"owd": "1s"}), packets=1500, until_ns=2_000_000)
    assert crowded.packets["dropped"] == {"memory_full": 1500 - 1024}
    assert crowded.achieved["loss_packets"] == [0, 1024]


def test_owd_is_counted_from_what_was_asked():
    since = SimpleNamespace(since_lost=0, since_received=0, updates=0, owd_base_ns=20_000_000)
    one = direction("forward", read(DirectionSettings, {"owd": "20ms"}), inside_ns=[7] * 9 + [40], since=since)
    assert one.achieved["owd_ns"] == {"p50": 20_000_007, "p99": 20_000_040}


def test_nothing_is_said_of_nothing():
    one = direction("forward", DirectionSettings())
    assert one.achieved == {"owd_ns": {"p50": None, "p99": None}, "rate_bps": None, "loss": None,
                            "loss_packets": [0, 0]}  # fmt: skip
    assert one.lateness_ns["p50"] is one.lateness_ns["max"] is None
    assert one.packets["dropped"] == {}


def test_a_valid_run():
    assert report().valid
    assert report().invalid_because == []


def late(settings, late_ns):
    made = report()
    made.links[0].directions[0] = direction("forward", settings, late_ns=[late_ns] * 100)
    judge(made, imbalances=0, violations=0, broken=[], remedy=MEMORY_REMEDY)
    return made.invalid_because


def test_late_by_more_than_a_part_of_the_owd():
    slow = read(DirectionSettings, {"owd": "100ms"})
    assert late(slow, 4_900_000) == []
    assert late(slow, 5_300_000) == ["wan forward: packets left 5.3ms late at the 99th percentile, more than 5ms"]
    assert late(DirectionSettings(), 950_000) == []
    assert late(DirectionSettings(), 2_000_000) == [
        "wan forward: packets left 2ms late at the 99th percentile, more than 1ms"
    ]


@pytest.mark.parametrize(
    ("cause", "became"),
    [
        ("memory_full", "were dropped because packet memory ran out; set memory to 64MiB"),
        ("tx_refused", "were refused by the kernel when they were to be sent"),
        ("port_down", "were due while the port was down"),
        ("super_packet", "were longer than the port can send; on the sender: ethtool -K INTERFACE tso off gso off"),
        ("too_many_fragments", "had more fragments than a sent packet may have"),
    ],
)
def test_losses_that_nobody_asked_for_are_named(cause, became):
    made = report()
    made.links[0].directions[1].packets["dropped"][cause] = 12
    judge(made, imbalances=0, violations=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.invalid_because == [f"wan reverse: 12 packets {became}"]
    assert not made.valid


def test_losses_that_were_asked_for_do_not_invalidate():
    made = report()
    made.links[0].directions[1].packets["dropped"] = {"loss": 5, "queue_full": 3}
    judge(made, imbalances=0, violations=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.valid


@pytest.mark.parametrize("counter", ["rx_dropped", "rx_ring_full"])
def test_losses_in_the_kernel_are_named(counter):
    made = report()
    made.ports[1].kernel[counter] = 3
    judge(made, imbalances=0, violations=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.invalid_because == [f"port xk1b: the kernel dropped 3 packets before xskit saw them ({counter})"]


@pytest.mark.parametrize("counter", ["tx_ring_empty_descs", "rx_fill_ring_empty_descs"])
def test_kernel_counters_that_lose_nothing_by_themselves_do_not_invalidate(counter):
    made = report()
    made.ports[1].kernel[counter] = 3
    judge(made, imbalances=0, violations=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.valid


def test_what_else_invalidates_a_run():
    made = report(imbalances=4, violations=2, broken=["port xk1a was deleted while the link was running"])
    assert made.invalid_because == [
        "port xk1a was deleted while the link was running",
        "the packet counts did not balance 4 times",
        "2 frames were not where they should have been",
    ]


def test_the_text_shows_asked_against_achieved():
    made = report()
    made.ports[0].kernel["rx_fill_ring_empty_descs"] = 9
    text = report_text(made)
    lost = made.links[0].directions[0].packets["dropped"]["loss"]
    assert "asked against achieved" in text
    forward = next(line for line in text.splitlines() if "forward" in line)
    for shown in ("wan", "20ms", "100Mbit", "10%", f"{lost / 5:.3g}%"):
        assert shown in forward
    assert f"{lost} loss" in text
    assert "2.98 us / 2.98 us / 40.4 us / 41 us" in text
    assert "port xk1a: native, copy, 1 queue; kernel: rx_fill_ring_empty_descs 9" in text
    assert "port xk1b: generic, copy, 2 queues" in text
    assert "worker on CPU 1: adaptive, 1000 loops, 25% busy, 2 host stalls (3.5 ms in all)" in text
    assert text.endswith("valid")
    assert str(made) == text


def test_where_there_is_little_room_no_digit_is_lost():
    made = report()
    made.links[0].name = "a-link-with-a-long-name" * 3
    made.links[0].directions[0].packets["received"] = 1_234_567_890_123
    for width in (110, 80, 60):
        text = report_text(made, width=width)
        assert "…" not in text
        column = "".join(row.split("│")[3].strip() for row in text.splitlines() if row.count("│") == 8)
        assert column == "1234567890123" + "0"


def test_the_text_says_why_a_run_does_not_count():
    text = report_text(report(imbalances=4), width=200)
    assert text.endswith("INVALID: the packet counts did not balance 4 times")


def test_warnings_stand_before_the_verdict_and_do_not_change_it():
    made = report()
    made.warnings = ["port xk1a: VLAN tags may be lost", "something else"]
    lines = report_text(made, width=200).splitlines()
    assert lines[-3:] == ["warning: port xk1a: VLAN tags may be lost", "warning: something else", "valid"]
    assert made.as_dict()["warnings"] == made.warnings


def test_jitter_is_shown_beside_the_owd():
    settings = read(DirectionSettings, {"owd": "20ms", "jitter": "3ms"})
    made = report()
    made.links[0].directions[0] = direction("forward", settings)
    assert "20ms ± 3ms" in report_text(made)


def test_measured_numbers_have_three_digits():
    assert [duration(v) for v in (None, 0, 999, 20_345, 345_678, 1_234_567, 2e9)] == [
        "-", "0 ns", "999 ns", "20.3 us", "346 us", "1.23 ms", "2 s",
    ]  # fmt: skip
    assert [rate(v) for v in (None, 0, 999, 12_345, 49_987_654, 9.8765e9)] == [
        "-", "0 bit", "999 bit", "12.35 kbit", "49.99 Mbit", "9.877 Gbit",
    ]  # fmt: skip
    assert [probability(v) for v in (None, 0, 0.005, 1)] == ["-", "0%", "0.5%", "100%"]
