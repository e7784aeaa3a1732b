"""The text of a pipeline: a Python module that names its stages' functions, offsets written in as numbers.

Each stage n becomes

    enter_n(block, handle, length, time_ns)    a packet comes: step or push, then what the verdict says
    advance_n(block, until_ns)                 holding stages: departures up to a time go to enter_n+1

and behind the last one stands leave, which puts a packet into the FIFO of the exit that it has chosen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import indent

from xskit.engine.pipe import StageOffsets
from xskit.engine.stage import StageKind
from xskit.engine.verdict import Verdict

_HEAD = '''"""A pipeline: {names}. Generated; changes are lost."""

from xskit.engine.fifo import fifo_at, push as push_exit
from xskit.engine.packets import INFINITE_NS, counters_at
from xskit.engine.pipe import PENDING_OFFSET, pipe_at
from xskit.engine.random import random_at
from xskit.engine.records import EXIT_BYTES
from xskit.engine.verdict import HOLD, PASS, discard, duplicate, mark, replace
from xskit.jit import as_i64, fused, i64, inlined, load_acquire64, store_release64
from xskit.memory import record_at
from xskit.xsk.path.lines import NIL, packet_line
from xskit.xsk.path.receive import ARRIVAL_BYTES, arrival_at
{imports}

@inlined
def leave(block, handle, length, time_ns):
    pipe = pipe_at(block)
    leaving = pipe.exits
    if pipe.exit_count > 1:
        leaving += i64(packet_line(pipe.table, handle).egress) * EXIT_BYTES
    push_exit(fifo_at(leaving), time_ns, handle, length)

'''

_STEP = """
@inlined
def enter_{n}(block, handle, length, time_ns):
    verdict = step_{n}(state_{n}(block + {state}), parameters_{n}(block + {parameters}), random_at(block + {random}),
                       packet_line(pipe_at(block).table, handle), time_ns)
    if verdict == PASS:
        {next}(block, handle, length, time_ns)
{verdicts}
"""

_PUSH = """
@inlined
def enter_{n}(block, handle, length, time_ns):
{advance_first}    verdict = push_{n}(state_{n}(block + {state}), parameters_{n}(block + {parameters}),
                       random_at(block + {random}), pipe_at(block).table, handle, length, time_ns)
    if verdict != HOLD:
        discard(block, handle, length, verdict >> 8)

"""

_ADVANCE = """
@inlined
def advance_{n}(block, until_ns):
    state = state_{n}(block + {state})
    while next_time_{n}(state) <= until_ns:
        handle, length, time_ns, verdict = pop_{n}(state, parameters_{n}(block + {parameters}),
                                                   random_at(block + {random}), pipe_at(block).table)
        if verdict == PASS:
            {next}(block, handle, length, time_ns)
{verdicts}
"""

_VERDICTS = {
    Verdict.MARK: """elif verdict & 255 == {kind}:
    mark(block, handle)
    {next}(block, handle, length, time_ns)
""",
    Verdict.DUPLICATE: """elif verdict & 255 == {kind}:
    copy = duplicate(block, handle)
    {next}(block, handle, length, time_ns)
    if copy != NIL:
        {next}(block, copy, length, time_ns)
""",
    Verdict.INJECT: """elif verdict & 255 == {kind}:
{earlier}    leave(block, handle, replace(block, handle, length, verdict >> 8), time_ns)
""",
    Verdict.DROP: """else:
    discard(block, handle, length, verdict >> 8)
""",
}
"""What becomes of each verdict but PASS and HOLD; DROP comes last."""

_RUN = """
@inlined
def apply(block, time_ns):
{changed}    now = as_i64(block + {parameters})
    coming = as_i64(block + {parameters} + {parameters_bytes})
    for word in range({parameters_bytes} >> 3):
        now[word] = coming[word]
    pipe_at(block).effective_ns = time_ns
    counters_at(pipe_at(block).counters).updates += 1
    store_release64(block + PENDING_OFFSET, 0)

