"""The report: the shape of its JSON, when a run is invalid and why, and what people see."""

from __future__ import annotations

import json

from tests.pure.support_report import KERNEL, STARTED_NS, direction, report
from xskit.emulator.report_data import SCHEMA
from xskit.emulator.report_text import duration, probability, rate, report_text
from xskit.emulator.settings import DirectionSettings, read
from xskit.lab.report import LabReport


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
        assert list(one) == [
            "name", "asked", "achieved", "stages", "packets", "bytes", "lateness_ns", "since_update_ns",
            "update_waiting", "checksums", "frames",
        ]  # fmt: skip
        assert one["checksums"] == {"finished_checksum": 0, "unfinished_checksum": 0}
        assert one["frames"] == {"misplaced": 0, "stray_received": 0, "stray_completed": 0}
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
    assert direction("forward", DirectionSettings(), packets=10, since_offered=4).achieved["loss_packets"] == [0, 6]
    crowded = direction("forward", read(DirectionSettings, {"owd": "1s"}), packets=1500, until_ns=2_000_000)
    assert crowded.packets["dropped"] == {"memory_full": 1500 - 1024}
    assert crowded.achieved["loss_packets"] == [0, 1024]


def test_owd_is_counted_from_what_was_asked():
    settings = read(DirectionSettings, {"owd": "20ms"})
    one = direction("forward", settings, inside_ns=[7] * 9 + [40], owd_base_ns=20_000_000)
    assert one.achieved["owd_ns"] == {"p50": 20_000_007, "p99": 20_000_040}


def test_nothing_is_said_of_nothing():
    one = direction("forward", DirectionSettings())
    assert one.achieved == {"owd_ns": {"p50": None, "p99": None}, "rate_bps": None, "loss": None,
                            "loss_packets": [0, 0]}  # fmt: skip
    assert one.lateness_ns["p50"] is one.lateness_ns["max"] is None
    assert one.packets["dropped"] == {}


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


def test_after_an_update_the_text_says_what_counts_from_when():
    made = report()
    assert "since" not in report_text(made)
    way = direction(
        "forward", read(DirectionSettings, {"loss": "10%"}), packets=10, updates=2, since_ns=12_300_000_000 + STARTED_NS
    )
    made.links[0].directions[0] = way
    assert (way.since_update_ns, way.update_waiting) == (12_300_000_000, None)
    lines = report_text(made).splitlines()
    (note,) = [line for line in lines if "since the update" in line]
    assert note == "wan forward: asked and achieved since the update at 12.3 s"
    assert "packets and lateness, since the start" in map(str.rstrip, lines)
    way.update_waiting = {"at_ns": 20_000_000_000, "asked": {}}
    assert "wan forward: the next update takes effect at 20 s" in report_text(made)
    both = json.loads(made.to_json())["links"][0]["directions"][0]
    assert (both["since_update_ns"], both["update_waiting"]["at_ns"]) == (12_300_000_000, 20_000_000_000)


def test_directions_with_the_same_update_share_a_line():
    made = report()
    for way in made.links[0].directions:
        way.since_update_ns = 1_000_000
    assert "wan forward, wan reverse: asked and achieved since the update at 1 ms" in report_text(made)


def test_each_part_prints_as_the_report_shows_it():
    made = report()
    link, text = made.links[0], report_text(made)
    assert all(line in text for line in str(link).splitlines())
    assert "lateness p50" in str(link)
    assert "asked against achieved" in str(link.directions[0])
    assert "100Mbit" in str(link.directions[0])
    assert str(made.ports[1]) == "port xk1b: generic, copy, 2 queues"
    assert str(made.workers[0]) in text
    assert "Report(" not in str(link) + str(link.directions[0])


def test_the_report_of_a_lab_is_a_list_of_links_that_prints():
    good, bad = report(), report(imbalances=1)
    lab = LabReport([good, bad])
    assert list(lab) == [*good.links, *bad.links]
    assert (lab.valid, lab.invalid_because) == (False, bad.invalid_because)
    assert str(lab) == f"{good}\n\n{bad}"
    assert (LabReport([]).valid, str(LabReport([]))) == (True, "no links")


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
