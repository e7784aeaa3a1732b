"""Histograms of times: log-linear, 32 steps an octave (3 % wide), one count added a packet.

Values below 64 ns have a bucket each. Bucket widths double with every octave, as in HdrHistogram.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from xskit.jit import inlined, leading_zeros
from xskit.memory import I64, Record, record_at

STEP_BITS = 5
STEPS = 1 << STEP_BITS
BUCKETS = (64 - STEP_BITS) * STEPS
BYTES = BUCKETS * 8


class Bucket(Record):
    """One place of a histogram. A record, so that counting leaves what compiled code knows of other memory alone."""

    count: I64


bucket_at = record_at(Bucket)


@inlined
def bucket_of(value_ns: int) -> int:
    """The bucket that counts a value; negative values count as 0."""
    if value_ns < 2 * STEPS:
        return max(value_ns, 0)
    shift = 63 - STEP_BITS - leading_zeros(value_ns)
    return (shift << STEP_BITS) + (value_ns >> shift)


@inlined
def add(histogram: int, value_ns: int) -> None:
    """Count one value in the histogram at an address."""
    bucket_at(histogram + (bucket_of(value_ns) << 3)).count += 1


def lowest(bucket: int) -> int:
    """The smallest value that a bucket counts."""
    if bucket < 2 * STEPS:
        return bucket
    shift = (bucket >> STEP_BITS) - 1
    return ((bucket & (STEPS - 1)) + STEPS) << shift


def quantiles(counts: np.ndarray[Any, Any], fractions: Sequence[float]) -> list[float | None]:
    """The smallest values that these fractions of all counted values do not exceed; None where nothing was counted.

    Known by their buckets, of which they are the middle: the error is at most half a bucket, 1.6 %, below 64 ns none.
    """
    total = int(counts.sum())
    if total == 0:
        return [None] * len(fractions)
    up_to = np.cumsum(counts)
    found: list[float | None] = []
    for fraction in fractions:
        rank = min(max(math.ceil(fraction * total), 1), total)
        bucket = int(np.searchsorted(up_to, rank, side="left"))
        found.append((lowest(bucket) + lowest(bucket + 1) - 1) / 2)
    return found


def maximum(counts: np.ndarray[Any, Any]) -> int | None:
    """The upper edge of the highest bucket in use, None where nothing was counted."""
    used = np.flatnonzero(counts)
    return None if used.size == 0 else lowest(int(used[-1]) + 1) - 1
