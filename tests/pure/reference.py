"""What a pipeline of loss, bottleneck and delay does, written a second time: slowly, obviously, with exact fractions.

One event after the other in order of time: at any one moment first departures, then an update, then arrivals.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist

from xskit.engine.packets import DropCause
from xskit.stages import default_queue
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.delay import Delay, Jitter
from xskit.stages.delay_free import FreeDelay
from xskit.stages.loss import Loss
from xskit.stages.server import Overhead

_MASK = (1 << 64) - 1


def splitmix64(state: int, count: int) -> list[int]:
    """Vigna's splitmix64.c."""
    words = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        words.append(z ^ (z >> 31))
    return words


class Xoshiro:
    """Blackman and Vigna's xoshiro256plusplus.c."""

    def __init__(self, words: Sequence[int]) -> None:
        self.s = list(words)

    @classmethod
    def named(cls, seed: int, *names: str) -> Xoshiro:
        digest = hashlib.sha256(repr((seed, names)).encode()).digest()
        return cls(splitmix64(int.from_bytes(digest[:8], "little"), 4))

    def draw64(self) -> int:
        s = self.s
        result = (_rotated((s[0] + s[3]) & _MASK, 23) + s[0]) & _MASK
        t = (s[1] << 17) & _MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = _rotated(s[3], 45)
        return result

    def below(self, probability: float) -> bool:
        """True with a probability, by 53 bits."""
        return self.draw64() >> 11 < round(probability * 2**53)

    def uniform(self) -> float:
        return ((self.draw64() >> 12) + 0.5) / 2**52

    def normal(self) -> float:
        return NormalDist().inv_cdf(self.uniform())


def _rotated(word: int, by: int) -> int:
    return ((word << by) | (word >> (64 - by))) & _MASK


@dataclass(frozen=True)
class Settings:
    """One set of parameters of the whole chain."""

    loss: Loss = Loss()  # noqa: RUF009  frozen
    bottleneck: Bottleneck = field(default_factory=Bottleneck)
    delay: Delay = Delay()  # noqa: RUF009

    @property
    def stages(self) -> list[Loss | Bottleneck | Delay]:
        return [self.loss, self.bottleneck, self.delay]


@dataclass
class Queued:
    number: int
    length: int


class Reference:
    """A whole run: `departures` are (number, time_ns, length), `drops` (number, cause)."""

    def __init__(self, settings: Settings, seed: int, name: str, *, shift: int = 0) -> None:
        self.now = settings
        self.shift = shift
        kinds = [stage.kind.name for stage in settings.stages]
        self.loss_stream, _, self.delay_stream = (
            Xoshiro.named(seed, name, kind, str(place)) for place, kind in enumerate(kinds)
        )
        self.queue: list[Queued] = []
        self.head_done = Fraction(0)
        self.idle_since = Fraction(0)
        self.held: list[tuple[int, int, int]] = []
        self.latest_ns = 0
        self.drops: list[tuple[int, DropCause]] = []

    def run(
        self, arrivals: Sequence[tuple[int, int]], updates: Sequence[tuple[int, Settings]] = ()
    ) -> list[tuple[int, int, int]]:
        waiting = list(updates)
        for number, (time_ns, length) in enumerate(arrivals):
            while waiting and waiting[0][0] <= time_ns:
                self.update(*waiting.pop(0))
            self.advance(time_ns)
            self.arrive(number, length, time_ns)
        for effective_ns, settings in waiting:
            self.update(effective_ns, settings)
        self.advance(math.inf)
        return self.departures()

    # -- the bottleneck --------------------------------------------------------------------------------------------

    def wire_bytes(self, length: int, settings: Settings) -> int:
        match settings.bottleneck.overhead:
            case Overhead.L1:
                return max(length, 60) + 24
            case Overhead.L2:
                return length
            case Overhead.L3:
                return max(length - 14, 0)
        raise AssertionError

    def service(self, length: int) -> Fraction:
        rate = self.now.bottleneck.rate_bps
        return Fraction(0) if rate is None else Fraction(self.wire_bytes(length, self.now) * 8 * 10**9, rate)

    def arrive(self, number: int, length: int, time_ns: int) -> None:
        if self.loss_stream.below(self.now.loss.probability):
            self.drops.append((number, DropCause.LOSS))
        elif not self.queue:
            self.head_done = max(Fraction(time_ns), self.idle_since) + self.service(length)
            self.queue.append(Queued(number, length))
        elif self.full(length):
            self.drops.append((number, DropCause.QUEUE_FULL))
        else:
            self.queue.append(Queued(number, length))

    def full(self, length: int) -> bool:
        asked = self.now.bottleneck
        limit = asked.limit or default_queue(asked.rate_bps, overhead=asked.overhead.name)
        if limit.unit == "packets":
            return len(self.queue) + 1 > limit.value
        bytes_then = sum(self.wire_bytes(n, self.now) for n in [*(q.length for q in self.queue), length])
        if limit.unit == "bytes":
            return bytes_then > limit.value
        return asked.rate_bps is not None and bytes_then * 8 * 10**9 > limit.value * asked.rate_bps

    def advance(self, time_ns: float) -> None:
        while self.queue and math.floor(self.head_done) <= time_ns:
            head = self.queue.pop(0)
            self.delay(head, math.floor(self.head_done))
            if self.queue:
                self.head_done += self.service(self.queue[0].length)
            else:
                self.idle_since = self.head_done

    def update(self, effective_ns: int, settings: Settings) -> None:
        self.advance(effective_ns)
        old, new = self.now.bottleneck.rate_bps, settings.bottleneck.rate_bps
        if old != new:
            self.idle_since = Fraction(math.floor(self.idle_since))
            left_ns = math.floor(self.head_done) - effective_ns
            if self.queue and left_ns > 0:
                assert old is not None, "without a rate nothing waits"
                self.head_done = Fraction(effective_ns + (0 if new is None else left_ns * old // new))
        self.now = settings

    # -- the delay -------------------------------------------------------------------------------------------------

    def delay(self, packet: Queued, time_ns: int) -> None:
        delay = self.now.delay
        due_ns = time_ns + delay.owd_ns
        if delay.jitter_ns and delay.distribution == Jitter.UNIFORM:
            due_ns += int(delay.jitter_ns * (2.0 * self.delay_stream.uniform() - 1.0))
        elif delay.jitter_ns and delay.distribution == Jitter.NORMAL:
            due_ns += int(delay.jitter_ns * self.delay_stream.normal())
        due_ns = max(due_ns, time_ns)
        if not isinstance(delay, FreeDelay):
            due_ns = self.latest_ns = max(self.latest_ns, due_ns)
        self.held.append((packet.number, due_ns, packet.length))

    def departures(self) -> list[tuple[int, int, int]]:
        """In order of time; without order kept, in order of ticks, and times that never fall."""
        if not isinstance(self.now.delay, FreeDelay):
            return self.held
        left, latest_ns = [], 0
        for number, due_ns, length in sorted(self.held, key=lambda held: held[1] >> self.shift):
            latest_ns = max(latest_ns, due_ns)
            left.append((number, latest_ns, length))
        return left
