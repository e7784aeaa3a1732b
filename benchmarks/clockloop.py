"""A loop that does nothing but read the clock until each of its deadlines: what the machine itself adds to a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from measure import on_cpu
from xskit.engine import histogram
from xskit.engine.clock import read_clock
from xskit.jit import compiled
from xskit.memory import Region

WORKER_NICE = -19
MISSED_NS = 1_000
MOST_MISSED = 0.1
"""Where more deadlines than this were missed by more than that, others had the CPU, and a time is not judged."""


@compiled("int64(int64, int64, int64, int64)")
def watch_clock(counts: int, scratch: int, deadlines: int, interval_ns: int) -> int:
    """Spin until each deadline, and count how far the clock has passed it; returns the last deadline."""
    due_ns = read_clock(scratch)
    for _ in range(deadlines):
        due_ns += interval_ns
        now_ns = read_clock(scratch)
        while now_ns < due_ns:
            now_ns = read_clock(scratch)
        histogram.add(counts, now_ns - due_ns)
    return due_ns


def overshoot(cpu: int, deadlines: int, interval_ns: int) -> np.ndarray[Any, Any]:
    """Counts of a histogram of how far the clock had passed each deadline, in a thread like a worker's."""
    with Region(histogram.BYTES + 16) as memory:
        scratch = memory.address + histogram.BYTES
        watch_clock(memory.address, scratch, 0, interval_ns)
        on_cpu(cpu, lambda: watch_clock(memory.address, scratch, deadlines, interval_ns), WORKER_NICE)
        return memory.array(histogram.BUCKETS, np.int64).copy()


def disturbed(counts: np.ndarray[Any, Any]) -> bool:
    """Others were using the CPU; a quiet machine misses 2 deadlines in 100."""
    on_time = sum(int(n) for bucket, n in enumerate(counts) if n and histogram.lowest(bucket) < MISSED_NS)
    return on_time < (1 - MOST_MISSED) * int(counts.sum())


def busy(cpu: int) -> bool:
    """Others are using the CPU now: half a second of watching."""
    return disturbed(overshoot(cpu, 10_000, 50_000))
