"""A pipeline in virtual time: packets without a kernel, a clock that the caller moves.

The same compiled function as in a live run; used by tests, by simulation and by benchmarks of the engine alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from xskit.closing import Closing
from xskit.engine.fifo import Fifo, drop_head, fifo_at, head_packet, head_time
from xskit.engine.packets import DropCause, counters_at
from xskit.engine.pipe import pipe_at
from xskit.engine.pipeline import Pipeline
from xskit.engine.stage import Capacity, Stage
from xskit.jit import as_i64, call_pointer, compiled, inlined
from xskit.memory import Region
from xskit.xsk.path.books import count_drop
from xskit.xsk.path.lines import forget_packet, packet_line
from xskit.xsk.path.pool import FREE, HELD, give_packet, memory_at, move, pool_at, take_frame
from xskit.xsk.path.receive import ARRIVAL_BYTES, arrival_at
from xskit.xsk.path.table import FramePool, PacketTable

MEMORY_FULL = int(DropCause.MEMORY_FULL)


class Departure(NamedTuple):
    """A packet that came out: its number in order of arrival, its logical time and its length."""

    number: int
    time_ns: int
    length: int


class VirtualPipeline(Closing):
    """Feed arrivals, advance the watermark, read departures.

    Args:
        stages: in the order in which packets meet them.
        packets: that can be inside at once; one more is dropped (MEMORY_FULL).
        horizon_ns: the longest a packet may be held.
        seed, name: of the random streams.
    """

    def __init__(
        self, stages: Sequence[Stage], *, packets: int = 4096, horizon_ns: int = 0, seed: int = 0, name: str = ""
    ) -> None:
        self.table = PacketTable(packets)
        self.pool = FramePool(self.table, 0, packets)
        self.pipeline = Pipeline(
            stages,
            pool=self.pool,
            capacity=Capacity(packets, horizon_ns),
            seed=seed,
            name=name,
        )
        self.next_ns = 0
        self._number = 0
        self._room = 256
        self._memory = Region(self._room * (ARRIVAL_BYTES + 24))

    def run(self, arrivals: Iterable[tuple[int, int]], until_ns: int) -> list[Departure]:
        """Feed (time_ns, length) in order of time, advance to `until_ns`, and take out what has left by then."""
        departures: list[Departure] = []
        batch: list[tuple[int, int]] = []
        for arrival in arrivals:
            if len(batch) >= min(self._room, self.pool.view.count):  # what has left by now makes room
                departures += self._batch(batch, arrival[0])
                batch.clear()
            batch.append(arrival)
        return departures + self._batch(batch, until_ns)

    def _batch(self, batch: Sequence[tuple[int, int]], until_ns: int) -> list[Departure]:
        memory = self._memory.address
        inputs = self._memory.array(self._room * 3, np.int64).reshape(-1, 3)
        for row, (time_ns, length) in enumerate(batch):
            inputs[row] = (time_ns, self._number, length)
            self._number += 1
        self.next_ns = feed(self.pipeline.run, self.pipeline.block, memory, len(batch), until_ns)
        results = memory + self._room * ARRIVAL_BYTES
        found: list[Departure] = []
        while True:
            count = drain(self.pipeline.block, results, self._room)
            rows: Any = self._memory.array(count * 3, np.int64, offset=results - memory).reshape(-1, 3).tolist()
            found += [Departure(number, time_ns, length) for time_ns, number, length in rows]
            if count < self._room:
                return found

    def close(self) -> None:
        """Give the memory back."""
        self.pipeline.close()
        self.pool.close()
        self.table.close()
        self._memory.close()


@compiled("int64(int64, int64, int64, int64, int64)")
def feed(run: int, block: int, batch: int, count: int, until_ns: int) -> int:
    """Give packets the frames they need, count them in, and run the pipeline; returns its next event.

    Entries of the batch carry the packet's number where a live batch carries its handle.
    """
    pipe = pipe_at(block)
    pool = pool_at(pipe.pool)
    counters = counters_at(pipe.counters)
    admitted = 0
    for row in range(count):
        arrival = arrival_at(batch + row * ARRIVAL_BYTES)
        counters.received += 1
        counters.received_bytes += arrival.length
        counters.in_flight += 1
        counters.in_flight_bytes += arrival.length
        if pool.count == 0:
            count_drop(counters, MEMORY_FULL, arrival.length)
            continue
        handle = take_frame(pool)
        packet = packet_line(pipe.table, handle)
        move(pool, packet, handle, FREE, HELD)
        forget_packet(packet)
        packet.address = arrival.handle
        packet.arrived_ns = arrival.time_ns
        packet.length = arrival.length
        packet.span = arrival.length
        packet.frames = 1
        counters.in_flight_frames += 1
        entry = arrival_at(batch + admitted * ARRIVAL_BYTES)
        entry.time_ns = arrival.time_ns
        entry.length = arrival.length
        entry.handle = handle
        admitted += 1
    return call_pointer(run, block, batch, admitted, until_ns)


@inlined
def _leave(block: int, exit_fifo: Fifo) -> int:
    """Take the first packet of the exit FIFO out, as sent; returns its number."""
    pipe = pipe_at(block)
    counters = counters_at(pipe.counters)
    entry = head_packet(exit_fifo)
    drop_head(exit_fifo)
    handle = entry & 0xFFFF_FFFF
    number = packet_line(pipe.table, handle).address
    counters.sent += 1
    counters.sent_bytes += entry >> 32
    counters.in_flight -= 1
    counters.in_flight_bytes -= entry >> 32
    counters.in_flight_frames -= give_packet(memory_at(pipe.memory), handle)
    return number


@compiled("int64(int64, int64, int64)")
def drain(block: int, results: int, room: int) -> int:
    """Write up to `room` departures as (time_ns, number, length); returns how many."""
    exit_fifo = fifo_at(pipe_at(block).exits)
    count = 0
    rows = as_i64(results)
    while count < room and exit_fifo.head != exit_fifo.tail:
        rows[3 * count] = head_time(exit_fifo)
        rows[3 * count + 2] = head_packet(exit_fifo) >> 32
        rows[3 * count + 1] = _leave(block, exit_fifo)
        count += 1
    return count
