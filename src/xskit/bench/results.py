"""What came out: runs, cases, and the whole session, as JSON and back.

Session   machine, versions, command, conditions
  CaseResult   one case: the mode really in use, its runs
    Run       one run: samples, counters, metrics
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from xskit.bench.in_guest import COUNTED, VIRTUAL
from xskit.bench.inference import Spread, spread
from xskit.bench.metrics import COUNTED_OF_MODE, OF_MODE, Sample
from xskit.bench.settings import Case, labelled
from xskit.errors import UsageError, XskitError
from xskit.files import ReadError, read

__all__ = ["SCHEMA", "BindModeInUse", "CaseResult", "FileError", "Run", "Session", "parsed"]

SCHEMA = 1

_NUMBERS = re.compile(r"\[([-+0-9.eE,\s]+)\]")
"""A list of numbers: put on one line."""


MOST_BYTES = 1 << 28
T = TypeVar("T")


class FileError(XskitError):
    """A file of results cannot be read or written."""


@dataclass
class BindModeInUse:
    """What was really got, which need not be what was asked for."""

    xdp: str
    """native, generic, or none where nothing is received."""
    zero_copy: bool
    multi_buffer: bool
    transmit_budget: int | None
    why: list[str] = field(default_factory=list)
    """Why better was not to be had, a sentence each."""

    def __str__(self) -> str:
        parts = [self.xdp] if self.xdp != "none" else []
        return ", ".join([*parts, "zero copy" if self.zero_copy else "copy"])


@dataclass
class Run:
    """One run of a case. Counters are those of the whole run, metrics those of its steady part."""

    repeat: int
    started: str
    seconds: float
    metrics: dict[str, float]
    counts: dict[str, int]
    """Of the sockets: received, received_bytes, received_frames, sent, sent_bytes, refused."""
    kernel: dict[str, int]
    """XDP_STATISTICS."""
    calls: dict[str, int]
    """System calls, under xdpsock's names."""
    far: dict[str, int]
    cpu_ns: int
    busy_ns: int
    warm_up_seconds: float
    samples: list[Sample]
    histogram: dict[str, int] = field(default_factory=dict)
    """Round trips: bucket number -> count (engine/histogram.py)."""
    details: dict[str, float] = field(default_factory=dict)
    """Of loss, latency and cycles."""
    interrupts: int | None = None
    other_cpus: float = 0.0
    """CPUs that other programs took meanwhile."""
    notes: list[str] = field(default_factory=list)


