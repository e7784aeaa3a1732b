"""One run of one case in a guest whose clock counts instructions: everything takes turns on the one CPU.

source sends a burst -> workers, far ends, workers ... until nothing moves -> books -> the next burst

Nothing runs at the same time as something else, and no scheduler decides who comes when: so the same turns take the
same instructions, but for the timer's interrupts, and the mean of the middle half of all bursts leaves those out.

    worker, a packet    the worker's loop, with the kernel's work in its system calls; not over NICs, whose interrupts
                        come now in the worker and now beside it
    guest, a packet     everything from the source's first call on: also the source, the kernel's receiving on its
                        behalf, and the far end. Turns without work are taken off again
    round trip          instructions from before the packet is sent until it is seen again: everything on its way; not
                        over NICs, whose own time is in there
    copied, a packet    bytes; counted by kprobes in bursts of their own, since a kprobe takes instructions
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from xskit.bench import far as far_ends
from xskit.bench.bed import Place
from xskit.bench.copies import RECEIVING, SENDING, CopyCount
from xskit.bench.ends import ENDLESS, Counts, End, total
from xskit.bench.metrics import COUNTED_OF_MODE, Sample
from xskit.bench.results import Run
from xskit.bench.runner import Observer, Running, book, conclude, prepared, sample
from xskit.bench.settings import Case, Conditions
from xskit.bench.thread import BenchThread

__all__ = ["count_once", "middle_half"]

BURST, WIRED_BURST = 512, 128
"""Packets; never more than half of what RX holds, nor, over NICs, of what their own rings hold."""
LEAST_BURSTS = 4
COPY_BURSTS = 2
IDLE_TURNS = 64
"""Turns without work after which what has not come is taken for lost: an emulated NIC may hold an interrupt back."""
CALIBRATIONS = 15


@dataclass(frozen=True)
class _Burst:
    """What one took."""

    packets: int
    worker: float | None
    guest: float


def count_once(
    case: Case, place: Place, conditions: Conditions, repeat: int = 0, observe: Observer | None = None
) -> tuple[Run, Running]:
    """Do it, as `run_once` does where there is time. Ctrl-C only ends the run.

    Raises:
        XskitError: a socket or a program cannot be had, or a worker failed.
    """
    with prepared(case, place, conditions, repeat) as (running, workers, far):
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        turns = _Turns(case, running.ends, far, workers, wired=place.wired)
        bursts = _count(turns, running, conditions, observe)
        copied = _copied_bytes(turns)
        turns.finish()
        counts = conclude(running, far, observe)
        metrics = _metrics(bursts) | copied
        run = book(running, turns.look(), counts, started, metrics, COUNTED_OF_MODE[case.mode])
        if case.mode == "latency":
            _tell_round_trips(run, wired=place.wired)
        if place.wired:
            run.metrics.pop("instructions_per_packet", None)
        return run, running


def _tell_round_trips(run: Run, *, wired: bool) -> None:
    if wired:
        run.notes.append(f"{run.counts['round_trips']} packets went there and back; how long is for QEMU's NICs to say")
        return
    for quantile in ("p50", "p99"):
        if (name := f"round_trip_{quantile}_ns") in run.details:
            run.metrics[f"round_trip_{quantile}_instructions"] = run.details[name]


def _count(turns: _Turns, running: Running, conditions: Conditions, observe: Observer | None) -> list[_Burst]:
    """Bursts until the guest's time is over, or as many packets came as were asked for."""
    bursts: list[_Burst] = []
    limit = running.case.count or ENDLESS
    end_ns = time.monotonic_ns() + round(conditions.duration * 1e9)
    running.samples.append(turns.look())
    try:
        while limit > 0 and (len(bursts) < LEAST_BURSTS or time.monotonic_ns() < end_ns):
            bursts.append(turns.burst(min(limit, turns.most)))
            limit -= min(limit, turns.most)
            running.samples.append(turns.look())
            if observe:
                observe(running)
    except KeyboardInterrupt:
        running.interrupted = True
    return bursts


