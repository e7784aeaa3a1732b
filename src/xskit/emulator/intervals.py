"""Intervals for what a run achieved: asked against achieved is compared without tolerances pulled from the air.

Each function returns (low, high): whatever the true value is, the interval misses it with a probability of at most
1 - confidence. SciPy is imported by the first call; its special functions are all that is needed.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

__all__ = ["binomial_interval", "mean_rate_interval", "median_interval", "quantile_interval"]


def binomial_interval(k: int, n: int, confidence: float) -> tuple[float, float]:
    """The Clopper-Pearson interval for the probability of an event seen `k` times in `n` independent trials.

    With no trials at all it is (0, 1). Raises ValueError unless 0 <= k <= n and 0 < confidence < 1.
    Source: Clopper and Pearson, Biometrika 26 (1934), by way of the quantiles of the beta distribution.
    """
    from scipy.special import betaincinv

    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} trials")
    tail = _tail(confidence)
    low = float(betaincinv(k, n - k + 1, tail)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return low, high


def quantile_interval(sorted_samples: Sequence[float], quantile: float, confidence: float) -> tuple[float, float]:
    """An interval for a quantile of whatever distribution the independent samples come from, by order statistics.

    `sorted_samples` ascend; the result has their unit. Where the samples are too few for the confidence, that end is
    infinite. How many samples lie below the quantile is binomial, so the ranks that enclose it need no
    assumption about the distribution (David and Nagaraja, Order Statistics, 3rd ed., section 7.1).
    Raises ValueError unless 0 < quantile < 1 and 0 < confidence < 1.
    """
    from scipy.special import bdtr, bdtrc

    if not 0 < quantile < 1:
        raise ValueError(f"{quantile} is no quantile")
    tail = _tail(confidence)
    n = len(sorted_samples)
    if n == 0:
        return -math.inf, math.inf
    # bdtr(k) = P(at most k below the quantile), bdtrc(k) = P(more than k): each rank is found by bisection.
    below = bisect_right(range(n), tail, key=lambda k: float(bdtr(k, n, quantile)))
    above = bisect_left(range(n), -tail, key=lambda k: -float(bdtrc(k, n, quantile)))
    low = sorted_samples[below - 1] if below > 0 else -math.inf
    high = sorted_samples[above] if above < n else math.inf
    return low, high


def median_interval(sorted_samples: Sequence[float], confidence: float) -> tuple[float, float]:
    """quantile_interval of the median."""
    return quantile_interval(sorted_samples, 0.5, confidence)


def mean_rate_interval(
    packets: int, packet_bits: int, window_ns: int, *, window_error_ns: int = 0
) -> tuple[float, float]:
    """What constant rate, in bit/s, lets `packets` of `packet_bits` end within a window of `window_ns`.

    A saturated bottleneck is no random process: the only doubt is the packet under way at either end of the window,
    one packet in all, and the window's own error (both ends together). So this interval holds with certainty.
    `packet_bits` counts the overhead that the rate counts. Raises ValueError unless the error is below the window.
    """
    if packets < 0 or not 0 <= window_error_ns < window_ns:
        raise ValueError(f"{packets} packets in {window_ns} ns, give or take {window_error_ns} ns")
    low = max(packets - 1, 0) * packet_bits * 10**9 / (window_ns + window_error_ns)
    high = (packets + 1) * packet_bits * 10**9 / (window_ns - window_error_ns)
    return low, high


def _tail(confidence: float) -> float:
    """The probability left on either side."""
    if not 0 < confidence < 1:
        raise ValueError(f"{confidence} is no confidence: write it between 0 and 1")
    return (1 - confidence) / 2
