"""The random streams: the published generator, streams of their own for each name, and right distributions.

Statistical tests have fixed seeds: they fail or pass for ever, and the level says how likely a right generator is to
fail when the seed is changed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.reference import Xoshiro, splitmix64
from tests.pure.support_engine import DRAW, DRAW64, MANY, NORMAL, UNIFORM, Stream, stream
from xskit.engine.random import UNIT, Random, seed_stream
from xskit.memory import scratch

LEVEL = 1e-4
WORDS = st.integers(0, (1 << 64) - 1)


def with_state(*words: int) -> Stream:
    made = Stream()
    made.state.s0, made.state.s1, made.state.s2, made.state.s3 = words
    return made


def test_the_first_numbers_are_the_published_ones() -> None:
    """From the state 1, 2, 3, 4: what xoshiro256++'s reference implementation gives (the test of rand_xoshiro)."""
    made = with_state(1, 2, 3, 4)
    assert made.take(DRAW64, 10).tolist() == [
        41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205, 9973669472204895162,
        14011001112246962877, 12406186145184390807, 15849039046786891736, 10450023813501588000,
    ]  # fmt: skip
    made.close()


def test_the_seeds_are_spread_by_the_published_splitmix64() -> None:
    """From the state 1234567; the vector of Vigna's splitmix64.c."""
    assert splitmix64(1234567, 5) == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


@given(st.tuples(WORDS, WORDS, WORDS, WORDS))
def test_any_state_goes_on_as_in_another_implementation(words: tuple[int, int, int, int]) -> None:
    made, other = with_state(*words), Xoshiro(words)
    assert made.take(DRAW64, 20).tolist() == [other.draw64() for _ in range(20)]
    assert made.take(DRAW, 20).tolist() == [other.draw64() >> 11 for _ in range(20)]
    made.close()


@given(st.integers(0, 1 << 70), st.lists(st.text(max_size=5), max_size=3))
def test_a_stream_is_started_by_seed_and_names(seed: int, names: list[str]) -> None:
    with stream(seed, *names) as made:
        other = Xoshiro.named(seed, *names)
        assert made.take(DRAW64, 4).tolist() == [other.draw64() for _ in range(4)]


def test_other_names_and_other_seeds_give_other_streams() -> None:
    starts = {("a", "loss", "0"), ("a", "loss", "1"), ("b", "loss", "0"), ("a", "delay", "0"), ("al", "oss", "0"), ()}
    states = set()
    for seed in (0, 1):
        for names in starts:
            with scratch(Random) as (_, view):
                seed_stream(view, seed, *names)
                states.add((view.s0, view.s1, view.s2, view.s3))
    assert len(states) == 2 * len(starts)


def test_streams_of_different_names_are_independent() -> None:
    """Correlation of two streams with neighbouring names; its standard error is 1 / sqrt(n)."""
    with stream(1, "a", "loss", "0") as one, stream(1, "a", "loss", "1") as two:
        first, second = one.take(UNIFORM, MANY), two.take(UNIFORM, MANY)
    assert abs(np.corrcoef(first, second)[0, 1]) < scipy.stats.norm.isf(LEVEL / 2) / math.sqrt(MANY)


@pytest.mark.parametrize(("state", "lowest"), [((0, 0, 0, (1 << 64) - 1), False), ((0, 0, 0, 0), True)])
def test_uniform_and_normal_stay_finite_at_both_ends(state: tuple[int, int, int, int], lowest: bool) -> None:
    """States whose next draw is the largest, or the smallest, there is."""
    made = with_state(*state)
    assert made.take(DRAW, 1)[0] == (0 if lowest else UNIT - 1)
    made.state.s0, made.state.s1, made.state.s2, made.state.s3 = state
    value = made.take(UNIFORM, 1)[0]
    assert 0.0 < value < 1.0
    made.state.s0, made.state.s1, made.state.s2, made.state.s3 = state
    assert made.take(NORMAL, 1)[0] == pytest.approx(scipy.special.ndtri(2.0**-53) * (1 if lowest else -1), rel=1e-12)
    made.close()


@given(WORDS)
def test_normal_is_the_inverse_of_the_distribution_function(word: int) -> None:
    """Any draw at all, the tails included: a state of (0, 0, 0, w) draws w rotated by 23."""
    made = with_state(0, 0, 0, ((word >> 23) | (word << 41)) & ((1 << 64) - 1))
    p = made.take(UNIFORM, 1)[0]
    assert p == ((word >> 12) + 0.5) / 2.0**52
    made.state.s0 = made.state.s1 = made.state.s2 = 0
    made.state.s3 = ((word >> 23) | (word << 41)) & ((1 << 64) - 1)
    assert made.take(NORMAL, 1)[0] == pytest.approx(scipy.special.ndtri(p), rel=1e-13, abs=1e-13)
    made.close()


def test_the_far_tail_is_the_normal_distributions_too() -> None:
    for exponent in range(1, 52):
        word = (1 << (64 - exponent)) - 1
        made = with_state(0, 0, 0, ((word >> 23) | (word << 41)) & ((1 << 64) - 1))
        expected = scipy.special.ndtri(((word >> 12) + 0.5) / 2.0**52)
        assert made.take(NORMAL, 1)[0] == pytest.approx(expected, rel=1e-12, abs=1e-12)
        made.close()


def test_draws_are_uniform() -> None:
    with stream(7, "uniform") as made:
        counts = np.bincount(made.take(DRAW, MANY) >> 45, minlength=256)
    assert len(counts) == 256
    assert scipy.stats.chisquare(counts).pvalue > LEVEL


def test_the_low_bits_are_uniform_too() -> None:
    with stream(8, "uniform") as made:
        counts = np.bincount(made.take(DRAW, MANY) & 255, minlength=256)
    assert scipy.stats.chisquare(counts).pvalue > LEVEL


def test_normal_draws_are_normal() -> None:
    with stream(9, "normal") as made:
        assert scipy.stats.kstest(made.take(NORMAL, MANY), "norm").pvalue > LEVEL
