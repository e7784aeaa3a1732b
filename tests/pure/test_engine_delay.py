"""Loss and delay: exact where they are exact, the right distribution where they are random.

Statistical tests have fixed seeds: they fail or pass for ever, and the level says how likely a right stage is to fail
when the seed is changed.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.reference import Settings
from tests.pure.support_engine import MANY
from tests.pure.support_pipeline import LENGTHS, MS, arrivals, dropped, pipeline, play
from xskit.emulator.intervals import binomial_interval
from xskit.engine.packets import DropCause
from xskit.engine.stage import Stage
from xskit.engine.wheel import ticks_for
from xskit.stages.delay import Delay, Jitter
from xskit.stages.delay_free import FreeDelay
from xskit.stages.loss import Loss

LEVEL = 1e-4


def spaced(count: int, gap_ns: int) -> list[tuple[int, int]]:
    return [(10 * MS + gap_ns * n, 100) for n in range(count)]


def chain(delay: Delay) -> list[Stage]:
    """The default chain with this delay."""
    return list(Settings(delay=delay).stages)


# --- loss -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [0.0001, 0.01, 0.3, 0.5, 0.9])
def test_as_many_are_lost_as_asked(probability: float) -> None:
    """The probability lies in the exact 99.99 % interval of Clopper and Pearson around what was lost."""
    with pipeline([Loss(probability)], seed=1) as made:
        left = play(made, spaced(MANY, 100))
        lost = dropped(made, DropCause.LOSS)
        state = made.pipeline.reading().stage_state(0)
        assert (state.passed, state.dropped) == (MANY - lost, lost)
        assert len(left) == MANY - lost
    low, high = binomial_interval(lost, MANY, 1 - LEVEL)
    assert low <= probability <= high


@pytest.mark.parametrize(("probability", "left"), [(0.0, 1000), (1.0, 0)])
def test_nothing_and_everything_are_exact(probability: float, left: int) -> None:
    with pipeline([Loss(probability)]) as made:
        assert len(play(made, spaced(1000, 100))) == left


def test_losses_do_not_depend_on_one_another() -> None:
    """At 50 % the pairs kept-kept, kept-lost, lost-kept and lost-lost are as frequent."""
    with pipeline([Loss(0.5)], seed=2) as made:
        kept = np.zeros(MANY, dtype=bool)
        kept[[packet.number for packet in play(made, spaced(MANY, 100))]] = True
    pairs = np.bincount(2 * kept[0::2] + kept[1::2], minlength=4)
    assert scipy.stats.chisquare(pairs).pvalue > LEVEL


# --- delay ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 40), arrivals())
def test_a_constant_owd_is_exact_to_the_nanosecond(owd_ns: int, traffic: list[tuple[int, int]]) -> None:
    with pipeline(chain(Delay(owd_ns))) as made:
        left = play(made, traffic)
    assert left == [(n, time_ns + owd_ns, length) for n, (time_ns, length) in enumerate(traffic)]


@given(st.integers(0, 3 * MS), st.lists(LENGTHS, min_size=1, max_size=40))
def test_in_free_order_too_and_without_jitter_nothing_overtakes(owd_ns: int, lengths: list[int]) -> None:
    traffic = [(100 * n, length) for n, length in enumerate(lengths)]
    with pipeline(chain(FreeDelay(owd_ns))) as made:
        left = play(made, traffic)
    assert left == [(n, time_ns + owd_ns, length) for n, (time_ns, length) in enumerate(traffic)]


def owds(delay: Delay, *, gap_ns: int, seed: int, count: int = MANY // 4) -> np.ndarray:
    """What each packet was held, by its number."""
    traffic = spaced(count, gap_ns)
    with pipeline(chain(delay), packets=4096, horizon_ns=20 * MS, seed=seed) as made:
        left = play(made, traffic)
    assert len(left) == count
    found = np.zeros(count)
    for packet in left:
        found[packet.number] = packet.time_ns - traffic[packet.number][0]
    return found


OWD_NS, JITTER_NS = 5 * MS, MS // 2


@pytest.mark.parametrize("kind", [Delay, FreeDelay])
def test_uniform_jitter_is_uniform(kind: type[Delay]) -> None:
    """Packets so far apart that none waits for another."""
    held = owds(kind(OWD_NS, JITTER_NS, Jitter.UNIFORM), gap_ns=3 * JITTER_NS, seed=3)
    uniform = scipy.stats.uniform(OWD_NS - JITTER_NS, 2 * JITTER_NS)
    assert scipy.stats.kstest(held, uniform.cdf).pvalue > LEVEL


@pytest.mark.parametrize("kind", [Delay, FreeDelay])
def test_normal_jitter_is_normal(kind: type[Delay]) -> None:
    held = owds(kind(OWD_NS, JITTER_NS, Jitter.NORMAL), gap_ns=18 * JITTER_NS, seed=4)
    assert scipy.stats.kstest(held, scipy.stats.norm(OWD_NS, JITTER_NS).cdf).pvalue > LEVEL


def test_what_would_fall_below_zero_counts_as_zero() -> None:
    """Half of a normal distribution around zero."""
    held = owds(FreeDelay(0, JITTER_NS, Jitter.NORMAL), gap_ns=18 * JITTER_NS, seed=5)
    assert held.min() == 0
    assert scipy.stats.binomtest(int((held == 0).sum()), len(held), 0.5).pvalue > LEVEL


def test_free_order_reorders_and_its_mean_is_right_at_any_load() -> None:
    held = owds(FreeDelay(OWD_NS, JITTER_NS, Jitter.UNIFORM), gap_ns=5000, seed=6)
    order = np.argsort(held + 5000 * np.arange(len(held)), kind="stable")
    assert (np.diff(order) < 0).mean() > 0.3, "far from order"
    error_ns = scipy.stats.norm.isf(LEVEL / 2) * JITTER_NS / np.sqrt(3 * len(held))
    tick_ns = 1 << ticks_for(20 * MS)[1]
    assert abs(held.mean() - OWD_NS) < error_ns + tick_ns


def test_order_kept_pushes_the_mean_up_as_the_docs_say() -> None:
    kept = owds(Delay(OWD_NS, JITTER_NS, Jitter.UNIFORM), gap_ns=5000, seed=6)
    assert kept.mean() > OWD_NS + JITTER_NS / 2
    assert (np.diff(kept + 5000 * np.arange(len(kept))) >= 0).all()


def test_a_delay_beyond_the_planned_horizon_is_cut_to_it() -> None:
    """Nothing leaves a wheel before its time, or drags others along, because it was held too long."""
    buckets, shift = ticks_for(MS)
    span_ns = (buckets - 2) << shift
    with pipeline(chain(FreeDelay(100 * MS)), horizon_ns=MS) as made:
        assert play(made, [(7, 100), (900, 100)]) == [(0, 7 + span_ns, 100), (1, 900 + span_ns, 100)]
