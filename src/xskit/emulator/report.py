"""The report: asked against achieved, and whether the run counts.

One structure that the command line, JSON and everything later shows; `schema` names its version. A run is invalid
when the engine was late by more than a stated part of the owd, when packets were lost that the settings did not ask
for, or when the books do not balance. Stalls of the host itself are counted apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xskit import units
from xskit.emulator.report_data import DirectionReport, RunRecord
from xskit.engine import histogram
from xskit.engine.packets import CAUSES, DropCause
from xskit.engine.pipeline import Reading
from xskit.engine.records import Direction
from xskit.engine.stage import StageKind

LATE_FRACTION = 0.05
"""Of the owd: more than this, at the 99th percentile of lateness, makes a run invalid ..."""
LATE_LEAST_NS = 1_000_000
"""... but never less than this."""


@dataclass
class Report(RunRecord):
    """One run."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, `schema` and whether the run is valid first."""
        rest = asdict(self)
        first = ("schema", "valid", "invalid_because", "warnings", "duration_ns")
        return {name: rest[name] for name in (*first, "links", "ports", "workers", "memory")}

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.as_dict(), indent=2)

    def __str__(self) -> str:
        from xskit.emulator.report_text import report_text

        return report_text(self)


def direction_report(
    name: str,
    asked: dict[str, Any],
    reading: Reading,
    since: Direction,
    kinds: Sequence[StageKind],
    rate_bps: float | None,
) -> DirectionReport:
    """The report of a direction from one snapshot of its numbers.

    What was achieved counts since the last update, or the start; packets and bytes count since the start.
    """
    counters = reading.counters
    drops = reading.dropped()
    names = [DropCause(n).name.lower() if n in DropCause._value2member_map_ else str(n) for n in range(CAUSES)]
    packets = {
        "received": counters.received,
        "duplicated": counters.duplicated,
        "injected": counters.injected,
        "sent": counters.sent,
        "dropped": {names[n]: count for n, (count, _) in enumerate(drops) if count},
        "in_flight": counters.in_flight,
    }
    amounts = {
        "received": counters.received_bytes,
        "duplicated": counters.duplicated_bytes,
        "injected": counters.injected_bytes,
        "sent": counters.sent_bytes,
        "dropped": {names[n]: size for n, (_, size) in enumerate(drops) if size},
        "in_flight": counters.in_flight_bytes,
    }
    lost, offered = drops[DropCause.LOSS][0] - since.since_lost, counters.received - since.since_received
    if not since.updates:  # what was dropped before the first stage never met it
        early = (DropCause.MEMORY_FULL, DropCause.SUPER_PACKET, DropCause.TOO_MANY_FRAGMENTS)
        offered -= sum(drops[cause][0] for cause in early)
    beyond = histogram.quantiles(reading.owd(), (0.5, 0.99))
    owd = [None if value is None else value + since.owd_base_ns for value in beyond]
    late = reading.lateness()
    quantiles = histogram.quantiles(late, (0.5, 0.99, 0.999))
    return DirectionReport(
        name=name,
        asked=asked,
        achieved={
            "owd_ns": {"p50": owd[0], "p99": owd[1]},
            "rate_bps": rate_bps,
            "loss": lost / offered if offered else None,
            "loss_packets": [lost, offered],
        },
        stages=[_stage(kind, reading.stage_state(n)) for n, kind in enumerate(kinds)],
        packets=packets,
        bytes=amounts,
        lateness_ns={
            "p50": quantiles[0],
            "p99": quantiles[1],
            "p999": quantiles[2],
            "max": histogram.maximum(late),
            "clamped": counters.clamped,
            "clamped_max_ns": counters.clamped_ns,
            "unstamped": counters.unstamped,
        },
    )


def _stage(kind: StageKind, state: Any) -> dict[str, Any]:
    fields = ("packets", "bytes", "peak_packets", "peak_bytes") if kind.holding else ("passed", "dropped")
    return {"name": kind.name} | {name: getattr(state, name) for name in (*fields, *kind.reported)}


_NOT_ASKED_FOR = {
    "memory_full": "were dropped because packet memory ran out; {remedy}",
    "tx_refused": "were refused by the kernel when they were to be sent",
    "port_down": "were due while the port was down",
    "super_packet": "were longer than the port can send; on the sender: ethtool -K INTERFACE tso off gso off",
    "too_many_fragments": "had more fragments than a sent packet may have",
}
"""Drop causes that no setting asks for, and what became of such packets."""


def judge(report: Report, *, imbalances: int, violations: int, broken: Sequence[str], remedy: str) -> None:
    """Decide whether the run counts, and say why not."""
    reasons = list(broken)
    for link in report.links:
        for direction in link.directions:
            place = f"{link.name} {direction.name}"
            allowed = max(LATE_FRACTION * direction.asked["owd_ns"], LATE_LEAST_NS)
            late = direction.lateness_ns["p99"]
            if late is not None and late > allowed:
                reasons.append(
                    f"{place}: packets left {_about(late)} late at the 99th percentile, more than {_about(allowed)}"
                )
            dropped = direction.packets["dropped"]
            reasons += [
                f"{place}: {dropped[cause]} packets {became.format(remedy=remedy)}"
                for cause, became in _NOT_ASKED_FOR.items()
                if dropped.get(cause)
            ]
    for port in report.ports:
        reasons += [
            f"port {port.name}: the kernel dropped {port.kernel[counter]} packets before xskit saw them ({counter})"
            for counter in ("rx_dropped", "rx_ring_full")
            if port.kernel.get(counter)
        ]
    if imbalances:
        reasons.append(f"the packet counts did not balance {imbalances} times")
    if violations:
        reasons.append(f"{violations} frames were not where they should have been")
    report.invalid_because = reasons
    report.valid = not reasons


def _about(value_ns: float) -> str:
    """Two digits are enough to say how far off something is."""
    whole = round(value_ns)
    return units.format_duration(round(whole, min(2 - len(str(whole)), 0)))
