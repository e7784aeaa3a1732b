"""The text of a pipeline: a Python module that names its stages' functions, offsets written in as numbers.

A chain is cut behind each holding stage into segments:

    enter_0(...)     passing stages, then the push into the first holding stage
    advance_0(...)   departures of the first holding stage; each goes to enter_1
    enter_1(...)     ... and so on; the last segment ends in the exit FIFO
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xskit.engine.stage import StageKind

if TYPE_CHECKING:
    from xskit.engine.pipeline import Place

_HEAD = '''"""A pipeline: {names}. Generated; changes are lost."""

from xskit.engine.fifo import fifo_at, push as push_exit
from xskit.engine.packets import INFINITE_NS, PASS, count_drop, counters_at, packet_line
from xskit.engine.pipeline import ARRIVAL_BYTES, PENDING_OFFSET, arrival_at, free_packet, pipe_at
from xskit.engine.random import random_at
from xskit.jit import as_i64, inlined, load_acquire64, store_release64
from xskit.memory import record_at
{imports}

@inlined
def discard(block, handle, length, cause):
    counters = counters_at(pipe_at(block).counters)
    count_drop(counters, cause, length)
    counters.in_flight_frames -= free_packet(block, handle)

'''

_PASSING = """
    verdict = step_{n}(state_{n}(block + {state}), parameters_{n}(block + {parameters}), random_at(block + {random}),
                       packet_line(pipe_at(block).table, handle), time_ns)
    if verdict != PASS:
        discard(block, handle, length, verdict)
        return
"""

_PUSH = """
    verdict = push_{n}(state_{n}(block + {state}), parameters_{n}(block + {parameters}), random_at(block + {random}),
                       pipe_at(block).table, handle, length, time_ns)
    if verdict != PASS:
        discard(block, handle, length, verdict)
"""

_EXIT = """
    push_exit(fifo_at(pipe_at(block).exit), time_ns, handle, length)
"""

_ADVANCE = """
@inlined
def advance_{n}(block, until_ns):
    state = state_{n}(block + {state})
    while next_time_{n}(state) <= until_ns:
        handle, length, time_ns, verdict = pop_{n}(state, parameters_{n}(block + {parameters}),
                                                   random_at(block + {random}), pipe_at(block).table)
        if verdict != PASS:
            discard(block, handle, length, verdict)
        else:
            enter_{following}(block, handle, length, time_ns)

"""

_RUN = """
@inlined
def apply(block, time_ns):
{changed}    now = as_i64(block + {parameters})
    coming = as_i64(block + {parameters} + {parameters_bytes})
    for word in range({parameters_bytes} >> 3):
        now[word] = coming[word]
    counters_at(pipe_at(block).counters).updates += 1
    store_release64(block + PENDING_OFFSET, 0)

def run(block, batch, count, until_ns):
    pipe = pipe_at(block)
    done = 0
    next_ns = INFINITE_NS
    if load_acquire64(block + PENDING_OFFSET) != 0:
        effective_ns = max(pipe.effective_ns, pipe.watermark_ns)
        if effective_ns <= until_ns:
            while done < count:
                arrival = arrival_at(batch + done * ARRIVAL_BYTES)
                if arrival.time_ns >= effective_ns:
                    break
                enter_0(block, arrival.handle, arrival.length, arrival.time_ns)
                done += 1
{advance_effective}            apply(block, effective_ns)
        else:
            next_ns = effective_ns
    for number in range(done, count):
        arrival = arrival_at(batch + number * ARRIVAL_BYTES)
        enter_0(block, arrival.handle, arrival.length, arrival.time_ns)
{advance}    pipe.watermark_ns = max(pipe.watermark_ns, until_ns)
{next_times}    return next_ns
"""


def pipeline_source(kinds: Sequence[StageKind], places: Sequence[Place], parameters_bytes: int) -> str:
    """The module's text; equal for equal kinds in equal order."""
    numbers = range(len(kinds))
    holding = [n for n in numbers if kinds[n].holding]
    offsets = [vars(place) | {"n": n} for n, place in enumerate(places)]
    parts = [
        _HEAD.format(
            names=", ".join(kind.name for kind in kinds) or "nothing", imports="".join(map(_imports, numbers, kinds))
        )
    ]
    bounds = [-1, *holding]
    segments: list[str] = []
    for segment, first in enumerate(bounds):
        end = bounds[segment + 1] if segment + 1 < len(bounds) else len(kinds)
        body = "".join(_PASSING.format(**offsets[n]) for n in range(first + 1, end))
        if end < len(kinds):
            if kinds[end].advance_first:
                body += f"\n    advance_{end}(block, time_ns)\n"
            body += _PUSH.format(**offsets[end])
        else:
            body += _EXIT
        segments.append(f"\n@inlined\ndef enter_{segment}(block, handle, length, time_ns):{body}\n")
    # The last segment calls nothing of ours, so it comes first; each other one needs those behind it.
    parts.append(segments.pop())
    for segment in reversed(range(len(holding))):
        n = holding[segment]
        parts.append(_ADVANCE.format(following=segment + 1, **offsets[n]))
        parts.append(segments.pop())
    parts.append(
        _RUN.format(
            parameters=places[0].parameters if places else 0,
            parameters_bytes=parameters_bytes,
            changed="".join(_changed(n, places[n], parameters_bytes) for n in numbers if kinds[n].has_changed),
            advance_effective="".join(f"            advance_{n}(block, effective_ns)\n" for n in holding),
            advance="".join(f"    advance_{n}(block, until_ns)\n" for n in holding),
            next_times="".join(
                f"    next_ns = min(next_ns, next_time_{n}(state_{n}(block + {places[n].state})))\n" for n in holding
            ),
        )
    )
    return "".join(parts)


def _imports(n: int, kind: StageKind) -> str:
    names = ("push", "pop", "next_time") if kind.holding else ("step",)
    if kind.has_changed:
        names = (*names, "changed")
    functions = ", ".join(f"{name} as {name}_{n}" for name in names)
    return (
        f"\nfrom {kind.module} import {functions}\n"
        f"from {kind.parameters.__module__} import {kind.parameters.__name__} as Parameters_{n}\n"
        f"from {kind.state.__module__} import {kind.state.__name__} as State_{n}\n"
        f"parameters_{n} = record_at(Parameters_{n})\n"
        f"state_{n} = record_at(State_{n})\n"
    )


def _changed(n: int, place: Place, parameters_bytes: int) -> str:
    return (
        f"    changed_{n}(state_{n}(block + {place.state}), parameters_{n}(block + {place.parameters}), "
        f"parameters_{n}(block + {place.parameters + parameters_bytes}), time_ns)\n"
    )
