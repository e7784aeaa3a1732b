"""A direction's pipeline: its stages, compiled into one function, and the memory they live in.

    arrivals -> [passing stages] -> holding stage -> [passing stages] -> holding stage -> ... -> exit FIFO

The function is generated as a module that names the stages' functions, compiled once and kept on disk under a hash of
everything it depends on. The worker calls it by pointer once a batch:

    run(block, batch, count, until_ns) -> time of the next event

It feeds `count` arrivals, in order of time and none later than `until_ns`, and then advances every holding stage to
the watermark `until_ns`. Departures land in the exit FIFO with their exact logical times. Live, in simulation and
in unit tests it is the same function; only who supplies the clock differs.

    the block (one arena)
    +------+------------------+--------------------+--------------------------+---------+----------+------+
    | Pipe | parameters now   | parameters to come | state + stream, a stage  | counters| drops    | histograms
    +------+------------------+--------------------+--------------------------+---------+----------+------+
"""

from __future__ import annotations

import hashlib
import linecache
import sys
import threading
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from xskit import jit
from xskit.closing import Closing
from xskit.engine import histogram
from xskit.engine.fifo import Fifo
from xskit.engine.fingerprint import fingerprint
from xskit.engine.packets import Counters
from xskit.engine.pipe import PARAMETERS_OFFSET, PENDING_OFFSET, Pipe, StageOffsets
from xskit.engine.random import Random, seed_stream
from xskit.engine.records import EXIT_BYTES, Exit
from xskit.engine.sizes import ENTRY_BYTES, capacity_for
from xskit.engine.source import pipeline_source
from xskit.engine.stage import Capacity, Stage, StageKind
from xskit.memory import Arena, array_at, record_view, size_of
from xskit.xsk.path.books import CAUSES, DROPS_BYTES
from xskit.xsk.path.table import FramePool

_importing = threading.Lock()
"""Of generated modules, which do not import each other: a thread must not see one that another has only begun."""


