"""Benchmarks in turns, as in a guest whose clock counts instructions. Here the clock is an ordinary one: no figure is
judged, but that every packet comes and is counted, and what is reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from xskit.bench import counted as counted_module
from xskit.bench.bed import Bed
from xskit.bench.counted import count_once
from xskit.bench.in_guest import COUNTED_VARIABLE
from xskit.bench.results import Run
from xskit.bench.session import measure
from xskit.bench.settings import Case, Conditions
from xskit.netconf.namespaces import inside

pytestmark = pytest.mark.root

SHORT = Conditions(duration=0.02)

WORKER = {"instructions_per_packet", "guest_instructions_per_packet"}
REPORTED = {
    "rxdrop": WORKER,
    "txonly": WORKER,
    "l2fwd": WORKER,
    "forward": WORKER,
    "loss": WORKER | {"loss", "reordered"},
    "latency": {"round_trip_p50_instructions", "round_trip_p99_instructions"},
}
COPIED = "copied_bytes_per_packet"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed() as made:
        yield made


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COUNTED_VARIABLE, "1")


def run(bed: Bed, case: Case, conditions: Conditions = SHORT) -> Run:
    return count_once(case, bed.place(case), conditions)[0]


def judge(case: Case, result: Run) -> None:
    """All that was sent has come, and came out again where it should."""
    counts, far = result.counts, result.far
    assert counts["unfinished"] == 0
    if case.mode in ("rxdrop", "l2fwd", "forward", "loss"):
        assert counts["received"] == far.get("made", far.get("sent")) > 0
    if case.mode in ("txonly", "l2fwd", "forward"):
        assert far["received"] == counts["sent"] > 0
        assert far.get("corrupted", 0) == 0
    if case.mode == "latency":
        assert counts["round_trips"] == counts["sent"] > 0
    if case.mode == "loss":
        assert result.metrics["loss"] == result.metrics["reordered"] == counts["corrupted"] == 0


@pytest.mark.parametrize("drive", ["auto", "af-xdp"])
@pytest.mark.parametrize("mode", REPORTED)
def test_every_mode_in_turns(bed: Bed, mode: str, drive: str) -> None:
    case = Case(mode, drive=drive)
    result = run(bed, case)
    judge(case, result)
    assert set(result.metrics) - {COPIED} == REPORTED[mode]
    assert not result.notes


VARIANTS: dict[str, dict[str, Any]] = {
    "generic": {"xdp": "generic"},
    "poll": {"poll": True},
    "two queues": {"queues": (0, 1)},
    "several frames": {"packet_size": 9004, "multi_buffer": True, "batch": 4},
    "both ways": {"both_ways": True},
    "both ways, sockets": {"both_ways": True, "drive": "af-xdp"},
    "small rings": {"ring": 64, "frames": 64, "batch": 16},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_forward_in_turns(bed: Bed, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if VARIANTS[name].get("poll"):  # here a turn without work sleeps for 0.1 s; in a guest sleep takes no time
        monkeypatch.setattr(counted_module, "IDLE_TURNS", 8)
        monkeypatch.setattr(counted_module, "CALIBRATIONS", 3)
    case = Case("forward", **VARIANTS[name])
    judge(case, run(bed, case))


def test_a_count_ends_a_run(bed: Bed) -> None:
    result = run(bed, Case("rxdrop", count=700), Conditions(duration=60.0))
    assert sum(sample.received for sample in result.samples[-1:]) == 700


@pytest.mark.parametrize("mode", ["rxdrop", "txonly", "l2fwd", "latency", "loss"])
def test_over_wires_only_the_whole_guest_is_told(bed: Bed, mode: str) -> None:
    place = bed.place(Case("rxdrop"))
    with inside(place.namespace), Bed(place.far) as wired:
        case = Case(mode, place.near)
        result = run(wired, case)
    judge(case, result)
    assert not result.metrics.keys() & {"instructions_per_packet", *REPORTED["latency"]}
    told = [note for note in result.notes if "went there and back" in note]
    assert len(told) == (1 if mode == "latency" else 0)


def test_a_guest_that_counts_measures_so() -> None:
    (outcome,) = measure([Case("rxdrop")], Conditions(duration=0.02, repeat=2)).outcomes
    assert "rx_pps" not in outcome.metrics()
    assert outcome.main_metric == "instructions_per_packet"
    assert [run.repeat for run in outcome.runs] == [0, 1]
