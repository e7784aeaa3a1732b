"""Stages that give each verdict, for the tests; a module of their own, because pipelines import their stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xskit.engine.packets import DropCause
from xskit.engine.stage import Passing, StageKind
from xskit.engine.verdict import DUPLICATE, MARK, PASS, Verdict, drop, inject
from xskit.jit import inlined
from xskit.memory import I64, Record

DROPPED = drop(DropCause.LOSS)
REPLACED = inject(DropCause.LOSS)
INJECTED_BYTES = 77


class Choice(Record):
    """What to say of every third packet, and the exit for all."""

    verdict: I64
    egress: I64


@inlined
def step(state: Passing, parameters: Choice, random: Any, packet: Any, time_ns: int) -> int:
    packet.egress = parameters.egress
    state.passed += 1
    if state.passed % 3 != 0:
        return PASS
    if parameters.verdict == REPLACED:
        packet.length = 77
    return parameters.verdict


KIND = StageKind(
    name="every third",
    module=__name__,
    holding=False,
    parameters=Choice,
    state=Passing,
    verdicts=frozenset({Verdict.DROP, Verdict.MARK, Verdict.DUPLICATE, Verdict.INJECT}),
)


@dataclass(frozen=True)
class EveryThird:
    verdict: int = PASS
    egress: int = 0
    kind: StageKind = field(default=KIND)

    def parameters(self) -> dict[str, int]:
        return {"verdict": self.verdict, "egress": self.egress}


__all__ = ["DROPPED", "DUPLICATE", "INJECTED_BYTES", "MARK", "REPLACED", "EveryThird"]
