"""One run of one case: sockets and far ends opened, loops started, counters sampled, everything closed.

open -> prepare (compile, pin) -> start -> sample ... sample -> far ends stop -> drain -> stop -> read the books
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from xskit.abi.xdp import Statistics
from xskit.bench import far as far_ends
from xskit.bench.bed import Place
from xskit.bench.ends import End, Memory, open_queues, total
from xskit.bench.interrupts import Interrupts
from xskit.bench.metrics import OF_MODE, Sample, rates, steady_from
from xskit.bench.notes import explain_silence, notes
from xskit.bench.others import OtherPrograms
from xskit.bench.results import BindModeInUse, Run
from xskit.bench.settings import Case, Conditions
from xskit.bench.thread import BenchThread
from xskit.engine import histogram
from xskit.errors import UsageError

__all__ = ["Observer", "Running", "book", "conclude", "prepared", "run_once", "sample"]

MOST_SAMPLES = 4096
PEEK_NS = 5_000_000
"""So soon is seen that a source has sent all that it should."""

CALLS = {
    "rx empty polls": "empty_polls",
    "fill fail polls": "fill_fails",
    "copy tx sendtos": "copy_kicks",
    "tx wakeup sendtos": "wakeups",
    "opt polls": "polls",
}


@dataclass
class Running:
    """A run as an observer sees it while it goes on."""

    case: Case
    mode: BindModeInUse
    repeat: int
    ends: list[End]
    samples: list[Sample]
    interrupts: Interrupts | None
    interrupted: bool = False
    over: bool = False
    """The loops have stopped; the sockets are still open."""

    def kernel(self) -> Statistics:
        """XDP_STATISTICS now, summed over the sockets."""
        total = dict.fromkeys((one.name for one in fields(Statistics)), 0)
        for end in self.ends:
            for number, opened in enumerate(end.sockets):
                for name, value in asdict(opened.statistics()).items():
                    if number == 0 or name != "rx_fill_ring_empty":  # FILL is one for all sockets of a queue
                        total[name] += value
        return Statistics(**total)


Observer = Callable[[Running], None]


def run_once(
    case: Case, place: Place, conditions: Conditions, repeat: int = 0, observe: Observer | None = None
) -> tuple[Run, Running]:
    """Do it. `observe` is called after every sample, and once more when the run is over. Ctrl-C only ends the run.

    Raises:
        XskitError: a socket or a program cannot be had, or a worker failed.
    """
    with prepared(case, place, conditions, repeat) as (running, workers, far):
        others = OtherPrograms()
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        if case.count:  # which may be over before one can look
            running.samples.append(sample(running.ends, workers))
        for worker in workers:
            worker.start()
        for one in far:
            one.start()
        _watch(running, workers, far, conditions, observe)
        other_cpus = others.cpus()
        _finish(running.ends, workers, far, conditions)
        counts = conclude(running, far, observe)
        run = _book_steady(running, workers, counts, started)
        run.other_cpus = round(other_cpus, 3)
        return run, running


@contextmanager
def prepared(
    case: Case, place: Place, conditions: Conditions, repeat: int
) -> Iterator[tuple[Running, list[BenchThread], list[far_ends.Far]]]:
    """Everything open, compiled and let in, and nothing moving yet; closed again at the end."""
    cpus, drive_cpu = choose_cpus(conditions)
    with place.inside(), ExitStack() as stack:
        ends, mode = open_ends(case, place, stack)
        far = far_ends.build(case, place, stack, drive_cpu)
        if not conditions.cpus:  # rather where no source is
            sources = {cpu for one in far if isinstance(one, far_ends.LiveSource) for cpu in one.cpus}
            cpus.sort(key=lambda cpu: cpu in sources)
        workers = make_workers(case, conditions, ends, cpus)
        for worker in workers:
            stack.callback(worker.close)
            worker.prepare()
        interrupts = Interrupts(conditions.interrupts) if conditions.interrupts else None
        running = Running(case, mode, repeat, ends, [], interrupts)
        for end in ends:
            end.admit()
        place.wait_for_carrier()
        yield running, workers, far


def conclude(running: Running, far: Sequence[far_ends.Far], observe: Observer | None) -> far_ends.FarCounts:
    """The run is over: tell the observer, and add up what the far ends counted."""
    running.over = True
    if observe:
        observe(running)
    counts = far_ends.FarCounts()
    for one in far:
        one.count(counts)
    return counts


def choose_cpus(conditions: Conditions) -> tuple[list[int], int | None]:
    """CPUs for the workers, and the one for what drives the other end.

    Raises:
        UsageError: this process may not use one that was asked for.
    """
    allowed = sorted(os.sched_getaffinity(0))
    asked = [*conditions.cpus, *([] if conditions.drive_cpu is None else [conditions.drive_cpu])]
    if refused := [cpu for cpu in asked if cpu not in allowed]:
        usable = ", ".join(map(str, allowed))
        raise UsageError(
            f"this process cannot run on CPU {refused[0]}, only on {usable}", remedy="lscpu --online --extended"
        )
    workers = list(conditions.cpus) or allowed[::-1]
    drive = conditions.drive_cpu
    if drive is None:
        others = [cpu for cpu in allowed if cpu != workers[0]]
        drive = others[0] if others else allowed[0]
    return workers, drive


def open_ends(case: Case, place: Place, stack: ExitStack) -> tuple[list[End], BindModeInUse]:
    """The ends under test, in the order in which workers take them."""
    sends_itself = case.mode in ("txonly", "latency") or (case.mode == "loss" and not place.far)
    numbered = case.packet
    both = case.mode == "forward"  # the two ends of a queue number have one memory, and one worker
    memories = [stack.enter_context(Memory(case, 2 * case.frames)) for _ in case.queues] if both else None
    ends: list[End] = []
    for position, name in enumerate(place.near):
        receives = case.mode != "txonly" and not (case.mode == "loss" and len(place.near) == 2 and position == 0)
        ends += open_queues(
            name,
            case,
            stack,
            receives=receives,
            sends=case.mode in ("l2fwd", "forward") or (sends_itself and position == 0),
            source=numbered if sends_itself and position == 0 else None,
            check=numbered if case.mode == "loss" and receives else None,
            echo=case.mode == "latency",
            memories=memories,
            first=position * case.frames if both else 0,
        )
    first = ends[-1].sockets[0]
    programs = [end.program for end in ends if end.program is not None]
    why = list(dict.fromkeys([*(why for program in programs for why in program.why), *first.why]))
    xdp = str(programs[0].mode) if programs else "none"
    return ends, BindModeInUse(xdp, first.zero_copy, first.multi_buffer, first.transmit_budget, why)


def make_workers(case: Case, conditions: Conditions, ends: Sequence[End], cpus: Sequence[int]) -> list[BenchThread]:
    """One for each queue; it has the queue's ends of all interfaces."""
    made = []
    for number, queue in enumerate(case.queues):
        mine = [end for end in ends if end.queue == queue]
        limit = 0 if any(end.sources for end in mine) else mine[0].case.count * (1 + case.both_ways)
        made.append(
            BenchThread(
                case.mode,
                mine,
                cpu=cpus[number % len(cpus)],
                poll=case.poll,
                limit=limit,
                priority=conditions.priority,
                reduce_capabilities=conditions.reduce_capabilities,
            )
        )
    return made


