"""The bottleneck: packets leave one after the other, each taking its size / rate; what waits is a queue.

This file is the server, which every queue discipline of `queues/` shares: it says how long the packet at the head
takes, and when it is done. A changed rate applies to what is queued and to what is left of the packet being sent.
Time is kept in 2**-20 ns, so that rounding never adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from xskit.engine.packets import INFINITE_NS
from xskit.engine.stage import Holding, StageKind
from xskit.jit import i64, inlined
from xskit.memory import I64, Record
from xskit.units import QueueLimit

FRACTION_BITS = 20
FRACTION_MASK = (1 << FRACTION_BITS) - 1


class Overhead(IntEnum):
    """Which bytes of a packet the rate counts."""

    L1 = 1
    """The Ethernet wire: the frame, at least 60 bytes, + 24 (preamble, FCS, inter-frame gap)."""
    L2 = 2
    """The frame as a capture shows it: with its 14-byte header, without FCS."""
    L3 = 3
    """The IP packet: the frame less 14."""


class Server(Record):
    """How long a byte takes."""

    cost: I64  # 2**-20 ns a byte; 0: no bottleneck
    overhead: I64  # bytes added to each packet's length
    minimum: I64  # a shorter packet counts as this, before overhead


class Service(Holding):
    """The packet being sent and the time spent so far."""

    departure_ns: I64  # when the packet at the head has left
    fraction: I64  # 2**-20 ns beyond departure_ns
    wire_bytes: I64  # of all packets here, as the rate counts them
    busy_ns: I64  # total time of service given out
    idle_starts: I64  # how often a packet found the bottleneck idle


@inlined
def wire_length(server: Server, length: int) -> int:
    """A packet's bytes as the rate counts them."""
    return max(length, server.minimum) + server.overhead


@inlined
def begin(service: Service, server: Server, wire_bytes: int, time_ns: int) -> None:
    """An idle bottleneck starts to send a packet."""
    service.fraction = 0
    service.departure_ns = time_ns
    service.idle_starts += 1
    proceed(service, server, wire_bytes)


@inlined
def proceed(service: Service, server: Server, wire_bytes: int) -> None:
    """The next packet follows at once: it leaves its own time after `departure_ns`."""
    spent = wire_bytes * server.cost + service.fraction
    service.fraction = spent & FRACTION_MASK
    service.departure_ns += spent >> FRACTION_BITS
    service.busy_ns += spent >> FRACTION_BITS


@inlined
def departure(service: Service) -> int:
    """When the packet at the head has left; INFINITE_NS when there is none."""
    if service.packets == 0:
        return INFINITE_NS
    return service.departure_ns


@inlined
def change_rate(service: Service, old: Server, new: Server, time_ns: int) -> None:
    """What is left of the packet being sent goes on at the new rate."""
    if service.packets == 0 or old.cost == new.cost:
        return
    left = max(service.departure_ns - time_ns, 0)
    if old.cost != 0:
        scaled = i64(left * (new.cost / old.cost))
        service.departure_ns = time_ns + scaled
        service.busy_ns += scaled - left
    service.fraction = 0


def server_cost(rate_bps: int | None) -> int:
    """2**-20 ns a byte at a rate; 0 for none."""
    return 0 if rate_bps is None else max(round((8_000_000_000 << FRACTION_BITS) / rate_bps), 1)


def server_parameters(rate_bps: int | None, overhead: Overhead) -> dict[str, int]:
    """The fields of Server."""
    added, minimum = {Overhead.L1: (24, 60), Overhead.L2: (0, 0), Overhead.L3: (-14, 14)}[overhead]
    return {"cost": server_cost(rate_bps), "overhead": added, "minimum": minimum}


DEFAULT_QUEUE = QueueLimit(unit="ns", value=50_000_000)
"""50 ms of queue at the current rate."""


@dataclass(frozen=True)
class Bottleneck:
    """A rate with a drop-tail queue in front.

    Attributes:
        rate_bps: bit/s; None is unlimited.
        overhead: which bytes the rate counts.
        limit: of the queue.
    """

    rate_bps: int | None = None
    overhead: Overhead = Overhead.L2
    limit: QueueLimit = field(default=DEFAULT_QUEUE)

    @property
    def kind(self) -> StageKind:
        """What the engine compiles."""
        from xskit.stages.queues import droptail

        return droptail.KIND

    def parameters(self) -> Mapping[str, int | float]:
        """The parameters record."""
        from xskit.stages.queues import droptail

        return server_parameters(self.rate_bps, self.overhead) | droptail.limits(self.limit, self.rate_bps)
