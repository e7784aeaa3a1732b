"""What an experiment is, and what comes out of one."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from xskit.bench.document import Cell, Plot, Table
from xskit.bench.in_guest import COUNTED, EMULATED, counted_instructions, emulated
from xskit.bench.others import BUSY, OtherPrograms
from xskit.bench.results import parsed
from xskit.errors import UsageError, XskitError

__all__ = ["SCHEMA", "Experiment", "ExperimentResult", "Options", "ResultError", "unless_emulated"]

SCHEMA = 1


class ResultError(XskitError):
    """Results cannot be read or written."""


@dataclass(frozen=True)
class Options:
    """How to run it.

    Attributes:
        short: seconds instead of minutes: what it says is the same, but for the digits.
        seconds: of one measurement.
        repeat: measurements of each, in turns.
        interfaces: to measure on, where the experiment takes any; none: veth pairs are made.
        far: what they are wired to, to be driven from there; none: whoever else drives them.
        say: told what is going on.
    """

    short: bool = False
    seconds: float = 2.0
    repeat: int = 7
    interfaces: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    say: Callable[[str], None] = field(default=lambda line: None, compare=False)

    @classmethod
    def choose(cls, *, short: bool, **others: Any) -> Options:
        """With the times that go with short or long."""
        return cls(short=short, seconds=0.3 if short else 2.0, repeat=3 if short else 7, **others)

    def with_times(self, seconds: float | None, repeat: int | None) -> Options:
        """These, with other times where they are given. Raises UsageError."""
        if (seconds is not None and not 0.01 <= seconds <= 3600) or (repeat is not None and not 1 <= repeat <= 1000):
            raise UsageError("measurements of 0.01 to 3600 seconds, 1 to 1000 of each", remedy="--seconds 2 --repeat 7")
        return replace(self, seconds=seconds or self.seconds, repeat=repeat or self.repeat)


@dataclass
class ExperimentResult:
    """What one run on one kernel has found.

    Attributes:
        tables: in the order of the published ones.
        findings: sentences, each made of the numbers.
    """

    experiment: str
    where: str
    tables: list[Table] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    short: bool = False
    emulated: bool = False
    counted: bool = False
    started: str = ""
    command: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    others_cpus: float = 0.0
    """CPUs that other programs took in the second before it began: where that is much, rates are too low."""
    schema: int = SCHEMA

    @classmethod
    def begin(cls, experiment: str, options: Options, what: str = "veth") -> ExperimentResult:
        """Of this machine, from now on."""
        from xskit.bench.machine import describe_machine

        return cls(
            experiment=experiment,
            where=f"Linux {platform.release()}, {what}",
            short=options.short,
            emulated=emulated(),
            counted=counted_instructions(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            command=["xskit", *sys.argv[1:]],
            machine=describe_machine(),
            others_cpus=round(_others_cpus(), 2),
        )

    def headline(self) -> str:
        """The first line of a report: where, and what its figures mean."""
        if self.emulated:
            return f"{self.where}. {COUNTED if self.counted else EMULATED}"
        cpu = self.machine.get("cpu", {})
        busy = self.others_cpus > BUSY
        shared = f", SHARED: others took {self.others_cpus:.1f} CPUs before it began, so rates are too low" * busy
        return f"{self.where}, {cpu.get('model', 'unknown CPU')}, {cpu.get('allowed', '?')} CPUs{shared}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"kind": "xskit experiment", **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ExperimentResult:
        """What as_dict gave. Raises KeyError, TypeError or ValueError where it is something else."""
        if values["kind"] != "xskit experiment" or values["schema"] > SCHEMA:
            raise ValueError("another schema")
        return TypeAdapter(cls).validate_python(values)

    @classmethod
    def load_all(cls, path: Path) -> list[ExperimentResult]:
        """Read what `run --json` wrote.

        Raises:
            ResultError: it cannot be read, or is something else.
        """
        otherwise = ResultError(
            f"{path} is not what xskit experiment run --json writes",
            remedy=f"xskit experiment run frame-sizes --json > {path}",
        )
        listed = TypeAdapter(list[dict[str, Any]])
        return parsed(path, lambda found: list(map(cls.from_dict, listed.validate_python(found))), otherwise)


def unless_emulated(*figures: float | None) -> list[Cell]:
    """Times and rates for a row of a table; an emulated guest gives no values."""
    return [None if emulated() else figure for figure in figures]


def _others_cpus() -> float:
    """A second of looking: what ran before is still in the load average for minutes."""
    others = OtherPrograms()
    time.sleep(1.0)
    return others.cpus()


@dataclass(frozen=True)
class Experiment:
    """A published experiment.

    Attributes:
        name: of the command.
        title: in a few words.
        source: the thread: list, subject, dates, people.
        question: what it was about.
        published: its tables.
        conditions: of the published figures.
        comparable: what of ours can be held against it.
        different: what cannot, and why.
        module: that does it, on this kernel.
        in_guests: what a run in guests is good for: "counts" where instructions of a packet are counted, "function"
            where only what happens counts.
        kernels: that the whole experiment wants in guests.
        guest_nics: NICs of a guest; 0 and 1 are on one wire, 2 and 3 on the next.
        guest_interfaces: that it measures on in a guest; none: veth.
        guest_far: what those are wired to.
        guest_offloads: the NICs have checksums and scatter-gather, and no wire.
    """

    name: str
    title: str
    source: str
    question: str
    published: Sequence[Table]
    conditions: str
    comparable: str
    different: str
    module: str
    in_guests: str = "function"
    kernels: Sequence[str] = ()
    guest_nics: int = 0
    guest_interfaces: Sequence[str] = ()
    guest_far: Sequence[str] = ()
    guest_offloads: bool = False

    def run(self, options: Options) -> ExperimentResult:
        """Do it, on this kernel. Raises XskitError."""
        module = import_module(f"xskit.experiments.{self.module}")
        result: ExperimentResult = module.run(options)
        return result
