"""Watches running workers: conservation, the rate of a saturated bottleneck, ports that vanish or stop sending.

A thread that looks at a snapshot ten times a second. It never stops the loop: the loop copies its numbers when asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from xskit.engine.pipeline import Reading
from xskit.engine.thread import Snapshot, WorkerThread
from xskit.netconf.signals import no_signals
from xskit.xsk.path.books import CAUSES

PERIOD_SECONDS = 0.1
STUCK_NS = 1_000_000_000
"""Packets given to the kernel are completed in microseconds; a driver that takes longer than this has stopped."""


def balance(reading: Reading, outstanding: int) -> list[str]:
    """What is wrong with the books of a direction; nothing, if all is well.

    Conservation, and: what is counted as in flight is what lies in the stores, in TX and in completion.
    """
    counters = reading.counters
    drops = reading.dropped()
    wrong = []
    came = counters.received + counters.duplicated + counters.injected
    went = counters.sent + sum(drops[n][0] for n in range(CAUSES)) + counters.in_flight
    if came != went:
        wrong.append(f"{came} packets came, {went} are accounted for")
    found = reading.held() + outstanding
    if found != counters.in_flight:
        wrong.append(f"{counters.in_flight} packets are counted as in flight, {found} were found")
    came = counters.received_bytes + counters.duplicated_bytes + counters.injected_bytes
    went = counters.sent_bytes + sum(drops[n][1] for n in range(CAUSES)) + counters.in_flight_bytes
    if came != went:
        wrong.append(f"{came} bytes came, {went} are accounted for")
    return wrong


@dataclass
class SaturatedRate:
    """The rate of what was sent while the bottleneck never was idle: from pairs of snapshots.

    A window counts when packets were queued at both ends and no packet found the bottleneck idle in between, and when
    that had been so for `settle_ns` before: what is sent now left the bottleneck an owd ago. Nothing counts that
    happened before `from_ns`, when the rate took force.
    """

    settle_ns: int = 0
    from_ns: int = 0
    wire_bytes: int = 0
    time_ns: int = 0
    _since_ns: int = field(default=0, repr=False)
    _last: tuple[int, int, int, bool] | None = field(default=None, repr=False)

    def add(self, clock_ns: int, wire_bytes: int, idle_starts: int, queued: bool) -> None:
        """Take one snapshot in; one that is older than the last, or than `from_ns`, is left out."""
        last = self._last
        if clock_ns < self.from_ns or (last is not None and clock_ns <= last[0]):
            return
        self._last = (clock_ns, wire_bytes, idle_starts, queued)
        if last is None or not (last[3] and queued) or last[2] != idle_starts:
            self._since_ns = clock_ns
        elif last[0] >= self._since_ns + self.settle_ns:
            self.wire_bytes += wire_bytes - last[1]
            self.time_ns += clock_ns - last[0]

    @property
    def bps(self) -> float | None:
        """bit/s, None when the bottleneck was never saturated for a whole window."""
        return self.wire_bytes * 8e9 / self.time_ns if self.time_ns else None


class Monitor:
    """Calls `look` with fresh snapshots until stopped; counts imbalances and keeps the last sentences about them."""

    def __init__(
        self, workers: Sequence[WorkerThread], look: Callable[[list[Snapshot]], None], ports: Callable[[], str | None]
    ) -> None:
        self.imbalances = 0
        self.sentences: list[str] = []
        self.stuck_ns: dict[str, int] = {}
        """By direction: the longest that the kernel completed nothing though packets lay in TX and the port was up."""
        self.failure: str | None = None
        """Why the run cannot go on: a port was deleted, a worker died."""
        self._workers = list(workers)
        self._look = look
        self._ports = ports
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._failed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xskit-monitor", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        with no_signals():
            self._thread.start()

    def stop(self) -> None:
        """Stop watching; twice is fine."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def wait(self, seconds: float | None) -> bool:
        """Sleep until the time is over, or until the run cannot go on: then True."""
        return self._failed.wait(seconds)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            self.check([worker.snapshot() for worker in self._workers])
            failure = self._ports() or self._dead_worker()
            if failure is not None:
                self.failure = failure
                self._failed.set()
                return

    def check(self, snapshots: list[Snapshot]) -> None:
        """Balance the books of every direction, and pass the snapshots on; from any thread."""
        with self._lock:
            self._check(snapshots)

    def _check(self, snapshots: list[Snapshot]) -> None:
        for worker, snapshot in zip(self._workers, snapshots, strict=True):
            if not snapshot.whole:
                continue
            for direction, reading, outstanding, stuck_ns in zip(
                worker.directions, snapshot.readings, snapshot.outstanding, snapshot.stuck_ns, strict=True
            ):
                if stuck_ns > STUCK_NS:
                    self.stuck_ns[direction.name] = max(stuck_ns, self.stuck_ns.get(direction.name, 0))
                if wrong := balance(reading, outstanding):
                    self.imbalances += 1
                    self.sentences = [f"{direction.name}: {sentence}" for sentence in wrong]
        self._look(snapshots)

    def stuck(self) -> list[str]:
        """A sentence for each direction whose port stopped sending."""
        return [
            f"{name}: the driver completed nothing for {longest_ns / 1e9:.1f} s though packets lay in TX"
            for name, longest_ns in self.stuck_ns.items()
        ]

    def _dead_worker(self) -> str | None:
        for worker in self._workers:
            if not worker.running:
                return worker.failure or "a worker stopped unexpectedly"
        return None
