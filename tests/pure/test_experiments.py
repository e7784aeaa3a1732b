"""Experiments without running one: the model of veth's buffers, tables, results, reports, and the catalogue."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from xskit.bench import charts, render
from xskit.bench.document import Column, Plot, Table, shown
from xskit.bench.in_guest import COUNTED, COUNTED_VARIABLE, EMULATED, EMULATED_VARIABLE
from xskit.cli.experiment import _write_charts, run
from xskit.cli.output import OutputError
from xskit.errors import UsageError
from xskit.experiments import bridge, frame_sizes, report, veth_buffers
from xskit.experiments.catalogue import CATALOGUE, find
from xskit.experiments.combined import combined
from xskit.experiments.experiment import ExperimentResult, Options, ResultError
from xskit.experiments.large_memory import Filling
from xskit.vm.errors import GuestError

TABLE = Table(
    "Rates",
    [Column("size"), Column("rate", "pps"), Column("speed", "bit/s"), Column("gain", "percent")],
    [["64", 1_916_747, 8.57e9, 3.04], ["1500", None, "refused", -1.4]],
    "A note.",
)


def result(where="Linux 6.18, veth", **others) -> ExperimentResult:
    machine = {"cpu": {"model": "a CPU", "allowed": 2}}
    made = ExperimentResult(
        "tx-sizes", where, tables=[TABLE], findings=["It is so."], machine=machine, started="2026-01-02T03:04"
    )
    made.command = ["xskit", "experiment", "run", "tx-sizes"]
    made.plots = [Plot("owd", "ms", "share", [("a", [(1.0, 0.0), (2.0, 1.0)])])]
    for name, value in others.items():
        setattr(made, name, value)
    return made


def as_text(experiment, results) -> str:
    return render.text(report.whole(experiment, results), report.WIDTH)


def as_markdown(experiment, results) -> str:
    return render.markdown(report.measured(experiment, results))


# --- the model ------------------------------------------------------------------------------------------------------


def test_full_pages_are_what_the_kernel_says():
    """3506 is what veth allows on x86 for a program without fragments (machine, 6.18: 3507 is refused)."""
    assert veth_buffers.FULL_PAGE.first - 14 == 3506
    assert veth_buffers.FULL_PAGE.largest_mtu == 3506 + 17 * 4096


def test_the_published_largest_mtu_is_a_capacity():
    published = veth_buffers.PUBLISHED_LARGEST_MTU
    assert veth_buffers.RFC_CAPACITY.capacity == published == 17 * 2048 + 2048 - 194 - 320
    others = [way.capacity for way in (veth_buffers.HALF_PAGE, veth_buffers.HALF_PAGE_192, veth_buffers.FULL_PAGE)]
    assert published not in others
    assert veth_buffers.HALF_PAGE_192.largest_mtu == published - 14 + 2


def test_a_packet_of_mtu_1500_fits_half_a_page_only_with_less_headroom():
    assert veth_buffers.HALF_PAGE.count(1500) == 2
    assert veth_buffers.HALF_PAGE_192.count(1500) == 1
    assert veth_buffers.HALF_PAGE_192.bytes_per_packet(1500) == 2048
    assert veth_buffers.FULL_PAGE.bytes_per_packet(1500) == 4096


@pytest.mark.parametrize("way", [veth_buffers.FULL_PAGE, veth_buffers.HALF_PAGE, veth_buffers.HALF_PAGE_192])
def test_buffers_by_length_are_the_fewest_that_hold_it(way):
    for mtu in range(60, way.largest_mtu + 1, 97):
        count = way.count(mtu)
        holds = way.first + (count - 1) * way.size
        assert holds >= mtu + 14
        assert count == 1 or holds - way.size < mtu + 14
    assert way.count(way.largest_mtu) == 18


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "unit", "text"),
    [
        (None, "pps", "-"), ("refused", "pps", "refused"), (1_904_478, "pps", "1,904,478"), (8.57e9, "bit/s", "8.57"),
        (32.34, "percent", "32.3 %"), (0.5, "number", "0.50"), (9_999, "ns", "9999 ns"), (12_340, "ns", "12.3 us"),
        (5_000_000, "ns", "5,000 us"),
    ],
)  # fmt: skip
def test_figures_by_unit(cell, unit, text):
    assert shown(cell, unit) == text


def test_a_table_as_text_has_its_columns_below_each_other():
    title, *lines, note = render.text([TABLE], 110).splitlines()
    assert (title, note) == ("Rates", "A note.")
    heads = lines[0].rstrip()
    assert [line.index("%") + 1 for line in lines[2:]] == [len(heads)] * 2
    assert lines[2].split()[:2] == ["64", "1,916,747"]


def test_a_table_as_markdown():
    assert render.markdown([TABLE]).splitlines()[2:6] == [
        "| size | rate | speed | gain |",
        "| --- | ---: | ---: | ---: |",
        "| 64 | 1,916,747 | 8.57 | 3.0 % |",
        "| 1500 | - | refused | -1.4 % |",
    ]


def test_a_plot_is_a_picture_by_itself():
    root = ElementTree.fromstring(charts.svg(result().plots[0]))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"ms", "share", "a"} <= {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert charts.svg(result().plots[0]) == charts.svg(result().plots[0])


def test_charts_are_written_a_file_each(tmp_path, capsys):
    _write_charts(tmp_path / "made", [result(), result(experiment="netem")])
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"tx-sizes-0.svg", "netem-0.svg"}
    assert ElementTree.parse(tmp_path / "made/netem-0.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert "netem-0.svg: owd" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        _write_charts(tmp_path / "file", [result()])


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_survive_json(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(report.as_json([result(), result("Linux 7.3")]))
    assert ExperimentResult.load_all(path) == [result(), result("Linux 7.3")]


@pytest.mark.parametrize("content", ["", "{}", "[{}]", '[{"kind": "xskit bench", "schema": 1}]', "[1]"])
def test_something_else_is_no_result(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ResultError, match="is not what xskit experiment run --json writes"):
        ExperimentResult.load_all(path)


def test_what_was_measured_is_kept_until_it_is_measured_again(tmp_path):
    folder = tmp_path / "kept"
    report.keep(folder, [result(emulated=True, where="Linux 5.10"), result(findings=["old"])])
    report.keep(folder, [result()])
    assert [each.where for each in report.kept(folder, "tx-sizes")] == ["Linux 6.18, veth", "Linux 5.10"]
    assert report.kept(folder, "tx-sizes")[0].findings == ["It is so."]
    assert report.kept(folder, "bridge") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError):
        report.keep(tmp_path / "file", [result()])


def test_what_one_guest_has_found_is_kept_though_the_next_one_fails(tmp_path, monkeypatch):
    def in_guest(experiment, kernel, nic, options):
        if kernel == "7.3":
            raise GuestError("it failed")
        return [result(f"Linux {kernel}, {nic}")]

    monkeypatch.setenv("XSKIT_CACHE", str(tmp_path))
    monkeypatch.setattr("xskit.cli.experiment_guests.in_guest", in_guest)
    with pytest.raises(GuestError):
        run("tx-sizes", kernel="6.1, 7.3,6.12", quiet=True)
    assert [each.where for each in report.kept(tmp_path / "experiments", "tx-sizes")] == ["Linux 6.1, virtio-net"]


def test_a_report_begins_with_what_its_figures_mean():
    experiment = find("tx-sizes")
    said = as_text(experiment, [result(emulated=True, counted=True)]).replace("\n", " ")
    assert said.index(COUNTED) < said.index("Published")
    assert EMULATED in as_text(experiment, [result(emulated=True)]).replace("\n", " ")
    assert "SHARED: others took 1.5 CPUs" in as_text(experiment, [result(others_cpus=1.5)])
    assert "SHARED" not in as_text(experiment, [result(others_cpus=0.05)])
    written = as_markdown(experiment, [result()])
    assert "`xskit experiment run tx-sizes`, 2026-01-02" in written
    assert "- It is so." in written
    assert "Not measured yet" in as_markdown(experiment, [])


def test_tables_that_are_alike_are_shown_once():
    other = result("Linux 7.3", tables=[TABLE, Table("Only here", [Column("a")], [["b"]])])
    for said in (as_text(find("bridge"), [result(), other]), as_markdown(find("bridge"), [result(), other])):
        assert (said.count("A note."), said.count("Only here")) == (1, 1)
        assert "Linux 7.3" in said


def test_a_result_knows_where_it_came_from(monkeypatch):
    monkeypatch.setenv(EMULATED_VARIABLE, "1")
    monkeypatch.setenv(COUNTED_VARIABLE, "1")
    made = ExperimentResult.begin("netem", Options.choose(short=True))
    assert (made.emulated, made.counted, made.short) == (True, True, True)
    monkeypatch.delenv(EMULATED_VARIABLE)
    assert not ExperimentResult.begin("netem", Options()).emulated
    assert json.dumps(made.as_dict())


def sends(kernel, path, costs) -> ExperimentResult:
    titles = ("size", "instructions of sendto a packet", "bytes copied a packet", "path")
    rows = [
        [str(size), cost, size if path == "copy" else 0, path] for size, cost in zip((64, 1500), costs, strict=True)
    ]
    table = Table("txonly", [Column(title) for title in titles], rows)
    return result(f"Linux {kernel}-amd64, virtio_net", tables=[table], counted=True)


def test_copy_and_page_are_held_against_each_other():
    copy, page = sends("5.10.0-46", "copy", (4000, 8000)), sends("7.3.4+deb13", "page", (4400, 4400))
    (table,) = combined("tx-sizes", [copy, page, result()])
    assert [column.title for column in table.columns] == [
        "size", "copy: Linux 5.10", "bytes copied", "page: Linux 7.3", "saved"
    ]  # fmt: skip
    assert table.rows == [
        ["64", 4000.0, 64, 4400.0, pytest.approx(-10)],
        ["1500", 8000.0, 1500, 4400.0, pytest.approx(45)],
    ]
    assert combined("tx-sizes", [page, result()]) == combined("bridge", [copy, page]) == []
    assert "All together" in as_markdown(find("tx-sizes"), [copy, page])


def test_only_a_large_memory_shows_that_the_old_limit_is_gone():
    small, large, leaking = (
        Filling(frames, sent=9, arrived=came) for frames, came in ((1 << 14, 9), (1 << 22, 9), (7, 8))
    )
    assert bridge._findings({}, [small]) == [
        "16384 frames (0.03125 GiB) were registered by both ports, filled and drained without loss."
    ]
    (found,) = bridge._findings({}, [small, large])
    assert "8 GiB" in found
    assert "the limit of 1 GiB that the thread met is gone" in found
    assert bridge._findings({"native": "no"}, [leaking]) == ["native: no.", "7 frames: 1 packets were lost."]


def test_packets_a_second_are_of_the_seconds_that_packets_were_carried(monkeypatch):
    """iperf3 carries for whole seconds."""
    lab, carried_s = MagicMock(), set()
    ways = [SimpleNamespace(packets={"sent": 300})] * 2
    lab.return_value.__enter__.return_value.link.return_value.report.return_value.links = [
        SimpleNamespace(directions=ways)
    ]

    def carry(a, b, way, seconds):
        carried_s.add(seconds)
        return 1e9

    monkeypatch.setattr(bridge, "Lab", lab)
    monkeypatch.setattr(bridge, "_carry", carry)
    found = bridge._tcp(Options(seconds=2.5, repeat=1))
    assert carried_s == {3}
    assert {rate for one in found for rate in one.pps} == {200.0}


# --- catalogue --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", CATALOGUE, ids=lambda experiment: experiment.name)
def test_each_experiment_can_be_run_and_says_what_it_is(experiment):
    module = __import__(f"xskit.experiments.{experiment.module}", fromlist=["run"])
    assert callable(module.run)
    for words in (experiment.title, experiment.source, experiment.question, experiment.conditions):
        assert words
    assert experiment.published
    for table in experiment.published:
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert render.text([table], report.WIDTH)


def test_published_gains_follow_from_the_published_rates():
    (table,) = find("tx-sizes").published
    assert [shown(row[3], "percent") for row in table.rows] == ["3.0 %", "10.0 %", "21.6 %", "32.3 %"]


def test_an_unknown_experiment_is_corrected():
    with pytest.raises(UsageError) as caught:
        find("netm")
    assert caught.value.remedy == "xskit experiment run netem"


@pytest.mark.parametrize("times", [(0.0, None), (None, 0), (None, 10**6), (1e9, None)])
def test_times_that_cannot_be(times):
    with pytest.raises(UsageError):
        Options.choose(short=True).with_times(*times)
    assert Options.choose(short=True).with_times(1.5, None).seconds == 1.5


# --- one chunk of 8192 ----------------------------------------------------------------------------------------------


class Measured:
    """Stands for what the session of a frame size found: a packet rate, and a cost a packet."""

    def __init__(self, case):
        self.case = case
        self.runs = [SimpleNamespace(counts={"received": 10, "received_frames": 10 * -(-7936 // case.frame_size)})]

    def median(self, metric):
        return self.case.frame_size / 4 if metric.endswith("_pps") else 1e6 / self.case.frame_size


def frame_size_tables(monkeypatch, hugetlb):
    """The cases of the one chunk that were run, and the tables of rates and costs."""
    session = SimpleNamespace(outcomes=[])
    monkeypatch.setattr(
        frame_sizes, "measure", lambda cases, _: session.outcomes.extend(map(Measured, cases)) or session
    )
    measured = frame_sizes.measure_all(Options(seconds=1, repeat=1), hugetlb=hugetlb)
    large = [one.case for one in session.outcomes if one.case.frame_size == 8192]
    return large, frame_sizes._rates(measured), frame_sizes._cpu(measured)


def test_a_kernel_that_takes_one_large_chunk_gets_the_third_column(monkeypatch):
    cases, rates, costs = frame_size_tables(monkeypatch, hugetlb=True)
    assert [(case.mode, case.hugetlb, case.frames * 8192) for case in cases] == [
        (mode, True, frame_sizes.MEMORY_BYTES) for mode in ("rxdrop", "l2fwd")
    ]
    assert rates.rows == [[mode, 1024, 512, 2048, -50] for mode in ("rxdrop", "l2fwd")]
    assert [row[-1] for row in costs.rows] == [1e6 / 8192] * 2


def test_one_that_does_not_is_told(monkeypatch):
    cases, rates, costs = frame_size_tables(monkeypatch, hugetlb=None)
    assert cases == []
    assert [row[3] for row in rates.rows] == ["refused", "refused"]
    assert {len(row) for row in costs.rows} == {len(costs.columns)} == {6}


def test_which_memory_a_large_chunk_wants():
    refused = dict.fromkeys(
        (
            (size, unaligned, pool)
            for size in frame_sizes.CHUNKS
            for unaligned in (False, True)
            for pool in (False, True)
        ),
        "Invalid argument",
    )
    assert frame_sizes.hugetlb_of_large_chunk(refused) is None
    assert frame_sizes._findings({}, refused, [], [])[0].startswith(
        "This kernel refuses chunks of 8192 and 16384 bytes"
    )
    patched = {**refused, (8192, False, True): None}
    assert frame_sizes.hugetlb_of_large_chunk(patched) is True
    assert frame_sizes._findings({}, patched, [], [])[0].endswith("larger than a page: 8192 from the hugetlb pool.")
    assert frame_sizes.hugetlb_of_large_chunk({**patched, (8192, False, False): None}) is False
