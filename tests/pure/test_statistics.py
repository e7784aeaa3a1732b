"""Intervals: values from the literature, exact sums, and how often a simulated truth is missed."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, bootstrap, quantile_test

from xskit.bench.inference import compare
from xskit.emulator.intervals import binomial_interval, mean_rate_interval, median_interval, quantile_interval


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.3085),  # the tables of Clopper and Pearson's 95 % intervals
        (10, 10, 0.6915, 1.0),
        (5, 10, 0.1871, 0.8129),
        (2, 20, 0.0123, 0.3170),
        (10, 100, 0.0490, 0.1762),
    ],
)
def test_clopper_pearson_tables(k, n, low, high):
    assert binomial_interval(k, n, 0.95) == pytest.approx((low, high), abs=5e-5)


def test_no_event_has_a_closed_form():
    low, high = binomial_interval(0, 1000, 0.9999)
    assert low == 0.0
    assert high == pytest.approx(1 - 0.00005 ** (1 / 1000), rel=1e-9)


def test_no_trials_tell_nothing():
    assert binomial_interval(0, 0, 0.95) == (0.0, 1.0)


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([0.5, 0.95, 0.9999]))
def test_the_ends_are_where_the_tails_are(k, rest, confidence):
    """The defining property: at either end, an outcome as extreme as the one seen has exactly half of the doubt."""
    n = k + rest
    low, high = binomial_interval(k, n, confidence)
    tail = (1 - confidence) / 2
    assert 0 <= low <= high <= 1
    if k > 0:
        assert sum(_binomial(i, n, low) for i in range(k, n + 1)) == pytest.approx(tail, rel=1e-6)
    if k < n:
        assert sum(_binomial(i, n, high) for i in range(k + 1)) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize(
    ("n", "low_rank", "high_rank"),
    [(6, 1, 6), (10, 2, 9), (20, 6, 15), (30, 10, 21), (50, 18, 33), (100, 40, 61)],  # ranks of the sign test at 95 %
)
def test_median_ranks(n, low_rank, high_rank):
    assert median_interval(range(1, n + 1), 0.95) == (low_rank, high_rank)


def test_too_few_samples_leave_the_interval_open():
    assert median_interval([], 0.95) == (-math.inf, math.inf)
    assert median_interval([1, 2, 3, 4, 5], 0.95) == (-math.inf, math.inf)
    assert quantile_interval(range(1, 101), 0.99, 0.95) == (97, math.inf)


@given(st.integers(1, 120), st.sampled_from([0.01, 0.5, 0.9, 0.99]), st.sampled_from([0.5, 0.95, 0.9999]))
def test_ranks_are_the_tightest_that_keep_the_confidence(n, quantile, confidence):
    low, high = quantile_interval(range(1, n + 1), quantile, confidence)
    tail = (1 - confidence) / 2
    chances = [_binomial(k, n, quantile) for k in range(n + 1)]  # of k samples below the quantile
    if low > -math.inf:
        assert sum(chances[:low]) <= tail * (1 + 1e-9)
    if high < math.inf:
        assert sum(chances[high:]) <= tail * (1 + 1e-9)
    next_low = 1 if low == -math.inf else low + 1
    next_high = n if high == math.inf else high - 1
    assert sum(chances[:next_low]) > tail * (1 - 1e-9)
    assert sum(chances[next_high:]) > tail * (1 - 1e-9)


def test_a_probability_is_missed_no_more_often_than_said():
    rng = random.Random(1)
    n, truth, runs, confidence = 200, 0.03, 4000, 0.9
    intervals = {k: binomial_interval(k, n, confidence) for k in range(n + 1)}
    missed = 0
    for _ in range(runs):
        low, high = intervals[sum(rng.random() < truth for _ in range(n))]
        missed += not low <= truth <= high
    assert 0.02 < missed / runs <= 0.1


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_a_quantile_is_missed_no_more_often_than_said(quantile):
    rng = random.Random(2)
    truth, runs, confidence = -math.log(1 - quantile), 2000, 0.9  # of the exponential distribution
    missed = 0
    for _ in range(runs):
        low, high = quantile_interval(sorted(rng.expovariate(1) for _ in range(100)), quantile, confidence)
        missed += not low <= truth <= high
    assert 0.02 < missed / runs <= 0.1


@given(
    st.integers(1, 10**10),
    st.integers(100, 100_000),
    st.integers(1, 10**9),
    st.integers(0, 1000),
    st.floats(0, 0.999),
)
def test_a_rate_is_never_missed(rate_bps, packet_bits, window_ns, error_percent_tenths, phase):
    """A saturated bottleneck ends packet i at (i + phase) * packet_bits / rate; the clock errs by what is said."""
    error_ns = window_ns * error_percent_tenths // 2000
    for true_window_ns in (window_ns - error_ns, window_ns + error_ns):
        ended = math.floor(true_window_ns * 1e-9 * rate_bps / packet_bits + phase)
        low, high = mean_rate_interval(ended, packet_bits, window_ns, window_error_ns=error_ns)
        assert low * (1 - 1e-9) <= rate_bps <= high * (1 + 1e-9)


def test_a_rate_interval_in_numbers():
    assert mean_rate_interval(1000, 12_000, 10**9) == (999 * 12_000, 1001 * 12_000)
    assert mean_rate_interval(0, 12_000, 10**9) == (0, 12_000)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99, 0.9999])
def test_a_probability_has_the_interval_of_scipys_binomtest(confidence):
    """To the tolerance of its root finder, 2e-12."""
    for n in (1, 2, 10, 99, 1_000, 50_000):
        for k in {0, 1, n // 3, n // 2, n - 1, n}:
            theirs = binomtest(k, n).proportion_ci(confidence, method="exact")
            assert binomial_interval(k, n, confidence) == pytest.approx((theirs.low, theirs.high), abs=1e-11), (k, n)


def test_a_small_probability_is_not_rounded_to_nothing():
    """What scipy.stats is not used for: there the lower end is 0."""
    low, _ = binomial_interval(1, 10**9, 0.9999)
    assert low == pytest.approx(5e-14, rel=1e-4)


@pytest.mark.parametrize("quantile", [0.01, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("confidence", [0.6, 0.95, 0.99, 0.9999])
def test_a_quantile_has_the_interval_of_scipys_quantile_test(quantile, confidence):
    for n in (*range(1, 40), 100, 459, 460, 1_000):
        ranks = range(1, n + 1)
        theirs = quantile_test(ranks, p=quantile).confidence_interval(confidence)
        low, high = (edge if math.isnan(end) else end for end, edge in zip(theirs, (-math.inf, math.inf), strict=True))
        assert quantile_interval(ranks, quantile, confidence) == (low, high), n


def test_many_pairs_have_the_interval_of_scipys_bootstrap():
    """Of many values nothing is widened, and pairs are drawn one by one: what scipy.stats does."""
    generator = np.random.default_rng(5)
    first = generator.normal(100, 5, 400)
    second = first * generator.normal(1.03, 0.02, 400)
    ours = compare(first, second, better="higher", paired=True)
    theirs = bootstrap(
        (second / first,), np.median, n_resamples=4_000, confidence_level=0.95, method="percentile", rng=generator
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-3)
    assert ours.high - ours.low > 2e-3


@pytest.mark.parametrize(
    "call",
    [
        lambda: binomial_interval(2, 1, 0.95),
        lambda: binomial_interval(-1, 1, 0.95),
        lambda: binomial_interval(0, 1, 1.0),
        lambda: median_interval([1.0], 0.0),
        lambda: quantile_interval([1.0], 1.0, 0.95),
        lambda: mean_rate_interval(1, 8, 0),
        lambda: mean_rate_interval(-1, 8, 1),
        lambda: mean_rate_interval(1, 8, 10, window_error_ns=10),
    ],
)
def test_impossible_questions(call):
    with pytest.raises(ValueError, match=r"\d"):
        call()


def test_scipy_waits_for_the_first_call():
    code = "import sys, xskit.emulator.intervals; sys.exit('scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def _binomial(k: int, n: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)
