"""The pieces of the benchmarks that need no kernel: packets, sweeps, steady parts, words, plots."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.pure.support_results import made_session, samples
from xskit.bench import charts, render
from xskit.bench.document import Column, Dots, Folded, Heading, Items, Part, Plot, Row, Table
from xskit.bench.inference import spread
from xskit.bench.interrupts import Interrupts
from xskit.bench.metrics import METRICS, OF_MODE, Sample, rates, steady_from
from xskit.bench.packet import PacketSpec
from xskit.bench.programs import echo_program, live_program, sink_program, sockets_program
from xskit.bench.session_report import page
from xskit.bench.settings import MODES, Case, Conditions, distinguishing, sweep
from xskit.bench.words import case_words, figure, interval
from xskit.cli.output import lack_of_charts
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


# --- documents --------------------------------------------------------------------------------------------------------

FAR = Row("a < b & c", [1.0, 2.0, 30.0], 2.0, 1.0, 30.0, (2,))
DOTS = Dots("rates", "pps", [FAR, Row("no interval", [3.0], 3.0, None, None)])
CURVES = Plot("curves", "s", "pps", [("x", [(0.0, 0.0), (1.0, 5.0)]), ("y", [(0.5, 1.0)])], {0.0: "begin", 1.0: "end"})
TABLE = Table(
    "Sizes",
    [Column("case"), Column("figure"), Column("pps", "pps"), Column("why")],
    [["a | b", "received", 1_000, "it is so"], ["a | b", "sent", None, ""], ["second", "sent", "no", "x"]],
    "A note.",
)
PARTS: list[Part] = [
    Heading("Title", 1), "", "Some `code` & words.", TABLE, Items(["one", "two"]), DOTS, Folded("more", ["within"])
]  # fmt: skip


def test_a_document_as_text() -> None:
    assert render.text(PARTS, 80).splitlines() == [
        "Title",
        "",
        "Some `code` & words.",
        "",
        "Sizes",
        "  case    figure      pps  why",
        "  ------  --------  -----  --------",
        "  a | b   received  1,000  it is so",
        "  a | b   sent          -",
        "  second  sent         no  x",
        "A note.",
        "",
        "- one",
        "- two",
    ]


def test_a_table_that_is_too_wide_gives_its_last_and_first_column_lines_of_their_own() -> None:
    assert render.text([TABLE], 30).splitlines() == [
        "Sizes",
        "  case    figure      pps",
        "  ------  --------  -----",
        "  a | b   received  1,000",
        "          why: it is so",
        "  a | b   sent          -",
        "  second  sent         no",
        "          why: x",
        "",
        "A note.",
    ]
    assert render.text([TABLE], 20).splitlines() == [
        "Sizes",
        "  figure      pps",
        "  --------  -----",
        "",
        "a | b",
        "  received  1,000",
        "            why: it is",
        "            so",
        "  sent          -",
        "",
        "second",
        "  sent         no",
        "            why: x",
        "",
        "A note.",
    ]


def test_words_are_wrapped_only_where_nothing_else_helps() -> None:
    table = Table("", [Column("some words of a case"), Column("figures", "count")], [["a case of many words", 123_456]])
    assert render.text([table], 24).splitlines() == [
        "  some words of  figures",
        "  a case",
        "  -------------  -------",
        "  a case of      123,456",
        "  many words",
    ]


def test_a_document_as_markdown() -> None:
    written = render.markdown(PARTS, lambda chart: f"{chart.title}.svg")
    assert written.startswith(
        "# Title\n\nSome `code` & words.\n\n**Sizes**\n\n| case | figure | pps | why |\n| --- | --- | ---: | --- |"
    )
    assert "| a \\| b | received | 1,000 | it is so |" in written
    assert written.endswith("A note.\n\n- one\n- two\n\n![rates](rates.svg)\n\n**more**\n\nwithin")
    assert "![" not in render.markdown(PARTS)


def test_a_document_as_a_page() -> None:
    written = render.html("a & b", PARTS)
    assert "<title>a &amp; b</title>" in written
    assert "<p>Some <code>code</code> &amp; words.</p>" in written
    assert "<tr><td>a | b<td>received<td class=n>1,000<td>it is so" in written
    assert "<details><summary>more</summary><p>within</p></details>" in written


def test_charts_are_well_formed_and_have_their_words() -> None:
    for chart, words in ((DOTS, {"a < b & c", "pps"}), (CURVES, {"x", "y", "begin", "end", "s", "pps"})):
        drawn = ElementTree.fromstring(charts.inline(chart))
        assert words <= {text.text for text in drawn.iter("text")}
    assert ElementTree.fromstring(charts.inline(Plot("nothing", "s", "pps"))).tag == "svg"


def test_long_names_of_cases_leave_room_for_the_dots() -> None:
    label = "rxdrop, mode generic, packet-size 1500, frame-size 2048, ring 512, batch 32, kernel 6.12"
    drawn = ElementTree.fromstring(charts.inline(Dots("rates", "pps", [Row(label, [1.0, 2.0], 1.5, None, None)])))
    (axes,) = (one for one in drawn.iter("g") if one.get("id") == "patch_2")
    corners = [float(number) for number in re.findall(r"[ML] ([0-9.]+)", axes[0].attrib["d"])]
    assert max(corners) - min(corners) > 200


def test_pages_name_no_other_place() -> None:
    written = render.html(
        "latency", page(made_session(Case("latency"), Case("rxdrop", source_mac="02:00:00:00:00:09")))
    )
    pictures = written.split("<svg")[1:]
    assert len(pictures) >= 5
    for picture in pictures:
        ElementTree.fromstring("<svg" + picture.split("</svg>")[0] + "</svg>")
    assert "Round trips" in written
    assert "http" not in written


def test_without_matplotlib_a_page_says_how_to_get_charts(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    written = render.html("latency", page(made_session(Case("latency"))))
    assert "xskit[plots]" in written
    assert "<svg" not in written
    assert lack_of_charts("page.html has")
    cause, remedy = capsys.readouterr().err.splitlines()
    assert cause == f"xskit: page.html has {charts.MISSING}"
    assert remedy == f"try: {sys.executable} -m pip install matplotlib"


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
