"""Medians, their intervals, outliers, and what a difference is worth.

Nothing here assumes a distribution. The interval of a median comes from the order of the values; that of a ratio is
bootstrapped, with a seed of its own, so that the same values always give the same answer. Runs that follow one another
are alike, because what disturbs a machine lasts: so unpaired values are drawn again in blocks of neighbours (the moving
block bootstrap: Kuensch, Annals of Statistics 17, 1989), as long as the cube root of their number (Hall, Horowitz and
Jing, Biometrika 82, 1995). Of few values the bootstrap makes intervals that are too narrow: they are widened (the
expanded percentile interval: Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69,
2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xskit.emulator.intervals import median_interval

__all__ = ["CONFIDENCE", "PAIRS", "Conclusion", "Difference", "Spread", "compare", "spread"]

CONFIDENCE = 0.95
SURE = 0.99
"""A conclusion needs the interval at this confidence to exclude 1: of twenty comparisons of a thing with itself at most
one may be called a difference, and with 95 % that would happen as often as not."""

LEAST = 0.01
"""Differences below this fraction are within noise whatever their interval: between two runs memory lies elsewhere."""

RESAMPLES = 4000
FAR_OUT = 3.5
"""Robust standard deviations from the median (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993)."""

ENOUGH = 5
"""Runs that a conclusion needs on either side: of two groups of four, one lies above the other by chance in 3 cases of
100, of two groups of five in less than one."""

PAIRS = 8
"""Pairs that a conclusion from pairs needs: all of seven point the same way by chance in 1.6 cases of 100, of eight in
0.8. With fewer they count as two groups."""

Conclusion = Literal["better", "worse", "within noise", "too few runs"]


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
    """Positions of values far out: more than 3.5 robust standard deviations from the median.

    Where more than half of the values are equal, their median deviation is 0; the mean one takes its place (Iglewicz
    and Hoaglin again).
    """
    array = np.asarray(values, float)
    if len(array) < ENOUGH:
        return ()
    away = np.abs(array - np.median(array))
    deviation = 1.4826 * float(np.median(away)) or 1.2533 * float(np.mean(away))
    if deviation == 0:
        return ()
    return tuple(int(at) for at in np.flatnonzero(away > FAR_OUT * deviation))


@dataclass(frozen=True)
class Difference:
    """How the second of two groups of values relates to the first.

    Ratios are second over first; None where the first median is 0, as that of losses is.
    """

    first: float
    second: float
    ratio: float | None
    low: float | None
    high: float | None
    paired: bool
    n: tuple[int, int]
    conclusion: Conclusion

    @property
    def percent(self) -> float | None:
        """The difference in percent of the first."""
        return None if self.ratio is None else (self.ratio - 1) * 100


def compare(
    first: Sequence[float],
    second: Sequence[float],
    *,
    better: Literal["higher", "lower"],
    paired: bool = False,
    least: float = LEAST,
) -> Difference | None:
    """The ratio of medians, its bootstrap interval, and the conclusion; None without values, or with negative medians.

    Args:
        first, second: values of one metric; where `paired`, the same repeat stands at the same place in both.
        better: whether a higher value is better.
        paired: resample the pairs, and take the median of their ratios: what disturbed both cancels out. Pairs that are
            too few for a conclusion, or of which one has a 0 in it, count as two groups.
        least: the smallest difference that counts, as a fraction.
    """
    before, after = np.asarray(first, float), np.asarray(second, float)
    if not (len(before) and len(after)) or min(np.median(before), np.median(after)) < 0:
        return None
    assert not paired or len(before) == len(after), "pairs"
    paired = paired and len(before) >= PAIRS and bool(np.all(before > 0))
    middles = float(np.median(before)), float(np.median(after))
    n = min(len(before), len(after))
    generator = np.random.default_rng(1)
    ratio = low = high = None
    if paired:
        pairs = after / before
        resampled = np.median(pairs[generator.integers(0, n, (RESAMPLES, n))], axis=1)
        ratio = float(np.median(pairs))
    else:
        below, above = _medians(before, generator), _medians(after, generator)
        resampled = above - below
        if middles[0] > 0:
            ratio, resampled = middles[1] / middles[0], above[below > 0] / below[below > 0]
    if ratio is not None:
        low, high = _interval(resampled, CONFIDENCE, n)
    conclusion: Conclusion = "too few runs"
    if n >= ENOUGH:
        ends = _interval(resampled, SURE, n)
        if ratio is None:
            conclusion = _conclusion(middles[1], 0.0, ends, better)
        elif abs(ratio - 1) < least:
            conclusion = "within noise"
        else:
            conclusion = _conclusion(ratio, 1.0, ends, better)
    return Difference(*middles, ratio, low, high, paired, (len(before), len(after)), conclusion)


def _medians(values: np.ndarray[Any, Any], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Medians of the values drawn again, in blocks; the last value is followed by the first."""
    n = len(values)
    length = round(n ** (1 / 3))
    starts = generator.integers(0, n, (RESAMPLES, -(-n // length)))
    picks = (starts[:, :, None] + np.arange(length)) % n
    medians: np.ndarray[Any, Any] = np.median(values[picks.reshape(RESAMPLES, -1)[:, :n]], axis=1)
    return medians


def _interval(resampled: np.ndarray[Any, Any], confidence: float, n: int) -> tuple[float, float]:
    """The part of the resampled values that lies in the middle, a little more of it the fewer values `n` there were."""
    from scipy.special import ndtr, stdtrit

    tail = (1 - confidence) / 2
    if n > 1:
        tail = float(ndtr(stdtrit(n - 1, tail) * math.sqrt(n / (n - 1))))
    low, high = np.percentile(resampled, [tail * 100, (1 - tail) * 100])
    return float(low), float(high)


def _conclusion(value: float, same: float, interval: tuple[float, float], better: str) -> Conclusion:
    """Where the interval contains what two of the same would have, nobody knows."""
    low, high = interval
    if low <= same <= high:
        return "within noise"
    return "better" if (value > same) == (better == "higher") else "worse"
