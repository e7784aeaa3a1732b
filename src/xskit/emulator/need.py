"""How many frames the traffic of a run needs: those that come in the time for which the link holds a packet.

Packets that came are counted, dropped or not: once memory has run out, the number of frames in use says nothing.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from xskit.emulator.settings import DirectionSettings
from xskit.emulator.sizing import HEADROOM_BYTES, DirectionPlan, MemoryPlan, memory_for, packets_held, to_spare
from xskit.engine.packets import DropCause
from xskit.engine.pipeline import Reading

__all__ = ["Need", "hold_ns"]

_SAMPLES = 64
"""Readings kept over the time for which a packet is held, however long that is."""

_TAKE_NO_MEMORY = (DropCause.LOSS, DropCause.QUEUE_FULL, DropCause.SUPER_PACKET, DropCause.TOO_MANY_FRAGMENTS)
"""Packets dropped for these causes are not held."""


def hold_ns(settings: DirectionSettings, longest: int) -> int:
    """How long a direction holds a packet at most, in ns: owd, jitter as the plan counts it, and a full queue."""
    on_the_way = settings.owd + 3 * settings.jitter
    if settings.rate is None:
        return on_the_way
    limit = settings.queue_limit(longest)
    if limit.unit == "ns":
        return on_the_way + limit.value
    size = limit.value * longest if limit.unit == "packets" else limit.value
    return on_the_way + size * 8_000_000_000 // settings.rate


@dataclass
class Need:
    """The most frames that a direction would have held at once, had memory not run out.

    Attributes:
        plan: of the whole memory.
        number: of the direction in the plan.
        longest: bytes of the longest packet.
        frames: the result so far.
        ran_out: packets were dropped because memory ran out.
    """

    plan: MemoryPlan
    number: int
    longest: int
    frames: int = 0
    ran_out: bool = False
    _seen: deque[tuple[int, int, int]] = field(default_factory=lambda: deque([(0, 0, 0)]), repr=False)

    def observe(self, now_ns: int, reading: Reading, settings: DirectionSettings) -> None:
        """Take in the counters of one moment."""
        drops = reading.dropped()
        self.ran_out = drops[DropCause.MEMORY_FULL][0] > 0
        packets = reading.counters.received - sum(drops[cause][0] for cause in _TAKE_NO_MEMORY)
        size = reading.counters.received_bytes - sum(drops[cause][1] for cause in _TAKE_NO_MEMORY)
        self.add(now_ns, packets, size, settings)

    def add(self, now_ns: int, packets: int, size: int, settings: DirectionSettings) -> None:
        """Take in the packets and bytes since the start, without those dropped before they are held."""
        held_ns = hold_ns(settings, self.longest)
        while len(self._seen) > 1 and self._seen[1][0] <= now_ns - held_ns:
            self._seen.popleft()
        _, packets_before, size_before = self._seen[0]
        self.frames = max(self.frames, self._frames(packets - packets_before, size - size_before, settings))
        if now_ns - self._seen[-1][0] >= held_ns // _SAMPLES:
            self._seen.append((now_ns, packets, size))

    def memory(self) -> int:
        """Bytes of packet memory, in whole MiB, in which this direction has that many frames and some to spare."""
        return memory_for(self.plan, self._share, to_spare(self.frames))

    @property
    def _share(self) -> DirectionPlan:
        return self.plan.directions[self.number]

    def _frames(self, packets: int, size: int, settings: DirectionSettings) -> int:
        if packets <= 0:
            return 0
        mean = max(size / packets, 1.0)
        bound = packets_held(settings, mean, self.longest)
        held = packets if bound is None else min(packets, bound)
        each = self._share.frames_per_packet
        usable = self.plan.frame_size - HEADROOM_BYTES
        return min(held * each, held + math.ceil(held * mean / usable)) if each > 1 else held