class _Turns:
    """Workers and far ends, moved by hand."""

    def __init__(
        self,
        case: Case,
        ends: Sequence[End],
        far: Sequence[far_ends.Far],
        workers: Sequence[BenchThread],
        *,
        wired: bool,
    ) -> None:
        self._ends, self._far, self._workers = ends, far, workers
        self._sources = [source for end in ends for source in end.sources]
        self.most = min(WIRED_BURST if wired else BURST, case.ring // 2)
        self.packet_bytes = case.packet.length
        self._sleeps = case.poll
        self._clock = time.thread_time_ns if case.poll else time.monotonic_ns
        self._due = 0
        self._cpu_ns = 0
        self._empty_ns = 0
        for source in self._sources:
            source.left = 0
        for one in self._far:
            one.burst(0)
        self._empty_ns = round(statistics.median(self._turn() for _ in range(CALIBRATIONS)))

    def burst(self, count: int) -> _Burst:
        """One, to its end: until all that was sent has come and gone, or nothing moves any more."""
        before = self.look()
        begun_ns = self._clock()
        for source in self._sources:
            source.left = count // len(self._sources)
        self._due = self._counts().received
        self._due += sum(one.burst(count) for one in self._far)
        turns, worker_ns, idle, moved = 0, 0, 0, self._moved()
        while idle < IDLE_TURNS and not (turns and self._is_over()):
            worker_ns += self._turn()
            turns += 1
            now = self._moved()
            idle, moved = (0, now) if now != moved else (idle + 1, moved)
        guest_ns = self._clock() - begun_ns - turns * self._empty_ns
        self._cpu_ns += worker_ns
        after = self.look()
        packets = max(after.received - before.received, after.sent - before.sent)
        return _Burst(packets, self._worker_cost(before, after, worker_ns, turns), guest_ns / max(packets, 1))

    def _worker_cost(self, before: Sample, after: Sample, worker_ns: int, turns: int) -> float | None:
        """Instructions a packet in the worker: of rounds with work, but the first of each turn; or, where it sleeps,
        of all."""
        packets = max(after.received - before.received, after.sent - before.sent)
        metered = after.metered - before.metered
        if self._sleeps and packets:
            return max(worker_ns - turns * self._empty_ns, 0) / packets
        if not packets or not metered:
            return None
        return (after.metered_ns - before.metered_ns) / metered * (after.done - before.done) / packets

    def _turn(self) -> int:
        """Everybody once; what the workers took."""
        begun_ns = self._clock()
        for worker in self._workers:
            worker.turn(far_ends.TURN)
        taken_ns = self._clock() - begun_ns
        for one in self._far:
            one.turn()
        return taken_ns

    def _moved(self) -> tuple[int, ...]:
        """Changes when there was work."""
        return (*(worker.view.done for worker in self._workers), self._counts().completed)

    def _is_over(self) -> bool:
        """All that was sent has come, and what was sent on is completed."""
        counts = self._counts()
        if counts.outstanding_frames:
            return False
        if self._sources:
            return all(source.left == 0 for source in self._sources)
        return counts.received >= self._due

    def _counts(self) -> Counts:
        return total(end.counts() for end in self._ends)

    def look(self) -> Sample:
        """The counters now."""
        return replace(sample(self._ends, self._workers), cpu_ns=self._cpu_ns, busy_ns=self._cpu_ns)

    def finish(self) -> None:
        """Everything that is still on its way arrives."""
        for one in self._far:
            one.halt()
        for worker in self._workers:
            worker.halt()
        for _ in range(IDLE_TURNS):
            self._turn()
        for worker in self._workers:
            worker.stop()


def _metrics(bursts: Sequence[_Burst]) -> dict[str, float]:
    """Over all bursts but the first, in which everything is touched for the first time."""
    counted = [burst for burst in bursts[1:] or bursts if burst.packets]
    workers = [burst.worker for burst in counted if burst.worker is not None]
    found = {"instructions_per_packet": middle_half(workers)} if workers else {}
    if counted:
        found["guest_instructions_per_packet"] = middle_half([burst.guest for burst in counted])
    return found


def middle_half(values: Sequence[float]) -> float:
    """The mean of the middle half: rare interrupts are left out as by a median, and where an emulated NIC takes turns
    between two costs, the mean of both is steadier than either. At least one value."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return statistics.fmean(ordered[quarter : len(ordered) - quarter])


def _copied_bytes(turns: _Turns) -> dict[str, float]:
    """Bytes that the kernel copies a packet, where it can be probed."""
    before = turns.look()
    with CopyCount((*SENDING, *RECEIVING)) as copies:
        for _ in range(COPY_BURSTS):
            turns.burst(turns.most)
    after = turns.look()
    packets = max(after.sent - before.sent, after.received - before.received)
    if copies.calls is None or not packets:
        return {}
    return {"copied_bytes_per_packet": sum(copies.calls.values()) * turns.packet_bytes / packets}