_METER = ("cpu_ns", "busy_ns", "metered_ns", "metered", "done")


def sample(ends: Sequence[End], workers: Sequence[BenchThread]) -> Sample:
    """The counters now."""
    time_ns = time.monotonic_ns()
    meters = [astuple(worker.meter()) for worker in workers]
    counts = total(end.counts() for end in ends)
    return Sample(
        time_ns=time_ns,
        received=counts.received,
        received_bytes=counts.received_bytes,
        sent=counts.sent,
        sent_bytes=sum(end.sent_bytes for end in ends),
        **{name: sum(values) for name, values in zip(_METER, zip(*meters, strict=True), strict=True)},
    )


def _watch(
    running: Running,
    workers: list[BenchThread],
    far: Sequence[far_ends.Far],
    conditions: Conditions,
    observe: Observer | None,
) -> None:
    """Until the time is over, all loops have ended by themselves, all that should come was sent, though some of it may
    have got lost, or somebody pressed Ctrl-C."""

    ended_ns: list[int] = []

    def going_on() -> bool:
        if not any(worker.running for worker in workers):
            return False
        sources = [ended for one in far if (ended := one.finished()) is not None]
        if not (sources and all(sources)):
            return True
        ended_ns.append(time.monotonic_ns())
        drained = all(end.is_drained() for end in running.ends)
        return not drained and ended_ns[-1] - ended_ns[0] < conditions.retries * 1e9

    step_ns = round(conditions.step * 1e9)
    begin_ns = due_ns = time.monotonic_ns()
    end_ns = begin_ns + round(conditions.duration * 1e9)
    try:
        while True:
            running.samples.append(sample(running.ends, workers))
            if len(running.samples) > MOST_SAMPLES:
                del running.samples[1:-1:2]
            if observe:
                observe(running)
            if due_ns >= end_ns or not going_on():
                return
            due_ns += step_ns
            while (left_ns := due_ns - time.monotonic_ns()) > 0 and going_on():
                wait_ns = min(left_ns, PEEK_NS) if running.case.count else left_ns
                next((worker for worker in workers if worker.running), workers[0]).join(wait_ns / 1e9)
    except KeyboardInterrupt:
        running.interrupted = True
        running.samples.append(sample(running.ends, workers))


def _finish(ends: list[End], workers: list[BenchThread], far: Sequence[far_ends.Far], conditions: Conditions) -> None:
    """Stop the sources, let everything arrive, stop the loops. What comes from elsewhere is let in no more."""
    deadline = time.monotonic() + conditions.retries
    if not any(end.sources for end in ends) and all(one.finished() is None for one in far):
        for end in ends:
            end.dismiss()
    for one in far:
        one.halt()
    for worker in workers:
        worker.halt()
    for end in ends:
        end.wait_until_drained(deadline - time.monotonic())
    for end in ends:
        end.wait_for_completion(max(deadline - time.monotonic(), 0))
    for one in far:
        one.drain()
    for worker in workers:
        worker.stop()