def plan_block(kinds: Sequence[StageKind], arena: Arena) -> tuple[list[StageOffsets], int]:
    """Reserve head, parameters twice, states and streams; returns the places and the bytes of all parameters."""
    arena.reserve(PARAMETERS_OFFSET)
    sizes = [(size_of(kind.parameters) + 63) // 64 * 64 for kind in kinds]
    total = sum(sizes)
    first = arena.reserve(total) if total else PARAMETERS_OFFSET
    if total:
        arena.reserve(total)
    places = []
    for kind, size in zip(kinds, sizes, strict=True):
        places.append(StageOffsets(first, arena.reserve(size_of(kind.state)), arena.reserve(size_of(Random))))
        first += size
    return places, total


def compile_pipeline(kinds: Sequence[StageKind]) -> int:
    """The address of the run function for these kinds of stages in this order; from the cache where it can be."""
    places, parameters_bytes = plan_block(kinds, Arena())
    text = pipeline_source(kinds, places, parameters_bytes)
    if foreign := fingerprint(*(kind.module for kind in kinds)):
        text += f"\n\n# stages from outside xskit: {foreign}\n"
    return jit.function_pointer(_import_generated(text).run)


def _import_generated(text: str) -> ModuleType:
    """The module of this text: no file, but known by name to imports and by its lines to tracebacks and the cache."""
    name = f"xskit_pipeline_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    file = f"<{name}>"
    with _importing:
        if name in sys.modules:
            return sys.modules[name]
        module = ModuleType(name)
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        sys.modules[name] = module
        try:
            exec(compile(text, file, "exec"), vars(module))
        except BaseException:
            del sys.modules[name]
            raise
        return module


class Pipeline(Closing):
    """The stages of one direction with their memory.

    Args:
        stages: in the order in which packets meet them.
        table: address of the packet table.
        pool: address of the direction's FramePool.
        capacity: packets that can be inside at once, and the longest that one is held.
        seed: of the run; each stage draws from a stream of its own, named by `name`, its kind and its place.
        name: of the link and direction.
        exits: ports that packets may leave by.

    Attributes:
        block: address of the block, the first argument of `run`.
        run: address of the compiled function.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        pool: FramePool,
        capacity: Capacity,
        seed: int = 0,
        name: str = "",
        exits: int = 1,
    ) -> None:
        self.kinds = [stage.kind for stage in stages]
        self.capacity = capacity
        self._arena = Arena()
        self._places, self._parameters_bytes = plan_block(self.kinds, self._arena)
        self.exits_offset = self._arena.reserve(exits * EXIT_BYTES)
        counters = self._arena.reserve(size_of(Counters))
        drops = self._arena.reserve(DROPS_BYTES)
        lateness = self._arena.reserve(histogram.BYTES)
        owd = self._arena.reserve(histogram.BYTES)
        self.reading_bytes = self._arena.size
        sizes = [kind.memory(capacity) for kind in self.kinds]
        memories = [self._arena.reserve(size) if size else 0 for size in sizes]
        entries = capacity_for(capacity.packets)
        rings = [self._arena.reserve(entries * ENTRY_BYTES) for _ in range(exits)]

        self.block = self._arena.open()
        self.counters_offset, self._drops_offset = counters, drops
        self._lateness_offset, self._owd_offset = lateness, owd
        self._fill_pipe(pool, exits)
        for leaving, ring in zip(self.exits, rings, strict=True):
            leaving.entries, leaving.mask = self.block + ring, entries - 1
        for number, (kind, place, memory) in enumerate(zip(self.kinds, self._places, memories, strict=True)):
            kind.prepare(record_view(kind.state, self.block + place.state), self.block + memory, capacity)
            stream = record_view(Random, self.block + place.random)
            seed_stream(stream, seed, name, kind.name, str(number))
        for stage, place in zip(stages, self._places, strict=True):
            self._write(stage.kind, place.parameters, stage.parameters())
        self.run = compile_pipeline(self.kinds)

    def _fill_pipe(self, pool: FramePool, exits: int) -> None:
        pipe = record_view(Pipe, self.block)
        pipe.table, pipe.pool, pipe.memory = pool.table.address, pool.address, pool.table.memory
        pipe.exits, pipe.exit_count = self.block + self.exits_offset, exits
        pipe.counters = self.block + self.counters_offset
        pipe.capacity_frames = self.capacity.frames or self.capacity.packets
        pipe.parameters_bytes = self._parameters_bytes
        self.counters.drops = self.block + self._drops_offset
        pool.view.books = pipe.counters

    def _write(self, kind: StageKind, offset: int, values: Mapping[str, int | float]) -> None:
        view = record_view(kind.parameters, self.block + offset)
        for field, value in values.items():
            setattr(view, field, value)

    @property
    def counters(self) -> Counters:
        """The live counters; the worker writes them."""
        return record_view(Counters, self.block + self.counters_offset)

    @property
    def exits(self) -> list[Exit]:
        """The live exits, one for each port that packets may leave by."""
        addresses = range(self.block + self.exits_offset, self.block + self.counters_offset, EXIT_BYTES)
        return [record_view(Exit, address) for address in addresses[: record_view(Pipe, self.block).exit_count]]

    @property
    def lateness(self) -> int:
        """Address of the lateness histogram."""
        return self.block + self._lateness_offset

    @property
    def owd(self) -> int:
        """Address of the histogram of achieved one-way delays."""
        return self.block + self._owd_offset

    @property
    def watermark_ns(self) -> int:
        """The logical time up to which this pipeline is final."""
        return record_view(Pipe, self.block).watermark_ns

    def reading(self, copy: np.ndarray[Any, Any] | None = None) -> Reading:
        """The numbers of this pipeline, from a copy of the block's first `reading_bytes` or from the block."""
        address = self.block if copy is None else int(copy.ctypes.data)
        return Reading(self, address, copy)

    # -- updates ---------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """True while an update waits for its time."""
        return jit.load_word(self.block + PENDING_OFFSET) != 0

    def stage_update(self, stages: Sequence[Stage], effective_ns: int) -> None:
        """Lay out a whole new set of parameters that takes force at a logical time.

        The kinds must be those the pipeline was made with, and no other update may be pending. What is in flight
        stays where it is.
        """
        assert [stage.kind for stage in stages] == self.kinds, "an update cannot change the kinds of stages"
        assert not self.pending, "an update is pending already"
        for stage, place in zip(stages, self._places, strict=True):
            self._write(stage.kind, place.parameters + self._parameters_bytes, stage.parameters())
        record_view(Pipe, self.block).effective_ns = effective_ns
        jit.store_word(self.block + PENDING_OFFSET, 1)

    def close(self) -> None:
        """Give the memory back; twice is fine."""
        self._arena.close()


class Reading:
    """The numbers of one pipeline at one moment: counters, drops, stages, histograms."""

    def __init__(self, pipeline: Pipeline, address: int, keep: object) -> None:
        self._pipeline = pipeline
        self._address = address
        self._keep = keep
        self.counters = record_view(Counters, address + pipeline.counters_offset, keep)

    def dropped(self) -> list[tuple[int, int]]:
        """(packets, bytes) by drop cause number."""
        pairs = self._array(self._pipeline._drops_offset, 2 * CAUSES).tolist()
        return list(zip(pairs[::2], pairs[1::2], strict=True))

    def stage_state(self, number: int) -> Any:
        """The state record of a stage."""
        place = self._pipeline._places[number]
        return record_view(self._pipeline.kinds[number].state, self._address + place.state, self._keep)

    def lateness(self) -> np.ndarray[Any, Any]:
        """Counts of the lateness histogram."""
        return self._array(self._pipeline._lateness_offset, histogram.BUCKETS)

    def owd(self) -> np.ndarray[Any, Any]:
        """Counts of the histogram of achieved one-way delays."""
        return self._array(self._pipeline._owd_offset, histogram.BUCKETS)

    def held(self) -> int:
        """Packets in the stores: found by walking the stages and the exit, not by subtraction."""
        stages = sum(self.stage_state(n).packets for n, kind in enumerate(self._pipeline.kinds) if kind.holding)
        exits = self._address + self._pipeline.exits_offset
        leaving = [record_view(Fifo, exits + n * EXIT_BYTES, self._keep) for n in range(len(self._pipeline.exits))]
        return int(stages) + sum(fifo.tail - fifo.head for fifo in leaving)

    def _array(self, offset: int, count: int) -> np.ndarray[Any, Any]:
        return array_at(self._address + offset, count, np.int64).copy()
