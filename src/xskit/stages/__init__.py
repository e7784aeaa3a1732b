"""Impairments, one file each. What is said here of all of them needs no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xskit.units import QueueLimit

DEFAULT_QUEUE_NS: Final = 50_000_000
DEFAULT_QUEUE_PACKETS: Final = 10

FULL_BYTES: Final = 1518
"""The longest packet of an MTU of 1500, with a VLAN tag."""

OVERHEAD_BYTES: Final[Mapping[str, int]] = {"L1": 24, "L2": 0, "L3": -14}
"""What a rate counts on top of a packet's bytes; L1: preamble, FCS, inter-frame gap."""


def default_queue(rate_bps: int | None, longest: int = FULL_BYTES, overhead: str = "L2") -> QueueLimit:
    """The default limit of a bottleneck's queue: 50 ms at its rate, but at least 10 packets of `longest` bytes.

    Without this minimum, a slow link would hold less than two packets, and drop one of two that come together.
    """
    least = DEFAULT_QUEUE_PACKETS * (longest + OVERHEAD_BYTES[overhead])
    if rate_bps is not None and rate_bps * DEFAULT_QUEUE_NS // 8_000_000_000 < least:
        return QueueLimit("bytes", least)
    return QueueLimit("ns", DEFAULT_QUEUE_NS)
