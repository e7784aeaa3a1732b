"""The report: asked against achieved. `judge.py` says whether the run counts.

One structure that the command line, JSON and everything later shows; `schema` names its version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xskit.emulator.report_data import DirectionReport, RunRecord
from xskit.emulator.significance import punctuality
from xskit.engine import histogram
from xskit.engine.live import NO_FAULTS, Faults
from xskit.engine.packets import DropCause
from xskit.engine.pipeline import Reading
from xskit.engine.receive import UNADMITTED
from xskit.engine.records import Direction
from xskit.engine.stage import StageKind
from xskit.xsk.path.books import CAUSES


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
    *,
    started_ns: int = 0,
    waiting: tuple[int, dict[str, Any]] | None = None,
    faults: Faults = NO_FAULTS,
) -> DirectionReport:
    """The report of a direction from one snapshot of its numbers.

    Args:
        name: "forward" or "reverse".
        asked: the settings in force.
        reading: the pipeline's numbers.
        since: the direction's record: since when, and from what base, `achieved` is measured.
        kinds: of the stages.
        rate_bps: what was measured while there was a queue.
        started_ns: when the run began, on the clock of `since`.
        waiting: when an update will take force, and what it asks for.
        faults: frames that were not where they should have been.
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
    offered = counters.received - sum(drops[cause][0] for cause in UNADMITTED) - since.since_offered
    lost = drops[DropCause.LOSS][0] - since.since_lost
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
            "limit": since.late_limit_ns,
            "packets": int(late.sum()),
            "late": since.late,
            "judgement": punctuality(since.late, int(late.sum())),
            "clamped": counters.clamped,
            "clamped_max_ns": counters.clamped_ns,
            "clamped_late": since.moved_late,
            "unstamped": counters.unstamped,
        },
        since_update_ns=max(since.since_ns - started_ns, 0) if since.updates else None,
        update_waiting=None if waiting is None else {"at_ns": max(waiting[0] - started_ns, 0), "asked": waiting[1]},
        checksums={"finished_checksum": counters.checksums, "unfinished_checksum": counters.unfinished},
        frames=faults._asdict(),
    )


def _stage(kind: StageKind, state: Any) -> dict[str, Any]:
    fields = ("packets", "bytes", "peak_packets", "peak_bytes") if kind.holding else ("passed", "dropped")
    return {"name": kind.name} | {name: getattr(state, name) for name in (*fields, *kind.reported)}