def _book_steady(running: Running, workers: list[BenchThread], far: far_ends.FarCounts, started: str) -> Run:
    samples = running.samples
    # round trips are those of the whole run: nothing is left out there
    first = 0 if running.case.mode == "latency" else steady_from(samples)
    metrics = rates(samples[first:], sleeps=running.case.poll)
    run = book(running, sample(running.ends, workers), far, started, metrics, OF_MODE[running.case.mode])
    run.warm_up_seconds = (samples[first].time_ns - samples[0].time_ns) / 1e9
    return run


def book(
    running: Running,
    last: Sample,
    far: far_ends.FarCounts,
    started: str,
    metrics: dict[str, float],
    names: Sequence[str],
) -> Run:
    """Everything about a run that is over; of its metrics and details, `names` are its metrics."""
    case, samples = running.case, running.samples
    kernel, sockets = running.kernel(), total(end.counts() for end in running.ends)
    details, counts = _details(running, last, far)
    metrics = metrics | details
    run = Run(
        repeat=running.repeat,
        started=started,
        seconds=(samples[-1].time_ns - samples[0].time_ns) / 1e9,
        metrics={name: metrics[name] for name in names if name in metrics},
        counts=counts,
        kernel={name: int(value) for name, value in zip(_KERNEL, astuple(kernel), strict=True)},
        calls={title: getattr(sockets, name) for title, name in CALLS.items()},
        far=dict(far),
        cpu_ns=last.cpu_ns,
        busy_ns=last.busy_ns,
        warm_up_seconds=0.0,
        samples=[replace(each, time_ns=each.time_ns - samples[0].time_ns) for each in samples],
        details={name: value for name, value in details.items() if name not in names},
        interrupts=running.interrupts.count() if running.interrupts else None,
    )
    if case.mode == "latency":
        buckets = _round_trips(running.ends)
        run.histogram = {str(at): int(buckets[at]) for at in np.flatnonzero(buckets)}
    run.notes = notes(case, run)
    if not (run.counts["received"] or run.counts["sent"]):
        run.notes += explain_silence(case, run, [end.sockets[0].interface for end in running.ends])
    return run


_KERNEL = ("rx_dropped", "rx_invalid", "tx_invalid", "rx_ring_full", "fill_ring_empty", "tx_ring_empty")


def _round_trips(ends: Sequence[End]) -> np.ndarray[Any, Any]:
    total: np.ndarray[Any, Any] = np.sum([end.histogram() for end in ends], axis=0)
    return total


def _details(running: Running, last: Sample, far: far_ends.FarCounts) -> tuple[dict[str, float], dict[str, int]]:
    """Figures that only some modes have, and the counters of the sockets."""
    ends, case = running.ends, running.case
    sockets = total(end.counts() for end in ends)
    counts = {"received": last.received, "received_bytes": last.received_bytes}
    counts |= {"received_frames": sockets.received_frames, "sent": last.sent, "sent_bytes": last.sent_bytes}
    counts |= {"refused": sockets.refused, "unfinished": sockets.outstanding_frames, "strays": sockets.strays}
    details: dict[str, float] = {}
    if case.mode == "latency":
        echoes = [echo for end in ends for echo in end.echoes]
        counts |= {name: sum(int(getattr(echo, name)) for echo in echoes) for name in ("count", "lost", "strangers")}
        counts["round_trips"] = counts.pop("count")
        if counts["round_trips"]:
            buckets = _round_trips(ends)
            p50, p99, p999 = histogram.quantiles(buckets, (0.5, 0.99, 0.999))
            details = {"round_trip_p50_ns": p50 or 0, "round_trip_p99_ns": p99 or 0, "round_trip_p999_ns": p999 or 0}
            details["round_trip_max_ns"] = max(echo.max_ns for echo in echoes)
            details["round_trip_min_ns"] = min(echo.min_ns for echo in echoes if echo.count)
            details["round_trip_mean_ns"] = sum(echo.sum_ns for echo in echoes) / counts["round_trips"]
    if case.mode == "loss":
        checks = [check for end in ends for check in end.checks]
        names = ("unique", "duplicates", "reordered", "corrupted")
        counts |= {name: sum(int(getattr(check, name)) for check in checks) for name in names}
        sent = last.sent or far.get("sent") or far.get("made", 0)
        counts["lost"] = max(sent - counts["unique"] - counts["corrupted"], 0)
        if sent:
            details = {"loss": counts["lost"] / sent, "reordered": counts["reordered"] / sent}
    sources = [source for end in ends for source in end.sources if source.cycles]
    if sources:
        cycles = sum(source.cycles for source in sources)
        details["cycles"] = cycles
        details["late_min_ns"] = min(source.late_min_ns for source in sources)
        details["late_max_ns"] = max(source.late_max_ns for source in sources)
        details["late_mean_ns"] = sum(source.late_sum_ns for source in sources) / cycles
    return details, counts
