"""The demo: when it fails, whether that says anything about xskit."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from xskit.cli import demo as module
from xskit.cli.demo import PATH_NS, DemoRow, Measurements, _add_probe_rows, _time_row, _too_busy
from xskit.emulator.mistakes import SettingsError
from xskit.emulator.report import Report
from xskit.emulator.report_data import DirectionReport, LinkReport, WorkerReport
from xskit.lab.traffic import UdpResult

SECOND_NS = 1_000_000_000


def report(*, stalled_ns=0, late_ns=50_000, valid=True):
    judgement = "late" if late_ns > 1_000_000 else "on time"
    late = dict.fromkeys(("p50", "p999", "max"), 1_000) | {"p99": late_ns, "judgement": judgement}
    way = DirectionReport("forward", {}, {}, [], {}, {}, late)
    quiet = DirectionReport("reverse", {}, {}, [], {}, {}, late | {"p99": None, "judgement": "too few packets"})
    return Report(
        links=[LinkReport("demo", [way, quiet])],
        ports=[],
        workers=[WorkerReport(1, "adaptive", 10, 5, 3, stalled_ns, 2)],
        memory={},
        duration_ns=10 * SECOND_NS,
        valid=valid,
        invalid_because=[] if valid else ["packets left late"],
    )


@pytest.mark.parametrize(
    ("facts", "others", "reason"),
    [
        ({}, 1.31, "other programs took 1.3 CPUs"),
        ({"stalled_ns": 200_000_000}, 0, "the worker was kept from running for 200 ms"),
        ({"late_ns": 3_000_000}, 0, "packets left 3 ms late at the 99th percentile"),
        (
            {"stalled_ns": 2 * SECOND_NS},
            0.5,
            "other programs took 0.5 CPUs, the worker was kept from running for 2 s",
        ),
    ],
)
def test_a_busy_machine_is_told(facts, others, reason):
    assert _too_busy(report(**facts), others) == f"the machine was too busy; run it again ({reason})"


def test_a_quiet_machine_is_no_excuse():
    assert _too_busy(report(stalled_ns=90_000_000, late_ns=900_000), 0.2) is None


@pytest.fixture
def outcome(monkeypatch):
    """The demo without its links: the test says what was achieved, and what others took."""

    @contextmanager
    def told(within, others, **facts):
        monkeypatch.setattr(
            module,
            "_run",
            lambda console, **_: (Measurements([DemoRow("owd", "20ms", "25ms", within=within)]), report(**facts)),
        )
        monkeypatch.setattr("xskit.bench.others.OtherPrograms.cpus", lambda self: others)
        yield

    return told


def test_a_mistake_is_told_before_anything_is_made(outcome):
    with outcome(True, 0), pytest.raises(SettingsError, match="^--seed: expected 0 or more, got -1$"):
        module.demo(seed=-1)


@pytest.mark.parametrize(("within", "valid"), [(False, True), (True, False)])
def test_a_failed_demo_says_that_the_machine_was_busy(outcome, capsys, within, valid):
    with outcome(within, 1.0, valid=valid), pytest.raises(typer.Exit) as ended:
        module.demo()
    assert ended.value.exit_code == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "the machine was too busy; run it again (other programs took 1.0 CPUs)"
    with outcome(within, 1.0, valid=valid), pytest.raises(typer.Exit) as ended:
        module.demo(json=True)
    assert ended.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["too_busy"] == last


def test_a_good_demo_says_nothing_of_that(outcome, capsys):
    with outcome(True, 1.9):
        module.demo()
    assert "busy" not in capsys.readouterr().out
    with outcome(True, 1.9):
        module.demo(json=True)
    assert json.loads(capsys.readouterr().out)["too_busy"] is None


NS = st.integers(19_998_000, 20_403_000)


@given(st.lists(NS, min_size=1, max_size=40))
def test_a_time_that_is_outside_is_seen_to_be(samples):
    """From what is shown alone: the median, or its interval where that is shown, against asked and the path."""
    row = _time_row("owd", 20_000_000, sorted(samples), PATH_NS)
    assert row.allowed == "+ 200 us of path"
    if row.achieved.endswith(" (too few to tell)"):
        assert row.within
        assert len(samples) < 20
        return
    median, low, high = re.fullmatch(r"([\d.]+) ms(?: \(([\d.]+) ms \.\. ([\d.]+) ms\))?", row.achieved).groups()
    if low is None:
        assert row.within == (20 <= float(median) <= 20.2)
    else:
        assert row.within == (float(low) <= 20.2 and float(high) >= 20 and float(median) >= 20)


def test_values_next_to_what_is_allowed_are_told_apart():
    assert _time_row("owd", 20_000_000, [19_999_900] * 100, PATH_NS).achieved == "19.9999 ms"
    outcome = Measurements()
    owd_ns = [20_000_000] * 90 + [21_200_100] * 10
    late = UdpResult(100, 100, owd_ns, reordered=0, frame_bytes=142, stamps_ns=[], delays_ns=owd_ns)
    _add_probe_rows(outcome, "forward", 20_000_000, 0.0, late)
    assert (outcome.rows[1].achieved, outcome.rows[1].within) == ("21.2001 ms", False)
