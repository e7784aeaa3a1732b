"""What counts allow to say: error rates by exact sums and by simulation, and SciPy's own tests as a reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, quantile_test

from xskit.emulator.significance import ENOUGH, improbable_loss, late_limit_ns, punctuality

LIMIT_NS = 1_000_000
SIZES = [12, 100, 459, 1_000, 20_000]


def called(packets: int, true_share: float, runs: int, seed: int) -> int:
    """How many of so many simulated runs are called late; latenesses are exponential, and above the limit so often."""
    scale_ns = LIMIT_NS / -math.log(true_share)
    found = np.random.default_rng(seed).exponential(scale_ns, (runs, packets))
    return sum(punctuality(int(late), packets) == "late" for late in (found > LIMIT_NS).sum(axis=1))


@pytest.mark.parametrize("packets", SIZES)
def test_a_run_that_is_just_good_enough_is_called_late_in_one_of_a_hundred_cases_at_most(packets):
    """The true 99th percentile lies just below the limit; the exact rate, and a simulation that agrees with it."""
    share = 0.0099
    exact = sum(binom.pmf(late, packets, share) for late in range(packets + 1) if punctuality(late, packets) == "late")
    assert 0 < exact < 0.01
    runs = 400 if packets > 1_000 else 4_000
    simulated = binomtest(called(packets, share, runs, seed=packets), runs)
    low, high = simulated.proportion_ci(0.999)
    assert low <= exact <= high


@pytest.mark.parametrize(("packets", "share"), [(12, 0.6), (100, 0.2), (1_000, 0.04), (20_000, 0.015)])
def test_a_run_that_is_far_too_late_is_called_so(packets, share):
    runs = 400
    low, _ = binomtest(called(packets, share, runs, seed=1), runs).proportion_ci(0.999)
    assert low > 0.95


@pytest.mark.parametrize("packets", [1, 2, 12, 50, 458, 1_000, 5_000])
def test_late_means_that_the_lower_bound_of_the_99th_percentile_is_above_the_limit(packets):
    """SciPy's one-sided bound by order statistics, of samples of which so many are above the limit."""
    for late in {0, 1, 2, 3, 5, packets // 100, packets // 60, packets // 20, packets} & set(range(packets + 1)):
        samples = np.concatenate([np.full(packets - late, LIMIT_NS - 1), np.full(late, LIMIT_NS + 1)])
        found = quantile_test(samples, q=LIMIT_NS, p=0.99, alternative="greater")
        assert (punctuality(late, packets) == "late") == (found.pvalue < 0.01), late
        assert (punctuality(late, packets) == "late") == (binomtest(late, packets, 0.01, "greater").pvalue < 0.01)


def test_nothing_is_said_of_few_packets():
    assert punctuality(0, 0) == punctuality(0, 12) == punctuality(1, 12) == punctuality(1, 1) == "too few packets"
    assert punctuality(2, 12) == "late"
    assert ENOUGH == 459
    assert 0.99**459 <= 0.01 < 0.99**458
    assert punctuality(0, 458) == "too few packets"
    assert punctuality(0, 459) == punctuality(10, 1_000) == punctuality(10**10, 10**12) == "on time"
    assert punctuality(11, 1_000) == "too few packets"
    assert punctuality(10**10 + 10**6, 10**12) == "late"


def test_the_limit_is_a_part_of_the_owd_and_at_least_a_millisecond():
    assert [late_limit_ns(owd_ns) for owd_ns in (0, 20_000_000, 20_000_020, 100_000_000)] == [
        1_000_000, 1_000_000, 1_000_001, 5_000_000,
    ]  # fmt: skip


@given(st.integers(0, 3_000), st.integers(0, 3_000), st.sampled_from([0.0, 1e-6, 0.01, 0.5, 0.9, 1.0]))
def test_losses_called_improbable_are(lost, kept, asked):
    """Chance does it less often than once in 10^9 on that side, by SciPy's exact test."""
    offered = lost + kept
    if improbable_loss(lost, offered, asked):
        side = "greater" if lost > asked * offered else "less"
        assert binomtest(lost, offered, asked, side).pvalue <= 1e-9 * (1 + 1e-6)


def test_losses_that_no_chance_brings_about():
    assert improbable_loss(1, 10**9, 0.0)
    assert improbable_loss(999, 1_000, 1.0)
    assert improbable_loss(200, 1_000, 0.1)
    assert improbable_loss(0, 1_000, 0.1)
    assert not improbable_loss(0, 0, 0.5)
    assert not improbable_loss(0, 1_000, 0.0)
    assert not improbable_loss(1_000, 1_000, 1.0)
    assert not improbable_loss(130, 1_000, 0.1)
