"""Entry points into the engine's compiled functions, which have none of their own, and memory to run them on.

Each dispatches on a number, so that a handful of compilations serve all tests. Under NUMBA_DISABLE_JIT=1 they are
plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from xskit.engine import fifo, histogram, random, wheel
from xskit.engine.checksum import finish_checksum
from xskit.engine.random import Random
from xskit.jit import DISABLED, as_f64, as_i64, as_u64, compiled, i64
from xskit.memory import Region, record_view, size_of
from xskit.stages.server import scale

# What is statistical draws fewer numbers as plain Python, which is some hundred times slower.
MANY = 4_000 if DISABLED else 200_000

FIFO_PUSH, FIFO_COUNT, FIFO_TIME, FIFO_PACKET, FIFO_DROP, FIFO_LOOK = range(6)
WHEEL_PUSH, WHEEL_NEXT, WHEEL_POP, WHEEL_FLOOR, WHEEL_SPAN = range(5)
DRAW64, DRAW, UNIFORM, NORMAL = range(4)


@compiled("int64(int64, int64, int64, int64, int64)")
def fifo_call(what: int, address: int, a: int, b: int, c: int) -> int:
    store = fifo.fifo_at(address)
    if what == 0:
        fifo.push(store, a, b, c)
        return 0
    if what == 1:
        return fifo.count(store)
    if what == 2:
        return fifo.head_time(store)
    if what == 3:
        return fifo.head_packet(store)
    if what == 4:
        fifo.drop_head(store)
        return 0
    return fifo.packet_at_position(store, a)


@compiled("int64(int64, int64, int64, int64, int64)")
def wheel_call(what: int, address: int, table: int, time_ns: int, handle: int) -> int:
    store = wheel.wheel_at(address)
    if what == 0:
        wheel.push(store, table, time_ns, handle)
        return 0
    if what == 1:
        return wheel.next_time(store)
    if what == 2:
        return wheel.pop(store, table)
    if what == 3:
        return wheel.floor_time(store)
    return wheel.span(store)


@compiled("int64(int64, int64, int64, int64)")
def draw_call(what: int, address: int, results: int, count: int) -> int:
    stream = random.random_at(address)
    for number in range(count):
        if what == 0:
            as_u64(results)[number] = random.draw64(stream)
        elif what == 1:
            as_i64(results)[number] = random.draw(stream)
        elif what == 2:
            as_f64(results)[number] = random.uniform(stream)
        else:
            as_f64(results)[number] = random.normal(stream)
    return count


@compiled("int64(int64, int64)")
def count_call(counts: int, value: int) -> int:
    histogram.add(counts, value)
    return i64(histogram.bucket_of(value))


@compiled("int64(int64, int64)")
def finish_call(table: int, handle: int) -> int:
    return finish_checksum(table, handle)


@compiled("int64(int64, int64, int64)")
def scale_call(value: int, numerator: int, denominator: int) -> int:
    return scale(value, numerator, denominator)


_KINDS = {DRAW64: np.uint64, DRAW: np.int64, UNIFORM: np.float64, NORMAL: np.float64}


class Stream:
    """A random stream in memory of its own."""

    def __init__(self) -> None:
        self._region = Region(size_of(Random))
        self.state = record_view(Random, self._region.address)

    def take(self, what: int, count: int) -> np.ndarray[Any, Any]:
        """The next `count` numbers of one kind."""
        with Region(8 * count) as results:
            draw_call(what, self._region.address, results.address, count)
            return results.array(count, _KINDS[what]).copy()

    def close(self) -> None:
        self._region.close()


@contextmanager
def stream(seed: int, *names: str) -> Iterator[Stream]:
    """A stream started from a seed."""
    made = Stream()
    random.seed_stream(made.state, seed, *names)
    yield made
    made.close()
