"""How the benchmarks measure: pinned, interleaved, thread CPU time, paired ratios with bootstrap intervals."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

RESAMPLES = 4000
CONFIDENCE = 0.95


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """Keep this thread on one CPU, without the garbage collector."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        os.sched_setaffinity(0, before)


def other_cpu(cpu: int) -> int:
    """A CPU beside this one, for whoever feeds the one that is measured; the same where there is only one."""
    others = [number for number in sorted(os.sched_getaffinity(0)) if number != cpu]
    return others[0] if others else cpu


def on_cpu(cpu: int, work: Callable[[], Any], nice: int = 0) -> None:
    """Run something to its end in a thread of its own on a CPU."""
    failures: list[BaseException] = []

    def body() -> None:
        os.sched_setaffinity(0, {cpu})
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def cpu_ns(work: Callable[[], Any]) -> int:
    """CPU time of this thread (CLOCK_THREAD_CPUTIME_ID) that work takes: what others do meanwhile counts little."""
    begin = time.thread_time_ns()
    work()
    return time.thread_time_ns() - begin


@dataclass(frozen=True)
class Paired:
    """Two alternatives measured in turns, per unit of work."""

    ours: np.ndarray[Any, Any]
    twin: np.ndarray[Any, Any]

    @property
    def ratio(self) -> tuple[float, float, float]:
        """(median, lower, upper) of the paired ratios ours / twin; 95 % bootstrap interval of the median."""
        return median_interval(self.ours / self.twin)


def median_interval(values: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    """(median, lower, upper): percentile bootstrap, 95 %."""
    generator = np.random.default_rng(1)
    picks = generator.integers(0, len(values), (RESAMPLES, len(values)))
    medians = np.median(values[picks], axis=1)
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(np.median(values)), float(low), float(high)


def interleave(ours: Callable[[], float], twin: Callable[[], float], rounds: int) -> Paired:
    """Measure both `rounds` times, in turns, each first in every second round."""
    samples = np.zeros((rounds, 2))
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            samples[number, which] = (ours, twin)[which]()
    return Paired(samples[:, 0], samples[:, 1])


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    part: str
    what: str
    value: str
    """The figure, as it is shown."""
    beside: str = ""
    """What it stands beside: the twin's figure, the clock loop's, what was planned."""
    target: str = ""
    met: bool | None = None
    """None: no target, for information."""
    figures: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def paired_result(part: str, what: str, paired: Paired, limit: float | None, unit: str = "ns/packet") -> Result:
    """A line for a ratio whose interval's upper bound has a limit."""
    middle, low, high = paired.ratio
    ours, twin = float(np.median(paired.ours)), float(np.median(paired.twin))
    figures = {"ratio": middle, "low": low, "high": high, "ours": ours, "twin": twin, "unit": unit}
    return Result(
        part,
        what,
        f"ratio {middle:.3f} [{low:.3f}, {high:.3f}]",
        f"{ours:.1f} against {twin:.1f} {unit}",
        "" if limit is None else f"upper bound <= {limit}",
        None if limit is None else high <= limit,
        figures | {"rounds": len(paired.ours)},
    )
