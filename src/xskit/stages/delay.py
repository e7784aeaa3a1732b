"""Delay: every packet is held for the one-way delay, plus jitter, and order is kept.

A packet leaves at its arrival at this stage + owd + jitter, but never before the packet ahead of it. With jitter
that rule pushes the mean up: a packet that drew a short delay behind one that drew a long one waits for it. To let
packets overtake instead, use `delay_free`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from xskit.engine.fifo import Fifo, drop_head, fifo_at, first_time, head_packet, head_time
from xskit.engine.fifo import push as fifo_push
from xskit.engine.random import Random, normal, uniform
from xskit.engine.sizes import ENTRY_BYTES, capacity_for
from xskit.engine.stage import Capacity, Holding, StageKind
from xskit.engine.verdict import HOLD, PASS
from xskit.jit import i64, inlined
from xskit.memory import I64, Record, record_view, size_of


class Jitter(IntEnum):
    """How the jitter is distributed."""

    NONE = 0
    UNIFORM = 1
    """Evenly between owd - jitter and owd + jitter."""
    NORMAL = 2
    """Around owd with standard deviation jitter; what would fall below zero counts as zero."""


class Parameters(Record):
    """Times in ns."""

    owd_ns: I64
    jitter_ns: I64
    distribution: I64


class State(Holding):
    """A FIFO of departures that never fall."""

    last_ns: I64  # the latest departure so far
    fifo: I64


@inlined
def departure(parameters: Parameters, random: Random, time_ns: int) -> int:
    """Arrival + owd + jitter, never before the arrival. Draws only where there is jitter."""
    due = time_ns + parameters.owd_ns
    if parameters.distribution == 1:
        due += i64(parameters.jitter_ns * (2.0 * uniform(random) - 1.0))
    elif parameters.distribution == 2:
        due += i64(parameters.jitter_ns * normal(random))
    return max(due, time_ns)


@inlined
def push(
    state: State, parameters: Parameters, random: Random, table: int, handle: int, length: int, time_ns: int
) -> int:
    """Hold a packet. A delay never drops."""
    due = max(departure(parameters, random, time_ns), state.last_ns)
    state.last_ns = due
    fifo_push(fifo_at(state.fifo), due, handle, length)
    state.packets += 1
    state.bytes += length
    state.peak_packets = max(state.peak_packets, state.packets)
    state.peak_bytes = max(state.peak_bytes, state.bytes)
    return HOLD


@inlined
def next_time(state: State) -> int:
    """The departure of the first packet."""
    return head_time(fifo_at(state.fifo))


@inlined
def pop(state: State, parameters: Parameters, random: Random, table: int) -> tuple[int, int, int, int]:
    """Let the first packet go."""
    fifo = fifo_at(state.fifo)
    due = first_time(fifo)
    packet = head_packet(fifo)
    drop_head(fifo)
    length = packet >> 32
    state.packets -= 1
    state.bytes -= length
    return packet & 0xFFFF_FFFF, length, due, PASS


_FIFO_BYTES = (size_of(Fifo) + 63) // 64 * 64


def fifo_memory(capacity: Capacity) -> int:
    """Bytes of a FIFO with its record in front."""
    return _FIFO_BYTES + capacity_for(capacity.packets) * ENTRY_BYTES


def prepare_fifo(state: Any, address: int, capacity: Capacity) -> None:
    """Lay an empty FIFO into a holding stage's memory."""
    fifo = record_view(Fifo, address)
    fifo.entries = address + _FIFO_BYTES
    fifo.mask = capacity_for(capacity.packets) - 1
    state.fifo = address


KIND = StageKind(
    name="delay",
    module=__name__,
    holding=True,
    parameters=Parameters,
    state=State,
    advance_first=False,
    memory=fifo_memory,
    prepare=prepare_fifo,
)


@dataclass(frozen=True)
class Delay:
    """One-way delay with optional jitter, order kept.

    Attributes:
        owd_ns: one-way delay.
        jitter_ns: half width (uniform) or standard deviation (normal).
        distribution: of the jitter.
    """

    owd_ns: int = 0
    jitter_ns: int = 0
    distribution: Jitter = Jitter.NORMAL

    @property
    def kind(self) -> StageKind:
        """What the engine compiles."""
        return KIND

    def parameters(self) -> Mapping[str, int | float]:
        """The parameters record."""
        return {
            "owd_ns": self.owd_ns,
            "jitter_ns": self.jitter_ns,
            "distribution": int(self.distribution) if self.jitter_ns else int(Jitter.NONE),
        }
