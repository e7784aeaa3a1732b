"""Delay without order: as `delay`, but a packet that drew a shorter delay overtakes the one ahead of it.

Order is that of the timing wheel's ticks, so what differs by less than a tick stays in order. A delay beyond the
horizon that was planned, which only the far tail of a normal distribution can reach, is cut to the horizon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xskit.engine.random import Random
from xskit.engine.stage import Capacity, Holding, StageKind
from xskit.engine.verdict import HOLD, PASS
from xskit.engine.wheel import Wheel, memory_for, place, ticks_for, wheel_at
from xskit.engine.wheel import floor_time as wheel_floor_time
from xskit.engine.wheel import next_time as wheel_next_time
from xskit.engine.wheel import pop as wheel_pop
from xskit.engine.wheel import push as wheel_push
from xskit.engine.wheel import span as wheel_span
from xskit.jit import i64, inlined
from xskit.memory import I64, record_view, size_of
from xskit.stages.delay import Delay, Parameters, departure
from xskit.xsk.path.lines import packet_line


class State(Holding):
    """A timing wheel."""

    last_ns: I64  # the latest departure handed on: what follows sees times that never fall
    wheel: I64


@inlined
def push(
    state: State, parameters: Parameters, random: Random, table: int, handle: int, length: int, time_ns: int
) -> int:
    """Hold a packet. A delay never drops."""
    wheel = wheel_at(state.wheel)
    wheel_push(wheel, table, min(departure(parameters, random, time_ns), time_ns + wheel_span(wheel)), handle)
    state.packets += 1
    state.bytes += length
    state.peak_packets = max(state.peak_packets, state.packets)
    state.peak_bytes = max(state.peak_bytes, state.bytes)
    return HOLD


@inlined
def next_time(state: State) -> int:
    """When the first packet may leave: the end of its tick."""
    return wheel_next_time(wheel_at(state.wheel))


@inlined
def final(state: State, until_ns: int) -> int:
    """What is still in its tick may leave with an earlier time than `until_ns`."""
    return min(until_ns, wheel_floor_time(wheel_at(state.wheel)) - 1)


@inlined
def pop(state: State, parameters: Parameters, random: Random, table: int) -> tuple[int, int, int, int]:
    """Let the first packet go."""
    handle = wheel_pop(wheel_at(state.wheel), table)
    packet = packet_line(table, handle)
    length = i64(packet.length)
    state.packets -= 1
    state.bytes -= length
    state.last_ns = max(state.last_ns, packet.time_ns)
    return handle, length, state.last_ns, PASS


_WHEEL_BYTES = (size_of(Wheel) + 63) // 64 * 64


def _memory(capacity: Capacity) -> int:
    return _WHEEL_BYTES + memory_for(ticks_for(capacity.horizon_ns)[0])


def _prepare(state: Any, address: int, capacity: Capacity) -> None:
    buckets, shift = ticks_for(capacity.horizon_ns)
    place(record_view(Wheel, address), address + _WHEEL_BYTES, buckets, shift)
    state.wheel = address


KIND = StageKind(
    name="delay (free order)",
    module=__name__,
    holding=True,
    parameters=Parameters,
    state=State,
    has_final=True,
    memory=_memory,
    prepare=_prepare,
)


@dataclass(frozen=True)
class FreeDelay(Delay):
    """One-way delay with jitter that reorders. Attributes as in Delay."""

    @property
    def kind(self) -> StageKind:
        """What the engine compiles."""
        return KIND
