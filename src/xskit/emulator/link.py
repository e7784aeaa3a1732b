"""A link of a running emulator: two directions, each with settings that can change while packets are inside."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xskit import units
from xskit.arguments import whole
from xskit.emulator.arrivals import Arrivals, beyond_memory
from xskit.emulator.mistakes import CapacityError
from xskit.emulator.monitor import SaturatedRate
from xskit.emulator.need import Need
from xskit.emulator.patience import delay_remarks
from xskit.emulator.ports import LinkSpec
from xskit.emulator.queue_warning import narrow_queue
from xskit.emulator.report import Report, direction_report
from xskit.emulator.report_data import DirectionReport, LinkReport
from xskit.emulator.settings import DirectionSettings
from xskit.emulator.significance import late_limit_ns
from xskit.emulator.sizing import MemoryPlan, check_capacity
from xskit.engine.clock import monotonic_ns
from xskit.engine.live import LiveDirection
from xskit.engine.pipeline import Reading
from xskit.engine.records import Direction
from xskit.engine.thread import WorkerThread
from xskit.errors import UsageError
from xskit.stages.server import Overhead, server_parameters

LONGEST_WAIT_NS = 3_600_000_000_000
"""How far ahead the time of an update may lie: the next one waits for it."""


_LATEST_NS = (1 << 63) - 1
_LATER = "at_ns=time.monotonic_ns() + 10_000_000_000"


def moment(at_ns: int | None) -> int:
    """When an update is to take force, in ns; now for None.

    Raises:
        UsageError: not a whole number of nanoseconds, or more than an hour ahead.
    """
    now_ns = monotonic_ns()
    if at_ns is None:
        return now_ns
    whole("at_ns", at_ns, 0, _LATEST_NS, remedy=_LATER)
    hours = (at_ns - now_ns) / 3.6e12
    if at_ns - now_ns > LONGEST_WAIT_NS:
        raise UsageError(
            f"at_ns={at_ns} is {hours:.3g} hours ahead, and an update can wait for one hour at most",
            remedy=_LATER,
        )
    return at_ns


class SettingsStep:
    """The settings of one update, or of the start, and the rate measured under them."""

    def __init__(self, settings: DirectionSettings, at_ns: int) -> None:
        self.settings = settings
        self.at_ns = at_ns
        self.rate = SaturatedRate(settings.owd + 3 * settings.jitter, from_ns=at_ns)


class LinkDirection:
    """One direction: from one port to the other.

    Attributes:
        name: "forward" or "reverse".
        settings: the settings in force, or those of an update that waits for its time.
        need: how much memory the traffic needs.
    """

    def __init__(
        self,
        name: str,
        settings: DirectionSettings,
        live: LiveDirection,
        plan: MemoryPlan,
        number: int,
        *,
        max_length: int,
        horizon_ns: int,
        warn: Callable[[Sequence[str]], None],
        require_ours: Callable[[], None],
    ) -> None:
        self.name = name
        self.settings = settings
        self.live = live
        self._applying = threading.Lock()
        self._updates = 0
        self._asked = {0: SettingsStep(settings, 0)}
        self._plan = plan
        self._number = number
        self._max_length = max_length
        self._horizon_ns = horizon_ns
        self._warn = warn
        self._require_ours = require_ours
        self._arrivals = Arrivals()
        self._arrivals.add(monotonic_ns(), 0, 0)
        self.need = Need(plan, number, max_length)
        self._worker: WorkerThread | None = None
        self._updated: Callable[[], None] = lambda: None
        self._bottleneck = [kind.name for kind in live.pipeline.kinds].index("bottleneck")

    def assign(self, worker: WorkerThread) -> None:
        """The worker that runs this direction."""
        self._worker = worker

    def join(self, updated: Callable[[], None]) -> None:
        """Become part of a link: `updated` is called after every update."""
        self._updated = updated

    def update(self, *, at_ns: int | None = None, **changes: Any) -> None:
        """Change settings of the running link; only what is named changes.

        The new settings take force as a whole at one logical time: a packet that arrives before it meets the old
        ones, and nothing in flight is lost or reordered.

        Without a rate nobody knows how much will be in flight: if that is more than was planned for, should packets go
        on to come as in the last second, a warning says so, in the log and in the report.

        One update may wait for its time; the next one of this direction waits, in this call, until that has come.

        Args:
            at_ns: when, on CLOCK_MONOTONIC (time.monotonic_ns()), at most one hour ahead; now when left out.
            changes: as in DirectionSettings: owd="30ms", loss="1%", rate=None, ...

        Raises:
            SettingsError: an unknown key or an impossible value.
            CapacityError: the memory was not planned for that much in flight; the error carries the number.
            UsageError: the link is not running, runs in the process from which this one was forked, or `at_ns` is more
                than an hour ahead.
        """
        when_ns = moment(at_ns)
        self.apply(self.checked(changes), when_ns)
        self._updated()

    def checked(self, changes: Mapping[str, Any]) -> DirectionSettings:
        """The settings after these changes; raises what `update` does, and changes nothing."""
        self._require_ours()
        settings = self.settings.changed(changes)
        check_capacity(self.live.name, self.settings, settings, self._plan, self._number, self._max_length)
        if settings.order == "free" and settings.longest_owd_ns > self._horizon_ns:
            raise CapacityError(
                f"{self.live.name}: a packet might be held for {units.format_duration(settings.longest_owd_ns)}, the "
                f"timing wheel was planned for {units.format_duration(self._horizon_ns)}",
                remedy="start the link with the longest owd and jitter that it will have",
            )
        if self._worker is None or not self._worker.running:
            raise UsageError(f"{self.live.name}: the link is not running")
        return settings

    def apply(self, settings: DirectionSettings, at_ns: int) -> None:
        """Let settings that were checked take force at a logical time."""
        assert self._worker is not None
        if warning := beyond_memory(self.live.name, settings, self._plan, self._number, self._arrivals):
            self._warn([warning])
        self._warn(narrow_queue(self.live.name, settings, self._max_length))
        with self._applying:
            number = self._updates + 1
            self._asked[number] = SettingsStep(
                settings, at_ns
            )  # before it can take force, so that a report has it then
            try:
                self._worker.update(
                    self.live,
                    settings.stages(self._max_length),
                    at_ns,
                    owd_base_ns=settings.owd_base_ns,
                    late_limit_ns=late_limit_ns(settings.owd),
                )
            except BaseException:
                del self._asked[number]
                raise
            self._updates = number
            self.settings = settings

    def _in_force(self, updates: int) -> SettingsStep:
        """The settings after this many updates took effect; earlier ones are forgotten."""
        numbers = list(self._asked)
        for number in numbers:
            if number < updates - 1:
                self._asked.pop(number, None)
        return self._asked[max(updates, min(numbers))]

    def observe(self, reading: Reading) -> None:
        """Take one snapshot into the measured rates of arrivals and of the bottleneck."""
        counters = reading.counters
        now_ns = monotonic_ns()
        self._arrivals.add(now_ns, counters.received, counters.received_bytes)
        asked = self._in_force(counters.updates)
        self.need.observe(now_ns, reading, asked.settings)
        if asked.settings.rate is None:
            return
        server = server_parameters(asked.settings.rate, Overhead[asked.settings.overhead])
        state = reading.stage_state(self._bottleneck)
        wire = counters.sent_bytes + counters.sent * int(server["overhead"])
        asked.rate.add(counters.clock_ns, wire, state.idle_starts, state.packets > 0)

    def report(self, reading: Reading, achieved: Direction, started_ns: int) -> DirectionReport:
        """Asked against achieved, from a snapshot; `started_ns` is when the run began, on CLOCK_MONOTONIC."""
        asked = self._in_force(achieved.updates)
        waiting = self._asked.get(achieved.updates + 1)
        return direction_report(
            self.name,
            asked.settings.asked(self._max_length),
            reading,
            achieved,
            self.live.pipeline.kinds,
            asked.rate.bps,
            started_ns=started_ns,
            waiting=None if waiting is None else (waiting.at_ns, waiting.settings.asked(self._max_length)),
            faults=self.live.faults(),
        )


class Link:
    """Two ports joined, by `forward` from the first to the second and by `reverse` back."""

    def __init__(
        self,
        spec: LinkSpec,
        forward: LinkDirection,
        reverse: LinkDirection,
        report: Callable[[], Report],
        warn: Callable[[Sequence[str], int], None],
    ) -> None:
        self.name = spec.name
        self.forward = forward
        self.reverse = reverse
        self._spec = spec
        self._report = report
        self._warn = warn
        for direction in self.directions:
            direction.join(self._look_at_delay)
        warn(spec.remarks, logging.INFO)
        self._look_at_delay()

    @property
    def directions(self) -> tuple[LinkDirection, LinkDirection]:
        """Forward and reverse."""
        return (self.forward, self.reverse)

    def update(self, *, at_ns: int | None = None, **changes: Any) -> None:
        """Change settings of both directions at the same logical time, as LinkDirection.update."""
        when_ns = moment(at_ns)
        checked = [direction.checked(changes) for direction in self.directions]
        for direction, settings in zip(self.directions, checked, strict=True):
            direction.apply(settings, when_ns)
        self._look_at_delay()

    def _look_at_delay(self) -> None:
        """Note for the report what a link this slow does to its hosts."""
        round_trip_ns = self.forward.settings.owd + self.reverse.settings.owd
        self._warn(delay_remarks(self._spec, round_trip_ns), logging.INFO)  # the link runs as it was asked to

    def report(self) -> LinkReport:
        """Asked against achieved, now."""
        return next(link for link in self._report().links if link.name == self.name)
