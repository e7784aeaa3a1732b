"""Verdicts of comparisons, judged by recorded noise of a real, busy machine: benchmarks/record_noise.py made the file.

Each session measured the same case twice, in turns. The bounds are those that a reader of the verdicts relies on: of
twenty comparisons of a thing with itself at least nineteen say so, and nineteen of twenty see a slow-down of 5 %.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xskit.bench.statistics import Difference, compare, outliers, spread

RECORDED = json.loads((Path(__file__).parents[1] / "data/bench_noise.json").read_text())
SESSIONS = [(mode, number) for mode, sessions in RECORDED["sessions"].items() for number in range(len(sessions))]
MODES = list(RECORDED["sessions"])
METRIC = "cpu_ns_per_packet"


def paired(mode: str, number: int, factor: float = 1.0) -> Difference:
    session = RECORDED["sessions"][mode][number]
    second = [value * factor for value in session["second"][METRIC]]
    found = compare(session["first"][METRIC], second, better="lower", paired=True)
    assert found is not None
    return found


@pytest.mark.parametrize("mode", MODES)
def test_at_least_twenty_sessions_were_recorded(mode: str) -> None:
    assert len(RECORDED["sessions"][mode]) >= 20


@pytest.mark.parametrize("mode", MODES)
def test_the_same_thing_twice_is_within_noise(mode: str) -> None:
    verdicts = [paired(mode, number).verdict for where, number in SESSIONS if where == mode]
    assert verdicts.count("within noise") >= 0.95 * len(verdicts)


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_down_of_5_percent_is_worse(mode: str) -> None:
    verdicts = [paired(mode, number, 1.05).verdict for where, number in SESSIONS if where == mode]
    assert verdicts.count("worse") >= 0.95 * len(verdicts)


@pytest.mark.parametrize("mode", MODES)
def test_a_speed_up_of_5_percent_is_better(mode: str) -> None:
    verdicts = [paired(mode, number, 1 / 1.05).verdict for where, number in SESSIONS if where == mode]
    assert verdicts.count("better") >= 0.95 * len(verdicts)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_thing_twice_is_within_noise_without_pairs(mode: str) -> None:
    """As two files are compared."""
    verdicts = []
    for session in RECORDED["sessions"][mode]:
        found = compare(session["first"][METRIC], session["second"][METRIC], better="lower")
        assert found is not None
        verdicts.append(found.verdict)
    assert verdicts.count("within noise") >= 0.95 * len(verdicts)


def test_a_higher_rate_is_better_and_a_higher_cost_worse() -> None:
    before, after = [100.0 + 0.1 * n for n in range(20)], [110.0 + 0.1 * n for n in range(20)]
    for better, expected in (("higher", "better"), ("lower", "worse")):
        found = compare(before, after, better=better)
        assert found is not None
        assert found.verdict == expected
        assert found.ratio == pytest.approx(110.95 / 100.95)
        assert found.low < found.ratio < found.high
        assert found.percent == pytest.approx(9.906, abs=0.001)


def test_pairing_sees_through_what_disturbs_both() -> None:
    before = [100.0 * (1 + n) for n in range(20)]
    after = [value * 1.02 for value in before]
    assert compare(before, after, better="lower").verdict == "within noise"  # type: ignore[union-attr]
    assert compare(before, after, better="lower", paired=True).verdict == "worse"  # type: ignore[union-attr]


def test_a_difference_below_the_least_is_within_noise_however_sure() -> None:
    before = [100.0] * 20
    after = [100.9] * 20
    assert compare(before, after, better="lower").verdict == "within noise"  # type: ignore[union-attr]
    assert compare(before, after, better="lower", least=0.005).verdict == "worse"  # type: ignore[union-attr]


def test_four_runs_are_too_few_for_a_verdict() -> None:
    found = compare([1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0], better="lower")
    assert found is not None
    assert found.verdict == "too few runs"
    assert found.n == (4, 5)


def test_the_same_values_always_give_the_same_answer() -> None:
    values = [float(value) for value in (3, 1, 4, 1, 5, 9, 2, 6)]
    assert compare(values, values[::-1], better="lower") == compare(values, values[::-1], better="lower")


@pytest.mark.parametrize(("first", "second"), [([0.0], [1.0]), ([], [1.0]), ([1.0], [-1.0])])
def test_without_positive_medians_there_is_no_ratio(first: list[float], second: list[float]) -> None:
    assert compare(first, second, better="lower") is None


def test_the_interval_of_a_median_needs_six_runs() -> None:
    five, six = spread([5.0, 1.0, 4.0, 2.0, 3.0]), spread([6.0, 5.0, 1.0, 4.0, 2.0, 3.0])
    assert (five.low, five.high, five.width) == (None, None, None)
    assert (six.low, six.median, six.high) == (1.0, 3.5, 6.0)
    assert six.width == pytest.approx(2.5 / 3.5)
    assert (five.least, five.most, five.n) == (1.0, 5.0, 5)


def test_what_is_far_out_is_named_and_stays_in() -> None:
    values = [10.0, 10.1, 9.9, 10.0, 10.2, 50.0]
    found = spread(values)
    assert found.outliers == (5,)
    assert found.n == 6
    assert found.most == 50.0


def test_few_or_equal_values_have_nothing_far_out() -> None:
    assert outliers([1.0, 1.0, 1.0, 100.0]) == ()
    assert outliers([1.0] * 10) == ()
