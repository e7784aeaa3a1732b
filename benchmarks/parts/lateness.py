"""Part `lateness`: how late packets leave, counted after sendto returned, beside a loop that only reads the clock.

20,000 packets a second come from a sender on another CPU, are held for 20 ms, and leave; the worker spins. A second
loop, on the same CPU and in turns with the first, has the same deadlines and does nothing but read the clock: how far
it overshoots them is what the machine itself does (timer ticks, other guests, other processes).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bed import Line
from clockloop import disturbed, overshoot
from measure import Result, on_cpu, other_cpu
from xskit.engine import histogram
from xskit.engine.thread import WorkerThread
from xskit.stages.delay import Delay

OWD_NS = 20_000_000
INTERVAL_NS = 50_000
PACKETS = 5_000
LIMIT_NS = 3_000
FRACTIONS = (0.5, 0.99, 0.999)


def run_engine(line: Line, cpu: int, packets: int) -> np.ndarray[Any, Any]:
    """Let so many packets through; the counts of the lateness histogram that they added."""
    before = line.direction.reading().lateness()
    counters = line.direction.pipeline.counters
    worker = WorkerThread([line.direction], cpu=cpu, spin=True)
    try:
        worker.start()
        on_cpu(other_cpu(cpu), lambda: line.generator.pace(packets, INTERVAL_NS))
        received = -1
        while counters.in_flight or counters.received != received:
            received = counters.received
            time.sleep(0.1)
    finally:
        worker.close()
    added: np.ndarray[Any, Any] = line.direction.reading().lateness() - before
    return added


def measure(cpu: int, turns: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(lateness counts of the engine, overshoot counts of the clock loop), in turns of a quarter of a second."""
    engine, clock = np.zeros((2, histogram.BUCKETS), np.int64)
    with Line([Delay(OWD_NS)], packets=4096, horizon_ns=2 * OWD_NS) as line:
        for _ in range(turns):
            engine += run_engine(line, cpu, PACKETS)
            clock += overshoot(cpu, PACKETS, INTERVAL_NS)
    return engine, clock


def describe(counts: np.ndarray[Any, Any]) -> dict[str, float]:
    """p50, p99, p99.9 and the maximum, in ns."""
    values = histogram.quantiles(counts, FRACTIONS)
    names = ("p50", "p99", "p99.9")
    found = {name: float(value or 0) for name, value in zip(names, values, strict=True)}
    return found | {"max": float(histogram.maximum(counts) or 0)}


def run(cpu: int, quick: bool) -> list[Result]:
    """The lines of the table."""
    counts = measure(cpu, 12 if quick else 60)
    engine, clock = map(describe, counts)
    met = engine["p50"] < LIMIT_NS
    judged = None if disturbed(counts[1]) and not met else met
    return [
        Result(
            "lateness",
            f"{name} at 20 kpps, owd 20 ms",
            f"{engine[name] / 1000:.2f} us",
            f"clock loop {clock[name] / 1000:.2f} us",
            "< 3 us" if name == "p50" else "",
            judged if name == "p50" else None,
            {"engine_ns": engine[name], "clock_ns": clock[name]},
        )
        for name in engine
    ]
