"""What the counts of a run prove: whether packets left late, whether losses can be chance.

A run is late when the 99th percentile of lateness is above a limit. Every packet is compared with the limit when it
leaves, so what remains to judge is how many were above. For N independent packets that number is binomial, and "the
lower 99 % confidence bound of the 99th percentile, by order statistics, is above the limit" means the same as "if 1 %
of all packets were late, at least this many of N would be with a probability below 1 %" (David and Nagaraja, Order
Statistics, 3rd ed., section 7.1). No assumption about the distribution is needed.
"""

from __future__ import annotations

import math
from typing import Literal

__all__ = ["Punctuality", "improbable_loss", "late_limit_ns", "punctuality"]

LATE_FRACTION = 0.05
"""Of the owd: a packet that leaves later than this is late ..."""
LATE_LEAST_NS = 1_000_000
"""... but only if that is more than this."""
LATE_SHARE = 0.01
"""A larger share of late packets makes a run invalid ..."""
LATE_ERROR = 0.01
"""... if chance does that to a run that is just good enough with less than this probability."""

ENOUGH = math.ceil(math.log(LATE_ERROR) / math.log1p(-LATE_SHARE))
"""Packets that it takes to call a run on time when none was late (459)."""

LOSS_ERROR = 1e-9
"""Losses that chance produces with a lower probability than this are not chance."""

Punctuality = Literal["on time", "late", "too few packets"]


LATE_LIMIT = f"{LATE_FRACTION:.0%} of the owd (at least {LATE_LEAST_NS // 1_000_000}ms)"
"""The limit of any link in words."""


def late_limit_ns(owd_ns: int) -> int:
    """How late a packet may leave with this owd."""
    return max(round(LATE_FRACTION * owd_ns), LATE_LEAST_NS)


def punctuality(late: int, packets: int) -> Punctuality:
    """Whether the 99th percentile of lateness is above the limit, if `late` of `packets` were.

    "late" has an error rate below 1 % for independent packets. "too few packets": more than 1 % were late, but that may
    be chance; or no more than 1 % were late, but fewer than ENOUGH packets left.
    """
    if late > LATE_SHARE * packets:
        from scipy.special import betainc  # not above: the import takes longer than the rest of a report

        chance = float(betainc(late, packets - late + 1, LATE_SHARE))  # of at least so many
        return "late" if chance < LATE_ERROR else "too few packets"
    return "on time" if packets >= ENOUGH else "too few packets"


def improbable_loss(lost: int, offered: int, asked: float) -> bool:
    """Whether so many losses are practically impossible if each packet is lost with the probability `asked`.

    By the bound of Chernoff and Hoeffding: the probability of a share at least as far off is at most
    exp(-offered * D), with D the relative entropy of the share and `asked` (Hoeffding, Journal of the American
    Statistical Association 58, 1963, theorem 1). It needs no special function.
    """
    if not offered:
        return False
    share = lost / offered
    return offered * _relative_entropy(share, asked) > -math.log(LOSS_ERROR)


def _relative_entropy(share: float, asked: float) -> float:
    total = 0.0
    for seen, expected in ((share, asked), (1 - share, 1 - asked)):
        if seen > 0:
            if expected <= 0:
                return math.inf
            total += seen * math.log(seen / expected)
    return total
