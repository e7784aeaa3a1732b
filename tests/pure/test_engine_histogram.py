"""The histogram: where values are counted, and how far off what it says can be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.support_engine import count_call
from xskit.engine.histogram import BUCKETS, BYTES, lowest, maximum, quantiles
from xskit.memory import Region

LARGEST = (1 << 63) - 1
VALUES = st.one_of(
    st.integers(0, LARGEST),
    st.integers(0, 5000),
    st.builds(lambda power, off: max((1 << power) + off, 0), st.integers(0, 62), st.integers(-2, 2)),
)


def counted(values: list[int]) -> np.ndarray:
    with Region(BYTES) as region:
        for value in values:
            count_call(region.address, value)
        return region.array(BUCKETS, np.int64).copy()


def bucket_of(value: int) -> int:
    with Region(BYTES) as region:
        bucket = count_call(region.address, value)
        counts = region.array(BUCKETS, np.int64)
        assert counts.sum() == counts[bucket] == 1
        return bucket


@given(VALUES)
def test_a_value_is_counted_in_the_bucket_that_spans_it(value: int) -> None:
    bucket = bucket_of(value)
    assert lowest(bucket) <= value < lowest(bucket + 1)


def test_the_buckets_lie_side_by_side_and_are_at_most_a_32nd_wide() -> None:
    edges = [lowest(bucket) for bucket in range(BUCKETS + 1)]
    assert edges[0] == 0
    assert edges[-1] == 1 << 63
    for low, high in pairwise(edges):
        assert low < high
        assert high - low == 1 or (high - low) * 32 <= low


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0, 0), (1, 1), (63, 63), (64, 64), (65, 64), (66, 65), (127, 95), (128, 96), (132, 97), (LARGEST, 1887)],
)
def test_edges(value: int, bucket: int) -> None:
    assert bucket_of(value) == bucket


@pytest.mark.parametrize("value", [-1, -(1 << 63)])
def test_a_negative_value_counts_as_zero(value: int) -> None:
    assert bucket_of(value) == 0


@given(st.lists(VALUES, min_size=1, max_size=60), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_a_quantile_is_off_by_half_a_bucket_at_most(values: list[int], fractions: list[float]) -> None:
    """Against NumPy's inverse of the empirical distribution function, on the values themselves."""
    ordered = np.sort(np.array(values, dtype=np.int64))
    for fraction, found in zip(fractions, quantiles(counted(values), fractions), strict=True):
        exact = int(np.quantile(ordered, fraction, method="inverted_cdf"))
        assert found is not None
        assert abs(found - exact) <= exact / 64
        assert exact >= 64 or found == exact


@given(st.lists(VALUES, min_size=1, max_size=60))
def test_the_maximum_is_the_edge_above_the_largest(values: list[int]) -> None:
    found = maximum(counted(values))
    assert found is not None
    assert max(values) <= found <= max(values) * (1 + 1 / 32)


def test_quantiles_of_many_values() -> None:
    values = np.random.default_rng(3).lognormal(12, 2, 2000).astype(np.int64)
    fractions = [0.0, 0.001, 0.5, 0.9, 0.99, 0.999, 1.0]
    exact = np.quantile(values, fractions, method="inverted_cdf")
    assert quantiles(counted(values.tolist()), fractions) == pytest.approx(exact, rel=1 / 64)


def test_nothing_counted_is_nothing_said() -> None:
    nothing = np.zeros(BUCKETS, dtype=np.int64)
    assert quantiles(nothing, [0.5, 1.0]) == [None, None]
    assert maximum(nothing) is None
