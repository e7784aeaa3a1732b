"""How fast packets have come lately: without a rate, that alone tells whether a longer owd fits in the memory.

It is a warning and no refusal: what comes may change with the owd, as TCP does.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from xskit import units
from xskit.emulator.settings import DirectionSettings
from xskit.emulator.sizing import HEADROOM_BYTES, MemoryPlan, memory_for, to_spare

__all__ = ["Arrivals", "beyond_memory"]

WINDOW_NS = 1_000_000_000


@dataclass
class Arrivals:
    """Packets and bytes of the last second, from the counters that the monitor reads ten times in it."""

    _seen: deque[tuple[int, int, int]] = field(default_factory=deque)

    def add(self, now_ns: int, packets: int, size: int) -> None:
        """Take in what has come since the start."""
        self._seen.append((now_ns, packets, size))
        while len(self._seen) > 2 and self._seen[1][0] <= now_ns - WINDOW_NS:
            self._seen.popleft()

    def rate(self) -> tuple[float, float]:
        """(packets a second, bytes of one on average); (0, 0) when nothing came."""
        if not self._seen:
            return 0.0, 0.0
        (began_ns, first, first_bytes), (ended_ns, last, last_bytes) = self._seen[0], self._seen[-1]  # the monitor adds
        if last <= first:
            return 0.0, 0.0
        return (last - first) * 1e9 / max(ended_ns - began_ns, 1), (last_bytes - first_bytes) / (last - first)


def beyond_memory(
    name: str, settings: DirectionSettings, plan: MemoryPlan, number: int, arrivals: Arrivals
) -> str | None:
    """Why packets will be dropped under settings without a rate if they go on to come as in the last second; or None.

    Args:
        name: of the direction.
        settings: that are to take force.
        plan: of the whole memory.
        number: of the direction in the plan.
        arrivals: what came.
    """
    packets_per_second, mean_bytes = arrivals.rate()
    if settings.rate is not None or not packets_per_second:
        return None
    share = plan.directions[number]
    each = math.ceil(mean_bytes / (plan.frame_size - HEADROOM_BYTES))
    frames = math.ceil(packets_per_second * (settings.owd + 3 * settings.jitter) / 1e9) * each
    if frames <= share.packets:
        return None
    return (
        f"{name}: at the {packets_per_second:.0f} packets/s that came in the last second, {frames} frames will be in "
        f"flight, but the packet memory was planned for {share.packets}: what does not fit is dropped (memory_full); "
        f"{units.format_size(memory_for(plan, share, to_spare(frames)))} of memory would hold it"
    )
