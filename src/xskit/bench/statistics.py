"""Medians, their intervals, outliers, and what a difference is worth.

Nothing here assumes a distribution. The interval of a median comes from the order of the values; that of a ratio is
bootstrapped, with a seed of its own, so that the same values always give the same answer. Runs that follow one another
are alike, because what disturbs a machine lasts: so unpaired values are drawn again in blocks of neighbours, about as
many blocks as a block has values (the moving block bootstrap: Kuensch, Annals of Statistics 17, 1989).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xskit.emulator.statistics import median_interval

__all__ = ["CONFIDENCE", "Difference", "Spread", "Verdict", "compare", "spread"]

CONFIDENCE = 0.95
SURE = 0.99
"""A verdict needs the interval at this confidence to exclude 1: of twenty comparisons of a thing with itself at most
one may be called a difference, and with 95 % that would happen as often as not."""

LEAST = 0.01
"""Differences below this fraction are within noise whatever their interval: between two runs memory lies elsewhere."""

RESAMPLES = 4000
FAR_OUT = 3.5
"""Robust standard deviations from the median (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993)."""

ENOUGH = 5
"""With fewer runs the resampled medians take so few values that no interval is to be trusted."""

Verdict = Literal["better", "worse", "within noise", "too few runs"]


@dataclass(frozen=True)
class Spread:
    """Values of one metric over the runs of a case.

    `low` and `high` hold the median at 95 % confidence; None where there are too few runs for that (fewer than 6).
    `outliers` are positions in the values; they are counted like all others.
    """

    n: int
    median: float
    low: float | None
    high: float | None
    least: float
    most: float
    outliers: tuple[int, ...]

    @property
    def width(self) -> float | None:
        """The larger distance of an end of the interval from the median, as a fraction of it."""
        if self.low is None or self.high is None or self.median == 0:
            return None
        return max(self.high - self.median, self.median - self.low) / abs(self.median)


def spread(values: Sequence[float]) -> Spread:
    """The Spread of at least one value."""
    ordered = sorted(values)
    low, high = median_interval(ordered, CONFIDENCE)
    known = np.isfinite(low) and np.isfinite(high)
    middle = float(np.median(ordered))
    return Spread(
        n=len(ordered),
        median=middle,
        low=float(low) if known else None,
        high=float(high) if known else None,
        least=ordered[0],
        most=ordered[-1],
        outliers=outliers(values),
    )


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Positions of values far out: more than 3.5 robust standard deviations from the median."""
    array = np.asarray(values, float)
    if len(array) < ENOUGH:
        return ()
    away = np.abs(array - np.median(array))
    deviation = 1.4826 * float(np.median(away))
    if deviation == 0:
        return ()
    return tuple(int(at) for at in np.flatnonzero(away > FAR_OUT * deviation))


@dataclass(frozen=True)
class Difference:
    """How the second of two groups of values relates to the first. Ratios are second over first."""

    first: float
    second: float
    ratio: float
    low: float
    high: float
    paired: bool
    n: tuple[int, int]
    verdict: Verdict

    @property
    def percent(self) -> float:
        """The difference in percent of the first."""
        return (self.ratio - 1) * 100


def compare(
    first: Sequence[float],
    second: Sequence[float],
    *,
    better: Literal["higher", "lower"],
    paired: bool = False,
    least: float = LEAST,
) -> Difference | None:
    """The ratio of medians, its bootstrap interval, and the verdict; None where a median is not positive.

    Args:
        first, second: values of one metric; where `paired`, the same repeat stands at the same place in both.
        better: whether a higher value is better.
        paired: resample the pairs, and take the median of their ratios: what disturbed both cancels out.
        least: the smallest difference that counts, as a fraction.
    """
    before, after = np.asarray(first, float), np.asarray(second, float)
    if not (len(before) and len(after)) or np.median(before) <= 0 or np.median(after) <= 0:
        return None
    assert not paired or len(before) == len(after), "pairs"
    generator = np.random.default_rng(1)
    if paired:
        pairs = after[before > 0] / before[before > 0]
        picks = generator.integers(0, len(pairs), (RESAMPLES, len(pairs)))
        ratio, resampled = float(np.median(pairs)), np.median(pairs[picks], axis=1)
    else:
        ratio = float(np.median(after) / np.median(before))
        below = _medians(before, generator)
        resampled = _medians(after, generator)[below > 0] / below[below > 0]
    low, high = _interval(resampled, CONFIDENCE)
    verdict = _verdict(ratio, _interval(resampled, SURE), better, least)
    if min(len(before), len(after)) < ENOUGH:
        verdict = "too few runs"
    return Difference(
        float(np.median(before)),
        float(np.median(after)),
        ratio,
        low,
        high,
        paired,
        (len(before), len(after)),
        verdict,
    )


def _medians(values: np.ndarray[Any, Any], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Medians of the values drawn again, in blocks; the last value is followed by the first."""
    n = len(values)
    length = max(round(math.sqrt(n)), 1)
    starts = generator.integers(0, n, (RESAMPLES, -(-n // length)))
    picks = (starts[:, :, None] + np.arange(length)) % n
    medians: np.ndarray[Any, Any] = np.median(values[picks.reshape(RESAMPLES, -1)[:, :n]], axis=1)
    return medians


def _interval(resampled: np.ndarray[Any, Any], confidence: float) -> tuple[float, float]:
    tail = (1 - confidence) / 2 * 100
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return float(low), float(high)


def _verdict(ratio: float, interval: tuple[float, float], better: str, least: float) -> Verdict:
    low, high = interval
    if low <= 1 <= high or abs(ratio - 1) < least:
        return "within noise"
    return "better" if (ratio > 1) == (better == "higher") else "worse"
