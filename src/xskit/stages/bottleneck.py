"""The bottleneck: a rate, and a queue of what waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xskit.engine.stage import StageKind
from xskit.stages import default_queue
from xskit.stages.queues import droptail
from xskit.stages.server import Overhead, server_parameters
from xskit.units import QueueLimit


@dataclass(frozen=True)
class Bottleneck:
    """A rate with a drop-tail queue in front.

    Attributes:
        rate_bps: bit/s; None is unlimited.
        overhead: which bytes the rate counts.
        limit: of the queue; None: `default_queue`, for packets of an MTU of 1500.
    """

    rate_bps: int | None = None
    overhead: Overhead = Overhead.L2
    limit: QueueLimit | None = None

    @property
    def kind(self) -> StageKind:
        """What the engine compiles."""
        return droptail.KIND

    def parameters(self) -> Mapping[str, int | float]:
        """The parameters record."""
        limit = self.limit or default_queue(self.rate_bps, overhead=self.overhead.name)
        return server_parameters(self.rate_bps, self.overhead) | droptail.limits(limit, self.rate_bps)
