"""Drop-tail: a packet that would push the queue over its limit is dropped as it comes.

The limit counts what waits and what is being sent. An idle bottleneck takes any packet, however small the limit.
"""

from __future__ import annotations

from xskit.engine.fifo import drop_head, fifo_at, head_packet, packet_at_position
from xskit.engine.fifo import push as fifo_push
from xskit.engine.packets import DropCause
from xskit.engine.random import Random
from xskit.engine.stage import StageKind
from xskit.engine.verdict import HOLD, PASS, drop
from xskit.jit import inlined
from xskit.memory import I64
from xskit.stages.delay import fifo_memory, prepare_fifo
from xskit.stages.server import Server, Service, begin, change_rate, departure, proceed, wire_length
from xskit.units import QueueLimit

QUEUE_FULL = drop(DropCause.QUEUE_FULL)
UNLIMITED = 1 << 60


class Parameters(Server):
    """The server's, and how much may be queued."""

    limit_packets: I64
    limit_bytes: I64  # as the rate counts them


class State(Service):
    """The server's, and the FIFO."""

    dropped: I64
    fifo: I64


@inlined
def push(
    state: State, parameters: Parameters, random: Random, table: int, handle: int, length: int, time_ns: int
) -> int:
    """Queue a packet, or drop it."""
    wire_bytes = wire_length(parameters, length)
    if state.packets == 0:
        begin(state, parameters, wire_bytes, time_ns)
    elif state.packets + 1 > parameters.limit_packets or state.wire_bytes + wire_bytes > parameters.limit_bytes:
        state.dropped += 1
        return QUEUE_FULL
    fifo_push(fifo_at(state.fifo), time_ns, handle, length)
    state.packets += 1
    state.bytes += length
    state.wire_bytes += wire_bytes
    state.peak_packets = max(state.peak_packets, state.packets)
    state.peak_bytes = max(state.peak_bytes, state.bytes)
    return HOLD


@inlined
def next_time(state: State) -> int:
    """When the packet at the head has left."""
    return departure(state)


@inlined
def pop(state: State, parameters: Parameters, random: Random, table: int) -> tuple[int, int, int, int]:
    """The packet at the head has left; the next one begins at that moment."""
    fifo = fifo_at(state.fifo)
    left_ns = state.departure_ns
    packet = head_packet(fifo)
    drop_head(fifo)
    length = packet >> 32
    state.packets -= 1
    state.bytes -= length
    state.wire_bytes -= wire_length(parameters, length)
    if state.packets != 0:
        proceed(state, parameters, wire_length(parameters, head_packet(fifo) >> 32))
    return packet & 0xFFFF_FFFF, length, left_ns, PASS


@inlined
def changed(state: State, old: Parameters, new: Parameters, time_ns: int) -> None:
    """New rate, overhead or limit: nothing that is queued is dropped for it."""
    change_rate(state, old, new, time_ns)
    if old.overhead != new.overhead or old.minimum != new.minimum:
        fifo = fifo_at(state.fifo)
        total = 0
        for position in range(fifo.head, fifo.tail):
            total += wire_length(new, packet_at_position(fifo, position) >> 32)
        state.wire_bytes = total


KIND = StageKind(
    name="bottleneck",
    module=__name__,
    holding=True,
    parameters=Parameters,
    state=State,
    has_changed=True,
    memory=fifo_memory,
    prepare=prepare_fifo,
    reported=("dropped", "busy_ns", "idle_starts"),
)


def limits(limit: QueueLimit, rate_bps: int | None) -> dict[str, int]:
    """The limit fields of Parameters; time is turned into bytes at the current rate."""
    if limit.unit == "packets":
        return {"limit_packets": limit.value, "limit_bytes": UNLIMITED}
    if limit.unit == "bytes":
        return {"limit_packets": UNLIMITED, "limit_bytes": limit.value}
    if rate_bps is None:
        return {"limit_packets": UNLIMITED, "limit_bytes": UNLIMITED}
    return {"limit_packets": UNLIMITED, "limit_bytes": min(limit.value * rate_bps // 8_000_000_000, UNLIMITED)}
