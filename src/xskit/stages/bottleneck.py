"""The bottleneck: packets leave one after the other, each taking its size / rate; what waits is a queue.

This file is the server, which every queue discipline of `queues/` shares: it says how long the packet at the head
takes, and when it is done. A changed rate applies to what is queued and to what is left of the packet being sent.

The time of a byte is a fixed-point number with as many binary places as fit: 44 significant bits at any rate, rounded
up. What is less than a nanosecond is carried from packet to packet, so rounding never adds up: the rate is kept to
1 part in 10**13. At a change of rate what is left is cut to whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from xskit.engine.packets import INFINITE_NS
from xskit.engine.stage import Holding, StageKind
from xskit.jit import inlined
from xskit.memory import I64, Record
from xskit.units import QueueLimit

COST_BITS = 45
"""Significant bits of a byte's cost: packets of 2**17 bytes cannot overflow 63."""
MOST_PLACES = 60


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

    rate_bps: I64  # 0: no bottleneck
    cost: I64  # 2**-places ns a byte; 0 without a bottleneck
    places: I64
    overhead: I64  # bytes added to each packet's length
    minimum: I64  # a shorter packet counts as this, before overhead


class Service(Holding):
    """The packet being sent and the time spent so far."""

    departure_ns: I64  # when the packet at the head has left, or the last one had
    fraction: I64  # 2**-places ns beyond departure_ns
    wire_bytes: I64  # of all packets here, as the rate counts them
    busy_ns: I64  # total time of service given out
    idle_starts: I64  # how often a packet found the bottleneck idle


@inlined
def wire_length(server: Server, length: int) -> int:
    """A packet's bytes as the rate counts them."""
    return max(length, server.minimum) + server.overhead


@inlined
def begin(service: Service, server: Server, wire_bytes: int, time_ns: int) -> None:
    """An idle bottleneck starts to send a packet: at once, or within this nanosecond when it has just become idle."""
    if time_ns > service.departure_ns:
        service.fraction = 0
        service.departure_ns = time_ns
    service.idle_starts += 1
    proceed(service, server, wire_bytes)


@inlined
def proceed(service: Service, server: Server, wire_bytes: int) -> None:
    """The next packet follows at once: it leaves its own time after `departure_ns`."""
    spent = wire_bytes * server.cost + service.fraction
    whole_ns = spent >> server.places
    service.fraction = spent - (whole_ns << server.places)
    service.departure_ns += whole_ns
    service.busy_ns += whole_ns


@inlined
def departure(service: Service) -> int:
    """When the packet at the head has left; INFINITE_NS when there is none."""
    if service.packets == 0:
        return INFINITE_NS
    return service.departure_ns


@inlined
def scale(value: int, numerator: int, denominator: int) -> int:
    """value * numerator // denominator, exactly, though the product may need more than 64 bits."""
    quotient = 0
    rest = 0
    for place in range(62, -1, -1):
        rest = 2 * rest + ((value >> place) & 1) * numerator
        quotient = 2 * quotient + rest // denominator
        rest %= denominator
    return quotient


@inlined
def change_rate(service: Service, old: Server, new: Server, time_ns: int) -> None:
    """What is left of the packet being sent goes on at the new rate."""
    if old.rate_bps == new.rate_bps:
        return
    service.fraction = 0
    left_ns = service.departure_ns - time_ns
    if service.packets != 0 and left_ns > 0:
        scaled_ns = scale(left_ns, old.rate_bps, new.rate_bps) if new.rate_bps != 0 else 0
        service.departure_ns += scaled_ns - left_ns
        service.busy_ns += scaled_ns - left_ns


def server_cost(rate_bps: int | None) -> tuple[int, int]:
    """(cost, places) of a byte at a rate, rounded up; (0, 0) for none."""
    if rate_bps is None:
        return 0, 0
    magnitude = ((8_000_000_000 << 64) // rate_bps).bit_length() - 64
    places = min(COST_BITS - magnitude, MOST_PLACES)
    return -((-8_000_000_000 << places) // rate_bps), places


def server_parameters(rate_bps: int | None, overhead: Overhead) -> dict[str, int]:
    """The fields of Server."""
    added, minimum = {Overhead.L1: (24, 60), Overhead.L2: (0, 0), Overhead.L3: (-14, 14)}[overhead]
    cost, places = server_cost(rate_bps)
    return {"rate_bps": rate_bps or 0, "cost": cost, "places": places, "overhead": added, "minimum": minimum}


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
