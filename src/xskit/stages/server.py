"""The server of a bottleneck, which every queue discipline of `queues/` shares: when the packet at the head has left.

Packets leave one after the other, each taking its size / rate. A changed rate applies to what is queued and to what is
left of the packet being sent.

Time is exact: what a packet takes beyond whole nanoseconds is carried to the next one in units of 1 / rate ns, so no
rounding ever adds up, at any rate. At a change of rate what is left is cut to whole nanoseconds.
"""

from __future__ import annotations

from enum import IntEnum

from xskit.engine.packets import INFINITE_NS
from xskit.engine.stage import Holding
from xskit.jit import i64, inlined
from xskit.memory import F64, I64, Record
from xskit.stages import OVERHEAD_BYTES

BIT_NS = 1_000_000_000
"""A bit takes 10**9 / rate ns."""


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
    inverse: F64  # 1 / rate_bps; 0 without a bottleneck
    overhead: I64  # bytes added to each packet's length
    minimum: I64  # a shorter packet counts as this, before overhead


class Service(Holding):
    """The packet being sent and the time spent so far."""

    departure_ns: I64  # when the packet at the head has left, or the last one had
    fraction: I64  # 1 / rate ns beyond departure_ns
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
    """The next packet follows at once: it leaves its own time after `departure_ns`.

    The quotient by way of the inverse costs no division. For packets below 2**18 bytes `spent` stays below 2**52, where
    it is right or one too small: no two roundings reach the next whole number, which is 1 / rate away at least.
    """
    rate_bps = server.rate_bps
    if rate_bps == 0:
        return
    spent = wire_bytes * (8 * BIT_NS) + service.fraction
    whole_ns = i64(spent * server.inverse)
    rest = spent - whole_ns * rate_bps
    if rest >= rate_bps:
        whole_ns += 1
        rest -= rate_bps
    service.fraction = rest
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


def server_parameters(rate_bps: int | None, overhead: Overhead) -> dict[str, int | float]:
    """The fields of Server."""
    minimum = {Overhead.L1: 60, Overhead.L2: 0, Overhead.L3: 14}[overhead]
    inverse = 1.0 / rate_bps if rate_bps else 0.0
    return {
        "rate_bps": rate_bps or 0,
        "inverse": inverse,
        "overhead": OVERHEAD_BYTES[overhead.name],
        "minimum": minimum,
    }
