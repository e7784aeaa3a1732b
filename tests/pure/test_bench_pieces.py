"""The pieces of the benchmarks that need no kernel: packets, sweeps, steady parts, results, words, plots."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from xskit.bench import svg
from xskit.bench.compare import across, sessions
from xskit.bench.compare_text import as_csv, as_dict, as_mail, as_markdown
from xskit.bench.interrupts import Interrupts
from xskit.bench.machine import describe_machine, differences
from xskit.bench.metrics import METRICS, OF_MODE, Sample, rates, steady_from
from xskit.bench.others import OtherPrograms
from xskit.bench.packet import PacketSpec
from xskit.bench.page import render
from xskit.bench.programs import echo_program, live_program, sink_program, sockets_program
from xskit.bench.results import FileError, ModeInUse, Outcome, Run, Session
from xskit.bench.settings import MODES, Case, Conditions, distinguishing, sweep
from xskit.bench.statistics import spread
from xskit.bench.words import case_words, figure, interval, option_word
from xskit.cli.bench_compare import _field
from xskit.errors import UsageError
from xskit.xsk.headers import checksum, transport_checksum_holds

# --- packets ----------------------------------------------------------------------------------------------------------


def test_the_packet_is_xdpsock_s() -> None:
    """Written out from gen_eth_hdr_data, with the pattern 0x12345678; only DF is set here and not there."""
    data = PacketSpec().build()
    assert len(data) == 60
    assert data[:14].hex() == "3cfdfe9e7f71" + "ecb1d7983ac0" + "0800"
    assert data[14:24].hex() == "4500002e" + "00004000" + "4011"
    assert data[26:34].hex() == "0a0a0a10" + "0a0a0a20"
    assert data[34:40].hex() == "10001000" + "001a"
    assert data[42:].hex() == "12345678" * 4 + "1234"
    assert checksum(data[14:34]) == 0
    assert transport_checksum_holds(data)


def test_a_tag_and_a_pktgen_header_go_where_they_belong() -> None:
    spec = PacketSpec(100, vlan=5, vlan_priority=3, stamped=True)
    data = spec.build()
    assert len(data) == spec.length == 96
    assert data[12:18].hex() == "8100" + f"{5 | 3 << 13:04x}" + "0800"
    assert data[spec.stamp_offset :][:16].hex() == "be9be955" + "00" * 12
    assert data[spec.stamp_offset - 2 : spec.stamp_offset] == b"\0\0"  # no checksum
    assert spec.mtu == 96 - 18


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 63},
        {"size": 65, "stamped": True, "vlan": 1},
        {"size": 70_000},
        {"vlan": 0},
        {"vlan": 4096},
        {"vlan_priority": 8},
        {"destination": "02:00"},
        {"source": "zz:00:00:00:00:00"},
    ],
)
def test_impossible_packets_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        PacketSpec(**wrong)


# --- cases ------------------------------------------------------------------------------------------------------------


def test_a_sweep_has_all_combinations_once() -> None:
    cases = sweep(Case("rxdrop"), {"xdp": ["native", "generic", "native"], "packet_size": [64, 1500]})
    assert [(case.xdp, case.packet_size) for case in cases] == [
        ("native", 64),
        ("native", 1500),
        ("generic", 64),
        ("generic", 1500),
    ]
    assert distinguishing(cases) == ["xdp", "packet_size"]


def test_queues_share_the_packets() -> None:
    case = Case("txonly", queues=(0, 2, 5), count=10)
    assert [(part.queues, part.count) for part in map(case.of_queue, range(3))] == [((0,), 4), ((2,), 3), ((5,), 3)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "sendfile"},
        {"mode": "forward", "interfaces": ("a",)},
        {"mode": "rxdrop", "interfaces": ("a", "b")},
        {"mode": "rxdrop", "batch": 0},
        {"mode": "rxdrop", "queues": (0, 0)},
        {"mode": "rxdrop", "queues": ()},
        {"mode": "rxdrop", "clock": "SUNDIAL"},
        {"mode": "txonly", "packet_size": 5000},
        {"mode": "txonly", "packet_size": 40_000, "frame_size": 2048, "multi_buffer": True},
        {"mode": "rxdrop", "packet_size": 4000, "drive": "live"},
        {"mode": "latency", "xdp": "generic", "drive": "live"},
        {"mode": "latency", "queues": (0, 1)},
        {"mode": "latency", "sharers": 4},
        {"mode": "txonly", "queues": (0, 1, 2), "count": 2},
    ],
)
def test_impossible_cases_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Case(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"duration": 0.0}, {"repeat": 0}, {"until": 1.0}, {"priority": 100}, {"interval": 0.0}],
)
def test_impossible_conditions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Conditions(**wrong)


def test_short_runs_are_looked_at_often_and_long_ones_every_second() -> None:
    assert Conditions(duration=0.4).step == pytest.approx(0.01)
    assert Conditions(duration=600).step == 1.0


# --- samples ----------------------------------------------------------------------------------------------------------


def samples(rate_a_step: list[int], step_ns: int = 10_000_000) -> list[Sample]:
    found, total = [Sample(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)], 0
    for number, packets in enumerate(rate_a_step, start=1):
        total += packets
        busy = number * step_ns // 2
        found.append(Sample(number * step_ns, total, total * 60, 0, 0, busy, busy, total * 5, total, total))
    return found


def test_the_beginning_is_cut_off_where_it_differs() -> None:
    assert steady_from(samples([10, 40, 80, *[100, 101, 99, 100] * 5])) == 3
    assert steady_from(samples([100, 101, 99, 100] * 5)) == 0


def test_never_more_than_half_is_cut_off_nor_what_was_left_when_packets_stopped() -> None:
    assert steady_from(samples([100] * 5 + [0] * 15)) < 4  # else hardly a packet would be counted
    assert steady_from(samples(list(range(1, 21)))) <= 10
    assert steady_from(samples([])) == 0


def test_rates_are_from_the_first_to_the_last_sample() -> None:
    some = samples([100, 200, 300])
    found = rates(some[1:], sleeps=False)
    assert found["rx_pps"] == pytest.approx(500 / 0.02)
    assert found["rx_bps"] == pytest.approx(500 * 480 / 0.02)
    assert found["cpu_ns_per_packet"] == pytest.approx(5)
    assert rates(some[1:], sleeps=True)["cpu_ns_per_packet"] == pytest.approx(10_000_000 / 500)
    assert rates(some[:1], sleeps=False) == {}


def test_a_slice_that_was_disturbed_does_not_move_the_cost() -> None:
    some = samples([100] * 20)
    late = [replace(sample, metered_ns=sample.metered_ns + 1_000_000) for sample in some[10:]]
    assert rates([*some[:10], *late], sleeps=False)["cpu_ns_per_packet"] == pytest.approx(5)


def test_what_is_metered_by_frames_is_told_by_packets() -> None:
    first = Sample(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    last = Sample(10**9, 100, 500_000, 0, 0, 0, 0, 2_000, 200, 300)
    assert rates([first, last], sleeps=False)["cpu_ns_per_packet"] == pytest.approx(2_000 / 200 * 300 / 100)


# --- results ----------------------------------------------------------------------------------------------------------


def made_run(repeat: int, metrics: dict[str, float]) -> Run:
    return Run(
        repeat=repeat,
        started="2026-01-01T00:00:00.000+00:00",
        seconds=1.0,
        metrics=metrics,
        counts={"received": 1, "sent": 0},
        kernel={"rx_dropped": 0},
        calls={},
        far={"made": 5},
        cpu_ns=1,
        busy_ns=1,
        warm_up_seconds=0.1,
        samples=samples([1, 2, 3]),
        histogram={"100": 5},
        notes=["a note"],
    )


def made_session(*cases: Case, factor: float = 1.0) -> Session:
    outcomes = []
    for case in cases:
        values = dict.fromkeys(OF_MODE[case.mode], 100.0 * factor)
        runs = [made_run(number, {name: value + number for name, value in values.items()}) for number in range(8)]
        outcomes.append(
            Outcome(case, ModeInUse("native", False, False, 2048, ["why"]), [{"name": "xk0", "rx_queues": 1}], runs)
        )
    return Session(describe_machine(), ["xskit", "bench"], {"repeat": 8}, "2026-01-01", outcomes, 1.5)


def test_results_are_the_same_after_json() -> None:
    before = made_session(Case("rxdrop"), Case("latency", queues=(3,), vlan=5, packet_size=80))
    text = before.to_json()
    assert Session.from_dict(json.loads(text)) == before
    assert '"rx_pps": {' in text
    assert "[0, 10000000, 20000000, 30000000]" in text  # one line


def test_results_of_a_later_version_are_refused_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    values = made_session(Case("rxdrop")).as_dict()
    file.write_text(json.dumps({**values, "schema": 99}))
    with pytest.raises(FileError, match="a later version wrote it"):
        Session.load(file)
    values["cases"][0]["runs"][0]["samples"] = [1, 2]
    case = {**Case("rxdrop").as_dict(), "mode": "teleport"}
    for other in ([], {}, values, {**values, "cases": [{**values["cases"][0], "case": case, "runs": []}]}):
        file.write_text(json.dumps(other))
        with pytest.raises(FileError, match="is not what xskit bench --json writes"):
            Session.load(file)


def test_fields_of_a_case_that_are_unknown_are_left_out() -> None:
    assert Case.from_dict({**Case("loss").as_dict(), "colour": "green"}) == Case("loss")


# --- comparing --------------------------------------------------------------------------------------------------------


def test_equal_cases_are_compared_and_others_left_out() -> None:
    first = made_session(Case("rxdrop"), Case("txonly"))
    second = made_session(Case("txonly"), Case("loss"), factor=2)
    found = sessions(first, second)
    assert {row.case for row in found.rows} == {"txonly"}
    verdicts = {row.metric: row.difference.verdict for row in found.rows}
    assert verdicts == {"cpu_ns_per_packet": "worse", "tx_pps": "better"}
    assert found.worse
    assert found.machines == []
    assert found.remarks == [
        "only before has, and nothing is said of: rxdrop",
        "only after has, and nothing is said of: loss",
    ]


def test_cases_that_differ_are_compared_in_order_and_it_is_said() -> None:
    found = sessions(made_session(Case("rxdrop")), made_session(Case("rxdrop", frame_size=2048)))
    assert found.remarks == ["rxdrop: the cases differ in frame-size (4096 -> 2048)"]
    assert {row.difference.verdict for row in found.rows} == {"within noise"}


def test_cases_of_one_mode_are_found_whatever_stands_before_them() -> None:
    first = made_session(Case("rxdrop"), Case("txonly"))
    found = sessions(first, made_session(Case("txonly", batch=8)))
    assert {row.case for row in found.rows} == {"txonly"}
    assert found.remarks == [
        "txonly: the cases differ in batch (64 -> 8)",
        "only before has, and nothing is said of: rxdrop",
    ]


def test_losses_where_there_were_none_are_worse() -> None:
    first, second = made_session(Case("loss")), made_session(Case("loss"))
    for session, loss in ((first, 0.0), (second, 0.03)):
        for run in session.outcomes[0].runs:
            run.metrics["loss"] = loss
    found = sessions(first, second)
    assert found.worse
    assert [row.metric for row in found.rows if row.difference.verdict == "worse"] == ["loss"]
    mail, table = as_mail(found), as_markdown(found)
    assert re.search(r"lost +0\.000 % +3\.000 % +from 0\n +worse \(8 and 8 runs\)", mail)
    assert "| loss | lost | 0.000 % | 3.000 % | from 0 |  | **worse** |" in table
    assert ",loss,1,0,0.03,,,,no,8,8,worse" in as_csv(found)
    assert json.loads(json.dumps(as_dict(found), allow_nan=False))["rows"][-1]["ratio"] is None
    assert not sessions(first, first).worse
    assert re.search(r"lost +0\.000 % +0\.000 % +none\n +within noise", as_mail(sessions(first, first)))


def test_what_no_longer_comes_is_worse() -> None:
    first, second = made_session(Case("rxdrop")), made_session(Case("rxdrop"))
    for run in second.outcomes[0].runs:
        run.metrics["rx_pps"] = 0.0
    (row,) = [row for row in sessions(first, second).rows if row.metric == "rx_pps"]
    assert (row.difference.percent, row.difference.verdict) == (-100.0, "worse")


def test_other_conditions_are_told() -> None:
    first, second = made_session(Case("rxdrop")), made_session(Case("rxdrop"))
    first.conditions = Conditions(cpus=(3,)).as_dict()
    second.conditions = json.loads(json.dumps(first.conditions))
    assert sessions(first, second).remarks == []
    second.conditions |= {"duration": 0.2, "cpus": [], "repeat": 90}
    (said,) = sessions(first, second).remarks
    assert said.endswith("under different conditions: duration (1.0 -> 0.2), cpus ([3] -> [])")


def test_nothing_in_common_is_told() -> None:
    with pytest.raises(UsageError, match="before measured rxdrop, after latency: nothing to compare"):
        sessions(made_session(Case("rxdrop")), made_session(Case("latency")))


def test_machines_that_differ_are_told_by_fact() -> None:
    first, second = made_session(Case("rxdrop")), made_session(Case("rxdrop"))
    second.machine = {**second.machine, "kernel": {**second.machine["kernel"], "release": "9.9"}, "load": [99.0]}
    second.outcomes[0].interfaces = [{"name": "xk0", "rx_queues": 1, "mtu": 9000}]
    found = sessions(first, second)
    assert [(name, other) for name, _, other in found.machines] == [("kernel.release", "9.9"), ("interface.mtu", 9000)]
    text = as_mail(found)
    assert "WARNING: the machines differ" in text
    assert max(map(len, text.splitlines())) <= 72


def test_a_busy_machine_is_told_in_the_comparison() -> None:
    first, second = made_session(Case("rxdrop")), made_session(Case("rxdrop"))
    for run in second.outcomes[0].runs:
        run.other_cpus = 1.5
    found = sessions(first, second, ("a.json", "b.json"))
    assert any("took 0.0 CPUs while a.json was measured and 1.5 while b.json was" in one for one in found.remarks)
    assert not sessions(first, first).remarks


def test_what_this_process_takes_is_not_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "stat"
    monkeypatch.setattr("xskit.bench.others._TABLE", table)
    own = os.times()
    table.write_text("cpu  100 0 100 900 50 0 0 0 0 0\ncpu0 1 2 3\n")
    others = OtherPrograms()
    table.write_text("cpu  100 0 100 1900 150 0 0 0 0 0\ncpu0 1 2 3\n")
    assert others.cpus() == 0.0
    table.write_text("cpu  600 0 700 1900 150 100 100 200 0 0\ncpu0 1 2 3\n")
    assert others.cpus() > 100  # 14 s of CPU in no time
    assert os.times().elapsed - own.elapsed < 60


def test_the_machine_does_not_differ_from_itself() -> None:
    assert differences(describe_machine(), describe_machine()) == []
    assert differences({"a": {"b": 1}}, {"a": {"b": 1, "c": [2]}}) == [("a.c", None, [2])]


def test_cases_of_one_session_are_compared_along_a_field_pair_by_pair() -> None:
    cases = sweep(Case("txonly"), {"xdp": ["native", "generic"], "packet_size": [64, 1500]})
    found = across(made_session(*cases), "xdp")
    assert {row.case for row in found.rows} == {
        "txonly, mode generic, packet-size 64",
        "txonly, mode generic, packet-size 1500",
    }
    assert all(row.difference.paired for row in found.rows)
    assert found.first == "mode native"
    assert found.remarks == ["differences are medians of the ratios of pairs, which need not be those of the medians"]
    with pytest.raises(UsageError, match="batch has one value only") as caught:
        across(made_session(*cases), "batch")
    assert caught.value.remedy == "--across mode"


def test_an_option_is_found_by_the_word_that_reports_have_for_it() -> None:
    for name in (one.name for one in fields(Case) if one.name != "mode"):
        assert _field(option_word(name)) == _field(f"--{option_word(name)}") == name
    with pytest.raises(UsageError, match="cases have no option colour-of-it") as caught:
        across(made_session(Case("txonly")), _field("colour-of-it"))
    assert {"mode", "frags", "tx-cycle", "packet-size"} <= set(
        str(caught.value.remedy).removeprefix("--across one of ").split(", ")
    )


# --- what people read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("rx_pps", 3_336_353.0, "3.336 Mpps"),
        ("rx_pps", 0.0, "0.000 pps"),
        ("tx_bps", 10_360_000_000.0, "10.36 Gbit/s"),
        ("cpu_ns_per_packet", 981.25, "981.2 ns"),
        ("cpu_ns_per_packet", 1083.0, "1.083 us"),
        ("round_trip_max_ns", 2_500_000_000.0, "2.500 s"),
        ("loss", 0.0125, "1.250 %"),
    ],
)
def test_figures_have_four_digits_and_a_unit(metric: str, value: float, text: str) -> None:
    assert figure(METRICS[metric], value) == text


def test_an_interval_has_the_unit_of_its_median() -> None:
    metric = METRICS["rx_pps"]
    assert interval(metric, spread([990e3, 995e3, 1e6, 1.01e6, 1.02e6, 1.1e6])) == "0.990 .. 1.100 Mpps"
    assert interval(metric, spread([1e6, 2e6])) == "range 1.000 .. 2.000 Mpps"
    assert interval(metric, spread([1e6])) == ""


def test_cases_are_named_by_the_options_that_made_them() -> None:
    label = {"mode": "l2fwd", "xdp": "native", "poll": True, "cycle_ns": 1_000_000, "interfaces": ()}
    assert case_words(label) == "l2fwd, mode native, poll, tx-cycle 1ms, interface veth"


def test_pages_and_plots_are_well_formed() -> None:
    plot = svg.dots([svg.Dots("a < b & c", [1.0, 2.0, 30.0], 2.0, 1.0, 30.0, (2,))], "pps")
    assert len(ElementTree.fromstring(plot).findall("circle")) == 3
    curve = svg.lines([svg.Line("x", [(0.0, 0.0), (1.0, 5.0)]), svg.Line("y", [(0.5, 1.0)])], "s", "pps")
    assert len(ElementTree.fromstring(curve).findall("polyline")) == 2
    assert svg.lines([], "s", "pps") == ""
    page = render(made_session(Case("latency"), Case("rxdrop", source_mac="02:00:00:00:00:09")))
    for part in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
    assert "Round trips" in page


def test_long_names_of_cases_have_room() -> None:
    label = "rxdrop, mode generic, packet-size 1500, frame-size 2048, kernel 6.12"
    for name in ("short", label):
        picture = ElementTree.fromstring(svg.dots([svg.Dots(name, [1.0, 2.0], 1.5, None, None)], "pps"))
        (text,) = [one for one in picture.iter("text") if one.text == name]
        assert float(text.attrib["x"]) >= 6 * len(name)
        dots = [float(one.attrib["cx"]) for one in picture.iter("circle")]
        assert float(text.attrib["x"]) < min(dots) <= max(dots) < float(picture.attrib["width"])


def test_every_mode_has_metrics_with_names() -> None:
    assert set(OF_MODE) == set(MODES)
    assert {name for names in OF_MODE.values() for name in names} <= set(METRICS)


def test_interrupts_are_those_of_the_first_line_with_the_text(tmp_path: Path) -> None:
    table = tmp_path / "interrupts"
    table.write_text(
        "       CPU0  CPU1\n  1:   5  6  IO-APIC  timer\n 24:  10  20  MSI eth0-rx 7\n 25: 1 1 MSI eth0-tx\n"
    )
    interrupts = Interrupts("eth0", table)
    assert interrupts.count() == 0
    table.write_text("       CPU0  CPU1\n  1:   5  6  IO-APIC  timer\n 24:  15  21  MSI eth0-rx 7\n")
    assert interrupts.count() == 6


def test_programs_are_the_same_every_time_and_carry_our_prefix() -> None:
    for make in (
        lambda: sockets_program(1, frags=True),
        lambda: sockets_program(4, frags=False),
        lambda: sink_program(frags=True),
        lambda: echo_program(frags=True),
        lambda: live_program(46),
    ):
        assert make() == make()
        assert make().name.startswith("xk")


def test_a_case_is_unchanged_by_what_is_made_of_it() -> None:
    case = Case("rxdrop")
    assert replace(case, batch=1) != case
    assert hash(case) == hash(Case("rxdrop"))
