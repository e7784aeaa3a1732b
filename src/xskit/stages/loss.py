"""Loss: each packet is lost with the same probability, whatever befell the others (Bernoulli)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xskit.engine.packets import DropCause
from xskit.engine.random import UNIT, Random, draw
from xskit.engine.stage import Passing, StageKind
from xskit.engine.verdict import PASS, drop
from xskit.jit import inlined
from xskit.memory import I64, Record
from xskit.xsk.path.lines import PacketLine

LOST = drop(DropCause.LOSS)


class Parameters(Record):
    """A packet is lost when its draw is below the threshold."""

    threshold: I64  # 0 .. UNIT


class State(Passing):
    """What happened so far."""


@inlined
def step(state: State, parameters: Parameters, random: Random, packet: PacketLine, time_ns: int) -> int:
    """One draw a packet, also at probability 0: changing the probability never shifts the stream."""
    if draw(random) < parameters.threshold:
        state.dropped += 1
        return LOST
    state.passed += 1
    return PASS


KIND = StageKind(name="loss", module=__name__, holding=False, parameters=Parameters, state=State)


@dataclass(frozen=True)
class Loss:
    """Bernoulli loss.

    Attributes:
        probability: 0 (nothing is lost) to 1 (a black hole).
    """

    probability: float = 0.0

    @property
    def kind(self) -> StageKind:
        """What the engine compiles."""
        return KIND

    def parameters(self) -> Mapping[str, int | float]:
        """The parameters record."""
        return {"threshold": round(self.probability * UNIT)}
