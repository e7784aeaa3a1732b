"""Comparisons, judged by recorded noise of a real, busy machine: benchmarks/record_noise.py made the file.

Each session measured the same case twice, in turns. The bounds are those that a reader of the conclusions relies on: of
twenty comparisons of a thing with itself at least nineteen say so, and nineteen of twenty see a slow-down of 5 %.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xskit.bench.inference import Difference, compare, outliers, spread
from xskit.bench.settings import Conditions

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
    conclusions = [paired(mode, number).conclusion for where, number in SESSIONS if where == mode]
    assert conclusions.count("within noise") >= 0.95 * len(conclusions)


@pytest.mark.parametrize("mode", MODES)
def test_a_slow_down_of_5_percent_is_worse(mode: str) -> None:
    conclusions = [paired(mode, number, 1.05).conclusion for where, number in SESSIONS if where == mode]
    assert conclusions.count("worse") >= 0.95 * len(conclusions)


@pytest.mark.parametrize("mode", MODES)
def test_a_speed_up_of_5_percent_is_better(mode: str) -> None:
    conclusions = [paired(mode, number, 1 / 1.05).conclusion for where, number in SESSIONS if where == mode]
    assert conclusions.count("better") >= 0.95 * len(conclusions)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_thing_twice_is_within_noise_without_pairs(mode: str) -> None:
    """As two files are compared."""
    conclusions = []
    for session in RECORDED["sessions"][mode]:
        found = compare(session["first"][METRIC], session["second"][METRIC], better="lower")
        assert found is not None
        conclusions.append(found.conclusion)
    assert conclusions.count("within noise") >= 0.95 * len(conclusions)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_of_as_few_runs_as_usual_no_more_are_called_different(mode: str, paired: bool) -> None:
    """Every session is several of eight runs. A slow-down of 5 % is not seen in so few on such a machine."""
    usual, conclusions = Conditions().repeat, []
    for session in RECORDED["sessions"][mode]:
        first, second = session["first"][METRIC], session["second"][METRIC]
        for begin in range(0, len(first) - usual + 1, usual):
            part = slice(begin, begin + usual)
            found = compare(first[part], second[part], better="lower", paired=paired)
            assert found is not None
            assert found.paired == paired
            conclusions.append(found.conclusion)
    assert len(conclusions) >= 100
    assert conclusions.count("within noise") >= 0.95 * len(conclusions)


def test_a_higher_rate_is_better_and_a_higher_cost_worse() -> None:
    before, after = [100.0 + 0.1 * n for n in range(20)], [110.0 + 0.1 * n for n in range(20)]
    for better, expected in (("higher", "better"), ("lower", "worse")):
        found = compare(before, after, better=better)
        assert found is not None
        assert found.conclusion == expected
        assert found.ratio == pytest.approx(110.95 / 100.95)
        assert found.low < found.ratio < found.high
        assert found.percent == pytest.approx(9.906, abs=0.001)


def test_pairing_sees_through_what_disturbs_both() -> None:
    before = [100.0 * (1 + n) for n in range(20)]
    after = [value * 1.02 for value in before]
    assert compare(before, after, better="lower").conclusion == "within noise"  # type: ignore[union-attr]
    assert compare(before, after, better="lower", paired=True).conclusion == "worse"  # type: ignore[union-attr]


def test_a_difference_below_the_least_is_within_noise_however_sure() -> None:
    before = [100.0] * 20
    after = [100.9] * 20
    assert compare(before, after, better="lower").conclusion == "within noise"  # type: ignore[union-attr]
    assert compare(before, after, better="lower", least=0.005).conclusion == "worse"  # type: ignore[union-attr]


def test_four_runs_are_too_few_for_a_verdict() -> None:
    found = compare([1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0, 2.0], better="lower")
    assert found is not None
    assert found.conclusion == "too few runs"
    assert found.n == (4, 5)


def test_the_same_values_always_give_the_same_answer() -> None:
    values = [float(value) for value in (3, 1, 4, 1, 5, 9, 2, 6)]
    assert compare(values, values[::-1], better="lower") == compare(values, values[::-1], better="lower")


@pytest.mark.parametrize(("first", "second"), [([], [1.0]), ([1.0], []), ([1.0], [-1.0]), ([-1.0], [1.0])])
def test_without_values_or_with_negative_medians_there_is_no_ratio(first: list[float], second: list[float]) -> None:
    assert compare(first, second, better="lower") is None


@pytest.mark.parametrize(
    ("first", "second", "better", "conclusion"),
    [
        ([0.0] * 7, [0.02] * 7, "lower", "worse"),  # losses, where there were none
        ([0.0] * 7, [0.0, 0.0, 0.0, 0.0, 0.001, 0.0, 0.3], "lower", "within noise"),
        ([0.0] * 7, [0.0] * 7, "lower", "within noise"),
        ([0.0] * 7, [5.0] * 7, "higher", "better"),
        ([0.0] * 4, [0.02] * 4, "lower", "too few runs"),
    ],
)
def test_from_nothing_there_is_no_ratio_but_a_verdict(
    first: list[float], second: list[float], better: Any, conclusion: str
) -> None:
    for paired in (False, True):
        found = compare(first, second, better=better, paired=paired)
        assert found is not None
        assert (found.ratio, found.low, found.high, found.percent, found.paired) == (None,) * 4 + (False,)
        assert found.conclusion == conclusion


def test_what_came_to_nothing_is_a_hundred_percent() -> None:
    found = compare([1e6] * 7, [0.0] * 7, better="higher")
    assert found is not None
    assert (found.percent, found.low, found.high, found.conclusion) == (-100.0, 0.0, 0.0, "worse")


@pytest.mark.parametrize(("n", "paired"), [(5, False), (7, False), (8, False), (20, False), (8, True), (20, True)])
def test_of_the_same_twice_no_more_are_called_different_than_said(n: int, paired: bool) -> None:
    """However few runs: values that are independent, so that nothing but chance makes a difference."""
    generator, times = np.random.default_rng(n), 200
    different = missed = 0
    for _ in range(times):
        first, second = generator.lognormal(0, 0.05, (2, n))
        found = compare(first, second, better="lower", paired=paired, least=0)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        different += found.conclusion != "within noise"
        missed += not found.low <= 1 <= found.high
    assert different <= 0.03 * times  # 1 % and what 200 of them may be off
    assert missed <= 0.08 * times  # 5 %


def test_pairs_too_few_for_a_verdict_count_as_two_groups() -> None:
    """Seven ratios on one side are not rare enough."""
    before = [100.0, 150.0, 120.0, 90.0, 130.0, 110.0, 140.0, 105.0]
    after = [value * 1.02 for value in before]
    for n, paired, conclusion in ((7, False, "within noise"), (8, True, "worse")):
        found = compare(before[:n], after[:n], better="lower", paired=True)
        assert found is not None
        assert (found.paired, found.conclusion) == (paired, conclusion)


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


def test_one_among_equals_is_far_out() -> None:
    """As instructions that are counted are, and losses."""
    assert outliers([0.0] * 9 + [0.5]) == (9,)
    assert outliers([7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 8.0, 7.0]) == (6,)
    assert outliers([7.0, 7.0, 7.0, 8.0, 8.0]) == ()
