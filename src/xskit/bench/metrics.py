"""The figures of a run: which ones a mode has, in what unit, and whether more is better.

`cpu_ns_per_packet` is CPU time of the worker's thread, the kernel's work in it included. A worker that spins is only
metered while there is work, so it says what a packet costs even where the source is the limit; one that sleeps in
poll(2) is metered all the time. It is the median over the slices between two samples: whoever shares a core or a cache
with the worker for a while spoils some slices, not the run. Packets a second also depend on what drives the other end,
and on everything else that this machine does.

Where the clock counts instructions (guest.py), neither time nor rate is a result; `counted.py` says what is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from xskit.bench.settings import BenchMode

__all__ = ["COUNTED_OF_MODE", "METRICS", "OF_MODE", "Metric", "Sample", "rates", "steady_from"]


@dataclass(frozen=True)
class Metric:
    """A figure: its name in JSON, what a person reads, its unit."""

    name: str
    title: str
    unit: Literal["pps", "bit/s", "ns", "1", "instructions", "bytes"]
    better: Literal["higher", "lower"]


METRICS = {
    one.name: one
    for one in (
        Metric("rx_pps", "received", "pps", "higher"),
        Metric("tx_pps", "sent", "pps", "higher"),
        Metric("rx_bps", "received", "bit/s", "higher"),
        Metric("tx_bps", "sent", "bit/s", "higher"),
        Metric("cpu_ns_per_packet", "CPU time a packet", "ns", "lower"),
        Metric("round_trip_p50_ns", "round trip p50", "ns", "lower"),
        Metric("round_trip_p99_ns", "round trip p99", "ns", "lower"),
        Metric("round_trip_p999_ns", "round trip p99.9", "ns", "lower"),
        Metric("round_trip_max_ns", "round trip max", "ns", "lower"),
        Metric("loss", "lost", "1", "lower"),
        Metric("reordered", "reordered", "1", "lower"),
        Metric("instructions_per_packet", "worker, a packet", "instructions", "lower"),
        Metric("guest_instructions_per_packet", "guest, a packet", "instructions", "lower"),
        Metric("round_trip_p50_instructions", "round trip p50", "instructions", "lower"),
        Metric("round_trip_p99_instructions", "round trip p99", "instructions", "lower"),
        Metric("copied_bytes_per_packet", "copied, a packet", "bytes", "lower"),
    )
}

_RX = ("rx_pps", "rx_bps")
_TX = ("tx_pps", "tx_bps")
OF_MODE: dict[BenchMode, tuple[str, ...]] = {
    "rxdrop": (*_RX, "cpu_ns_per_packet"),
    "txonly": (*_TX, "cpu_ns_per_packet"),
    "l2fwd": ("rx_pps", *_TX, "cpu_ns_per_packet"),
    "forward": ("rx_pps", *_TX, "cpu_ns_per_packet"),
    "latency": ("round_trip_p50_ns", "round_trip_p99_ns", "round_trip_p999_ns", "round_trip_max_ns"),
    "loss": ("rx_pps", "loss", "reordered", "cpu_ns_per_packet"),
}
"""The first is the one that stands for the mode."""

_COUNTED = ("instructions_per_packet", "guest_instructions_per_packet", "copied_bytes_per_packet")
COUNTED_OF_MODE: dict[BenchMode, tuple[str, ...]] = {
    **dict.fromkeys(("rxdrop", "txonly", "l2fwd", "forward"), _COUNTED),
    "latency": ("round_trip_p50_instructions", "round_trip_p99_instructions", "copied_bytes_per_packet"),
    "loss": (*_COUNTED, "loss", "reordered"),
}
"""What takes their place where the clock counts instructions."""

VERDICT_METRICS = (
    "cpu_ns_per_packet", "rx_pps", "tx_pps", "round_trip_p50_ns", "round_trip_p99_ns", "loss",
    "instructions_per_packet", "guest_instructions_per_packet", "round_trip_p50_instructions",
)  # fmt: skip
"""Compared by default, where both sides have them: others follow from these."""


@dataclass(frozen=True)
class Sample:
    """Counters at one moment of a run: packets and bytes since it began; CPU and busy time summed over its workers."""

    time_ns: int
    received: int
    received_bytes: int
    sent: int
    sent_bytes: int
    cpu_ns: int
    busy_ns: int
    metered_ns: int
    """CPU time of rounds with work, but the first after a pause; and the work that was done in these and in all."""
    metered: int
    done: int


def steady_from(samples: Sequence[Sample]) -> int:
    """The number of the sample from which on the run is steady: MSER, the marginal standard error rule.

    Of all ways to cut off the beginning, at most half, it takes the one after which the mean of the rates is known
    best: it minimises the squared standard error (White, "An effective truncation heuristic for bias reduction in
    simulation output", Simulation 69, 1997).
    """
    steps = [
        (after.received + after.sent - before.received - before.sent) / max(after.time_ns - before.time_ns, 1)
        for before, after in pairwise(samples)
    ]
    best, found = float("inf"), 0
    for first in range(len(steps) // 2 + 1):
        rest = steps[first:]
        if len(rest) < 4:
            break
        mean = sum(rest) / len(rest)
        if mean <= sum(steps) / len(steps) / 2:  # packets came to a stop: that is no steady state
            break
        error = sum((step - mean) ** 2 for step in rest) / len(rest) ** 2
        if error < best:
            best, found = error, first
    return found


def rates(samples: Sequence[Sample], *, sleeps: bool) -> dict[str, float]:
    """The metrics of the (steady) part of a run that has these samples; `sleeps`: the worker waits in poll(2)."""
    if len(samples) < 2 or samples[-1].time_ns <= samples[0].time_ns:
        return {}
    first, last = samples[0], samples[-1]
    elapsed_ns = last.time_ns - first.time_ns
    found = {
        "rx_pps": (last.received - first.received) * 1e9 / elapsed_ns,
        "rx_bps": (last.received_bytes - first.received_bytes) * 8e9 / elapsed_ns,
        "tx_pps": (last.sent - first.sent) * 1e9 / elapsed_ns,
        "tx_bps": (last.sent_bytes - first.sent_bytes) * 8e9 / elapsed_ns,
    }
    slices = [cost for before, after in pairwise(samples) if (cost := _cost(before, after, sleeps)) is not None]
    whole = _cost(first, last, sleeps)
    if len(slices) >= ENOUGH_SLICES:
        found["cpu_ns_per_packet"] = median(slices)
    elif whole is not None:
        found["cpu_ns_per_packet"] = whole
    return found


ENOUGH_SLICES = 8


def _cost(first: Sample, last: Sample, sleeps: bool) -> float | None:
    """CPU time a packet between two samples; None where nothing was metered."""
    packets = max(last.received - first.received, last.sent - first.sent)
    done, metered = last.done - first.done, last.metered - first.metered
    if packets <= 0:
        return None
    if sleeps:
        return (last.cpu_ns - first.cpu_ns) / packets
    if metered <= 0:
        return None
    return (last.metered_ns - first.metered_ns) / metered * done / packets  # work is counted in frames in RX