def run(block, batch, count, until_ns):
    pipe = pipe_at(block)
    done = 0
    next_ns = INFINITE_NS
    effective_ns = INFINITE_NS
    if load_acquire64(block + PENDING_OFFSET) != 0:
        effective_ns = max(pipe.effective_ns, pipe.watermark_ns)
        if effective_ns > until_ns:
            next_ns = effective_ns
            effective_ns = INFINITE_NS
    while True:  # up to the update, then behind it
        while done < count:
            arrival = arrival_at(batch + done * ARRIVAL_BYTES)
            if arrival.time_ns >= effective_ns:
                break
            {first}(block, arrival.handle, arrival.length, arrival.time_ns)
            done += 1
        if effective_ns == INFINITE_NS:
            break
{advance_effective}        apply(block, effective_ns)
        effective_ns = INFINITE_NS
{advance}    pipe.watermark_ns = max(pipe.watermark_ns, until_ns)
{next_times}    return next_ns
"""


def pipeline_source(kinds: Sequence[StageKind], places: Sequence[StageOffsets], parameters_bytes: int) -> str:
    """The module's text; equal for equal kinds in equal order."""
    numbers = range(len(kinds))
    holding = [n for n in numbers if kinds[n].holding]
    names = ", ".join(kind.name for kind in kinds) or "nothing"
    parts = [_HEAD.format(names=names, imports="".join(map(_imports, numbers, kinds)))]
    # What is called comes first: the last stage, then the one that hands packets to it, and so on.
    parts += [_stage(n, kinds, places) for n in reversed(numbers)]
    parts.append(
        _RUN.format(
            first="enter_0" if kinds else "leave",
            parameters=places[0].parameters if places else 0,
            parameters_bytes=parameters_bytes,
            changed="".join(_changed(n, places[n], parameters_bytes) for n in numbers if kinds[n].has_changed),
            advance_effective=_advance_all(kinds, places, "effective_ns", " " * 8),
            advance=_advance_all(kinds, places, "until_ns", " " * 4),
            next_times="".join(
                f"    next_ns = min(next_ns, next_time_{n}(state_{n}(block + {places[n].state})))\n" for n in holding
            ),
        )
    )
    return _fuse("".join(parts))


def _fuse(text: str) -> str:
    """Functions that are called from one place are inlined there: of others, LLVM decides."""
    for name in re.findall(r"@inlined\ndef (\w+)\(", text):
        if len(re.findall(rf"\b{name}\(", text)) == 2:
            text = text.replace(f"@inlined\ndef {name}(", f"@fused\ndef {name}(")
    return text


def _stage(n: int, kinds: Sequence[StageKind], places: Sequence[StageOffsets]) -> str:
    """The functions of one stage: enter, and for a holding stage advance before it."""
    kind, place = kinds[n], places[n]
    # What leaves at once leaves behind all that the stages further on let go before.
    earlier = _advance_all(kinds, places, "time_ns", " " * 4, first=n + 1)
    following = f"enter_{n + 1}" if n + 1 < len(kinds) else "leave"
    known = vars(place) | {"n": n, "next": following}
    if not kind.holding:
        return _STEP.format(verdicts=_verdicts(kind, following, earlier, " " * 4), **known)
    first = f"    advance_{n}(block, time_ns)\n" if kind.advance_first else ""
    advance = _ADVANCE.format(verdicts=_verdicts(kind, following, earlier, " " * 8), **known)
    return advance + _PUSH.format(advance_first=first, **known)


def _verdicts(kind: StageKind, following: str, earlier: str, margin: str) -> str:
    wanted = [verdict for verdict in _VERDICTS if verdict in kind.verdicts]
    text = "".join(_VERDICTS[verdict].format(kind=int(verdict), next=following, earlier=earlier) for verdict in wanted)
    return indent(text, margin)


def _imports(n: int, kind: StageKind) -> str:
    names = ("push", "pop", "next_time") if kind.holding else ("step",)
    if kind.has_changed:
        names = (*names, "changed")
    if kind.has_final:
        names = (*names, "final")
    functions = ", ".join(f"{name} as {name}_{n}" for name in names)
    return (
        f"\nfrom {kind.module} import {functions}\n"
        f"from {kind.parameters.__module__} import {kind.parameters.__name__} as Parameters_{n}\n"
        f"from {kind.state.__module__} import {kind.state.__name__} as State_{n}\n"
        f"parameters_{n} = record_at(Parameters_{n})\n"
        f"state_{n} = record_at(State_{n})\n"
    )


def _advance_all(
    kinds: Sequence[StageKind], places: Sequence[StageOffsets], until: str, indent: str, *, first: int = 0
) -> str:
    """Advance every holding stage from `first` on.

    What follows one that hands packets on late is advanced only as far as that one is final.
    """
    lines = []
    for n in range(first, len(kinds)):
        kind, place = kinds[n], places[n]
        if kind.holding:
            lines.append(f"{indent}advance_{n}(block, {until})\n")
        if kind.has_final and any(later.holding for later in kinds[n + 1 :]):
            lines.append(f"{indent}final_ns = final_{n}(state_{n}(block + {place.state}), {until})\n")
            until = "final_ns"
    return "".join(lines)


def _changed(n: int, place: StageOffsets, parameters_bytes: int) -> str:
    return (
        f"    changed_{n}(state_{n}(block + {place.state}), parameters_{n}(block + {place.parameters}), "
        f"parameters_{n}(block + {place.parameters + parameters_bytes}), time_ns)\n"
    )
