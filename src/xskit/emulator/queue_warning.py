"""Warns of a queue that a user has set so small that a full-size packet behind another one does not fit."""

from __future__ import annotations

from xskit import units
from xskit.emulator.settings import DirectionSettings

__all__ = ["narrow_queue"]


def narrow_queue(name: str, settings: DirectionSettings, longest: int) -> list[str]:
    """A sentence where the limit, a time or a size, holds less than two packets of `longest` bytes at the rate.

    A limit of 0 is a bottleneck without a queue, and one in packets is what it says: neither is a mistake.
    """
    limit = settings.queue.limit
    if settings.rate is None or limit is None or limit.unit == "packets" or limit.value == 0:
        return []
    held = limit.value if limit.unit == "bytes" else limit.value * settings.rate // 8_000_000_000
    if held >= 2 * longest:
        return []
    return [
        f"{name}: queue = {units.format_queue_limit(limit)} holds {held} bytes at {units.format_rate(settings.rate)}, "
        f"less than two packets of {longest}: one that comes while another is being sent is dropped; "
        "queue = 10packets would hold ten"
    ]
