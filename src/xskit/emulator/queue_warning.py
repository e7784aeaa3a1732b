"""Warns of a queue that the user set so small that it cannot hold two full-size packets."""

from __future__ import annotations

from xskit import units
from xskit.emulator.settings import DirectionSettings

__all__ = ["narrow_queue"]


def narrow_queue(name: str, settings: DirectionSettings, longest: int) -> list[str]:
    """A sentence if the limit, a time or a size, holds less than two packets of `longest` bytes at the rate.

    A limit of 0 means a bottleneck without a queue, and a limit in packets is explicit: neither is a mistake.
    """
    limit = settings.queue.limit
    if settings.rate is None or limit is None or limit.unit == "packets" or limit.value == 0:
        return []
    held = limit.value if limit.unit == "bytes" else limit.value * settings.rate // 8_000_000_000
    if held >= 2 * longest:
        return []
    return [
        f"{name}: queue = {units.format_queue_limit(limit)} holds {held} bytes at {units.format_rate(settings.rate)}, "
        f"less than two packets of {longest} bytes: a packet that comes while another is being sent is dropped; "
        "to hold ten: queue = 10packets"
    ]
