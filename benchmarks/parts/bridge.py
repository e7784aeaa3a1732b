"""Part `bridge`: a whole bridge on veth in closed bursts, CPU time per packet, against C bridges on the same sockets.

A burst lies in RX; then the bridge runs, alone on its CPU, for as many rounds as it takes until all of it, or as much
that was due, has left. The time is that of the thread, kernel included: copying into a socket buffer, the way through
the veth, the sink's XDP program. Both bridges take turns on one set of sockets, rings, packet memory and pipeline.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bed import Line
from measure import Paired, Result, cpu_ns, paired_result, pinned
from parts.pipeline import pipeline_addresses
from twins import check_layout, function, load
from xskit.engine.clock import monotonic_ns
from xskit.engine.records import Direction, Egress, Exit
from xskit.engine.stage import Stage
from xskit.engine.thread import WorkerThread
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.delay import Delay
from xskit.stages.loss import Loss
from xskit.units import QueueLimit
from xskit.xsk.path.receive import Receiver
from xskit.xsk.path.rings import Ring

BURST = 1024
ROUNDS = BURST // 64 + 1
HELD_BURSTS = 32
OWD_NS = 200_000_000
"""Time enough to send so many bursts, and to take them in."""
PASS_LIMIT, HOLD_LIMIT = 1.05, 1.15


def twin_library() -> ctypes.CDLL:
    """The C bridges, checked against the engine's records."""
    library = load("bridge")
    check_layout(library, "bridge_sizes", (Ring, Receiver, Egress, Exit, Direction))
    return library


def measure_pass(rounds: int) -> Paired:
    """Nothing between the ports; ns of CPU time a packet."""
    with Line([], packets=4 * BURST) as line:
        worker = WorkerThread([line.direction], spin=True)
        line.stack.callback(worker.close)
        twin = function(twin_library(), "bridge_pass", 2)
        counters = line.direction.pipeline.counters

        def sample(run: Callable[[], Any]) -> float:
            line.generator.burst(BURST)
            goal = counters.received + BURST
            spent = 0
            while counters.sent < goal:
                spent += cpu_ns(run)
            return spent / BURST

        bridges = [lambda: worker.run_rounds(ROUNDS), lambda: twin(line.direction.address, ROUNDS)]
        samples = np.array([paired_turn(number, bridges, sample) for number in range(rounds)], float)
        check_books(line)
    return Paired(samples[5:, 0], samples[5:, 1])


def measure_hold(rounds: int) -> tuple[Paired, float]:
    """Loss, bottleneck and delay; (ns of CPU time a packet, packets in flight)."""
    stages: Sequence[Stage] = [
        Loss(0.01),
        Bottleneck(10_000_000_000, limit=QueueLimit(unit="ns", value=50_000_000)),
        Delay(OWD_NS),
    ]
    with Line(stages, packets=(HELD_BURSTS + 8) * BURST, horizon_ns=2 * OWD_NS) as line:
        worker = WorkerThread([line.direction], spin=True)
        line.stack.callback(worker.close)
        twin = function(twin_library(), "bridge_hold", 3)
        addresses = pipeline_addresses(line.direction.pipeline)
        due_ns: list[int] = []  # when all of each burst is
        held: list[int] = []

        def sample(run: Callable[[], Any]) -> float:
            """One burst in, the oldest one out; NaN while the pipeline fills up."""
            line.generator.burst(BURST)
            if counters.in_flight >= (HELD_BURSTS - 1) * BURST:
                oldest = (counters.received - counters.in_flight) // BURST
                while (left_ns := due_ns[oldest] - monotonic_ns()) > 0:
                    time.sleep(left_ns / 1e9)
            before, sent = counters.in_flight, counters.sent
            spent_ns = cpu_ns(run)
            due_ns.append(monotonic_ns() + OWD_NS)  # now: the watermark had passed the stamps of all but the first 64
            out = counters.sent - sent
            if out < 0.9 * BURST:
                return np.nan
            held.append(before)
            return spent_ns / out

        counters = line.direction.pipeline.counters
        bridges = [
            lambda: worker.run_rounds(ROUNDS),
            lambda: twin(line.direction.address, addresses.ctypes.data, ROUNDS),
        ]
        for _ in range(2 * HELD_BURSTS):
            sample(bridges[0])
        samples = np.array([paired_turn(number, bridges, sample) for number in range(rounds)], float)
        check_books(line)
    good = samples[~np.isnan(samples).any(axis=1)]
    if len(good) < rounds / 4:
        raise SystemExit(f"the machine is too busy: only {len(good)} of {rounds} pairs of bursts were full")
    return Paired(good[:, 0], good[:, 1]), float(np.median(held))


def paired_turn(
    number: int, bridges: Sequence[Callable[[], Any]], sample: Callable[[Callable[[], Any]], float]
) -> tuple[float, float]:
    """One sample of each, in alternating order."""
    if number % 2:
        second = sample(bridges[1])
        return sample(bridges[0]), second
    first = sample(bridges[0])
    return first, sample(bridges[1])


def check_books(line: Line) -> None:
    """What both bridges counted together must add up, and every packet must have had its stamp."""
    counters = line.direction.pipeline.counters
    dropped = line.direction.reading().dropped()
    if counters.received != counters.sent + sum(packets for packets, _ in dropped) + counters.in_flight:
        raise SystemExit("bridge: the counters do not add up")
    if counters.unstamped or any(packets for cause, (packets, _) in enumerate(dropped) if cause > 1):
        raise SystemExit(f"bridge: {counters.unstamped} packets without stamp; drops by cause {dropped}")


def run(cpu: int, quick: bool) -> list[Result]:
    """The lines of the table."""
    with pinned(cpu):
        empty = measure_pass(400 if quick else 1500)
        full, held = measure_hold(100 if quick else 400)
    return [
        paired_result("bridge", "nothing between the ports", empty, PASS_LIMIT),
        paired_result("bridge", f"loss + bottleneck + delay, {held:,.0f} in flight", full, HOLD_LIMIT),
    ]
