"""What a stage is to the engine: names of compiled functions, two records, and how much memory they need.

A *passing* stage decides at once. Its module has

    step(state, parameters, random, packet, time_ns) -> verdict

A *holding* stage keeps packets; it is an event queue that is advanced to a watermark. Its module has

    push(state, parameters, random, table, handle, length, time_ns) -> verdict
    next_time(state) -> time_ns of its next departure, INFINITE_NS when it holds nothing
    pop(state, parameters, random, table) -> (handle, length, time_ns, verdict) of that departure
    changed(state, old_parameters, new_parameters, time_ns), optional: called before new parameters take force
    final(state, until_ns) -> time_ns, optional: once advanced to until_ns, nothing will leave with that time or an
        earlier one; for a store that lets packets go later than at their time

and a state whose first fields are those of `Holding`. `push` answers HOLD, or DROP with a cause; verdict.py says what
each verdict means. A stage may also choose the port that a packet leaves by: `packet.egress`. Everything is compiled
into the pipeline; state and parameters are records that live in the pipeline's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from xskit.engine.verdict import Verdict
from xskit.memory import I64, Record


class Passing(Record):
    """The first fields of a passing stage's state."""

    passed: I64
    dropped: I64


class Holding(Record):
    """The first fields of a holding stage's state: what it holds now, and at most so far."""

    packets: I64
    bytes: I64
    peak_packets: I64
    peak_bytes: I64


class NoParameters(Record):
    """For stages without any."""

    unused: I64


@dataclass(frozen=True)
class Capacity:
    """What a pipeline is planned for.

    Attributes:
        packets: in memory at once, at most: every store has room for them.
        horizon_ns: the longest a packet may be held.
        frames: that packets may occupy; 0: as many as packets.
    """

    packets: int
    horizon_ns: int = 0
    frames: int = 0


@dataclass(frozen=True)
class StageKind:
    """A kind of stage: pure data, from which a pipeline is generated."""

    name: str
    module: str
    """Import path of the module with the compiled functions."""
    holding: bool
    parameters: type[Record]
    state: type[Record]
    verdicts: frozenset[Verdict] = frozenset({Verdict.DROP})
    """What step or pop may say besides PASS."""
    advance_first: bool = True
    """Holding: departures up to an arrival's time must happen before the arrival (its verdict looks at them)."""
    has_changed: bool = False
    has_final: bool = False
    memory: Callable[[Capacity], int] = lambda _capacity: 0
    """Bytes that an instance needs beside its records."""
    prepare: Callable[[Any, int, Capacity], None] = lambda _state, _address, _capacity: None
    """Make a zeroed state ready: (state, address of its memory, capacity)."""
    reported: tuple[str, ...] = field(default=())
    """Fields of the state that a report shows, besides those of Passing or Holding."""


class Stage(Protocol):
    """One stage as its owner describes it: a kind, and the values of its parameters record."""

    @property
    def kind(self) -> StageKind: ...

    def parameters(self) -> Mapping[str, int | float]:
        """Field by field, what goes into the parameters record."""
        ...