@dataclass
class CaseResult:
    """All runs of one case."""

    case: Case
    mode: BindModeInUse
    interfaces: list[dict[str, Any]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def values(self, metric: str) -> list[float]:
        """One value a run; runs that have none are left out."""
        return [run.metrics[metric] for run in self.runs if metric in run.metrics]

    @property
    def other_cpus(self) -> float:
        """CPUs that other programs took meanwhile, the mean over all runs."""
        seconds = sum(run.seconds for run in self.runs)
        return sum(run.other_cpus * run.seconds for run in self.runs) / seconds if seconds else 0.0

    def by_repeat(self, metric: str) -> dict[int, float]:
        """Repeat -> value."""
        return {run.repeat: run.metrics[metric] for run in self.runs if metric in run.metrics}

    def spread(self, metric: str) -> Spread | None:
        """Median, interval, outliers; None without values."""
        values = self.values(metric)
        return spread(values) if values else None

    def median(self, metric: str) -> float | None:
        """None without values."""
        values = self.values(metric)
        return statistics.median(values) if values else None

    def metrics(self) -> list[str]:
        """The mode's metrics that have values."""
        names = dict.fromkeys((*OF_MODE[self.case.mode], *COUNTED_OF_MODE[self.case.mode]))
        return [name for name in names if self.values(name)]

    @property
    def main_metric(self) -> str:
        """The one that stands for the mode."""
        first = OF_MODE[self.case.mode][0]
        return next((name for name in (first, *COUNTED_OF_MODE[self.case.mode]) if self.values(name)), first)

    def is_known(self, until: float | None) -> bool:
        """The ends of the interval of the main metric are within this fraction of its median; None asks for nothing."""
        if until is None:
            return True
        found = self.spread(self.main_metric)
        return found is not None and found.width is not None and found.width <= until


@dataclass
class Session:
    """Everything that one command measured.

    Attributes:
        machine: this machine; of guests, `guests` says what they were: by kernel, each with its accelerator, whether
            it was counted in instructions, its NIC model ("" where it had none), and its own machine.
    """

    machine: dict[str, Any]
    command: list[str]
    conditions: dict[str, Any]
    started: str
    outcomes: list[CaseResult] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    guests: dict[str, dict[str, Any]] = field(default_factory=dict)
    schema: int = SCHEMA

    def is_counted(self, case: Case) -> bool:
        """Whether instructions of the case were counted, so that neither time nor rate is a result."""
        return bool(self.guests.get(case.kernel, {}).get("counted"))

    def machine_of(self, case: Case) -> dict[str, Any]:
        """Where the case ran."""
        facts: dict[str, Any] = self.guests[case.kernel]["machine"] if case.kernel in self.guests else self.machine
        return facts

    def headline(self) -> str:
        """The first line of a report: what its figures mean; "" where they are what they seem."""
        if not self.guests:
            return ""
        kernels = ", ".join(guest["machine"]["kernel"]["release"] for guest in self.guests.values())
        nic = "".join(f", {name}" for name in dict.fromkeys(one["nic"] for one in self.guests.values()) if name)
        if any(guest["counted"] for guest in self.guests.values()):
            return f"Guests: Linux {kernels}{nic}. {COUNTED}"
        return f"Guests: Linux {kernels}{nic}. {VIRTUAL}"

    def labels(self) -> list[dict[str, Any]]:
        """What tells the cases apart, a dictionary each."""
        return labelled([outcome.case for outcome in self.outcomes])

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what was measured, and the summary of each metric beside it."""
        cases = []
        for outcome in self.outcomes:
            summary = {name: asdict(found) for name in outcome.metrics() if (found := outcome.spread(name))}
            cases.append(
                {
                    "case": outcome.case.as_dict(),
                    "mode_in_use": asdict(outcome.mode),
                    "interfaces": outcome.interfaces,
                    "summary": summary,
                    "runs": [{**asdict(run), "samples": _columns(run.samples)} for run in outcome.runs],
                }
            )
        return {
            "schema": self.schema,
            "kind": "xskit bench",
            "started": self.started,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "command": self.command,
            "conditions": self.conditions,
            "machine": self.machine,
            **({"meaning": self.headline(), "guests": self.guests} if self.guests else {}),
            "cases": cases,
        }

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        return _NUMBERS.sub(
            lambda found: f"[{' '.join(found[1].split())}]", json.dumps(self.as_dict(), indent=1, allow_nan=False)
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Session:
        """Raises KeyError, TypeError or ValueError where it is not what as_dict gave."""
        if values["kind"] != "xskit bench" or values["schema"] > SCHEMA:
            raise ValueError("another schema")
        outcomes = []
        for found in values["cases"]:
            runs = []
            for run in found["runs"]:
                names, columns = run["samples"].keys(), run["samples"].values()
                samples = [Sample(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
                runs.append(Run(**{**run, "samples": samples}))
            mode = BindModeInUse(**found["mode_in_use"])
            outcomes.append(CaseResult(Case.from_dict(found["case"]), mode, found["interfaces"], runs))
        own = {name: values[name] for name in ("machine", "command", "conditions", "started", "seconds", "interrupted")}
        return cls(**own, outcomes=outcomes, guests=values.get("guests", {}))

    @classmethod
    def load(cls, path: Path) -> Session:
        """Read a file that --json wrote.

        Raises:
            FileError: there is none, or it is something else.
        """
        otherwise = FileError(
            f"{path} is not what xskit bench --json writes, or a later version wrote it",
            remedy="xskit bench rxdrop --report NEW.json, and compare that",
        )
        return parsed(path, cls.from_dict, otherwise)


def parsed(path: Path, make: Callable[[Any], T], otherwise: XskitError) -> T:
    """What `make` makes of a file of JSON.

    Raises:
        XskitError: of the kind of `otherwise`: it cannot be read; or `otherwise` itself: it is something else, or of a
            case that cannot be.
    """
    try:
        return make(json.loads(read(path, MOST_BYTES)))
    except ReadError as error:
        raise type(otherwise)(error.cause, remedy=error.remedy) from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, UsageError) as error:
        raise otherwise from error


def _columns(samples: Sequence[Sample]) -> dict[str, list[int]]:
    """A list for each field."""
    return {one.name: [getattr(sample, one.name) for sample in samples] for one in fields(Sample)}
