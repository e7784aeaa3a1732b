"""The handler of a signal at every point of a call.

Python runs such handlers where a function begins, where a loop turns, and where a call has returned. Here the points
are all lines, and every place behind a call: a few more than a handler has.
"""

from __future__ import annotations

import dis
import functools
import gc
import sys
from collections.abc import Callable
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, TypeVar

State = TypeVar("State")

_UNTOUCHED = ("importlib", "numba", "llvmlite", "/tests/", "/_pytest/")
"""Parts of paths of code that is not interrupted: it runs once in a process, or is the test's."""


class Struck(KeyboardInterrupt):
    """What a handler raises."""


def strike() -> None:
    """A handler."""
    raise Struck


class Interrupt:
    """Calls something, and runs a handler at the point with number `at`, counted from 1, of what it does.

    Attributes:
        where: the file, line and function; None where there are fewer points.
    """

    def __init__(self, at: int, handler: Callable[[], None] = strike) -> None:
        self._left = at
        self._handler = handler
        self.where: str | None = None

    def call(self, operation: Callable[[State], object], state: State) -> None:
        """operation(state). `Struck` is swallowed, also where Python only reports it (`__del__`)."""
        hook = sys.unraisablehook
        sys.unraisablehook = lambda report: None if isinstance(report.exc_value, Struck) else hook(report)
        sys.settrace(self._trace)
        try:
            operation(state)
        except Struck:
            pass
        finally:
            sys.settrace(None)
            sys.unraisablehook = hook

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if event == "call":
            if self._left <= 0 or any(part in frame.f_code.co_filename for part in _UNTOUCHED):
                return None
            frame.f_trace_opcodes = True
        elif event == "line" or (event == "opcode" and frame.f_lasti in _behind_calls(frame.f_code)):
            self._left -= 1
            if self._left == 0:
                code = frame.f_code
                self.where = f"{code.co_filename}:{frame.f_lineno}, {code.co_qualname}, byte {frame.f_lasti}"
                self._handler()
        return self._trace


@functools.cache
def _behind_calls(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions that follow a call."""
    steps = pairwise(dis.get_instructions(code))
    return frozenset(after.offset for step, after in steps if step.opname.startswith("CALL"))


def interrupted_everywhere(
    prepare: Callable[[], State],
    operation: Callable[[State], object],
    prove: Callable[[State], None],
    *,
    handler: Callable[[State], None] = lambda _: strike(),
    step: int = 1,
) -> int:
    """Run `operation` again and again, each time with the handler one point later, until it ends before that.

    `prove` must find everything in order each time. With a `step`, only each so many-th point has its turn.

    Returns:
        The number of points.
    """
    operation(state := prepare())  # all that happens only once, such as compilation
    prove(state)
    at = 1
    while True:
        state = prepare()
        interrupt = Interrupt(at, functools.partial(handler, state))
        try:
            interrupt.call(operation, state)
            prove(state)
        except BaseException as error:
            error.add_note(f"interrupted at point {at}: {interrupt.where}")
            raise
        if interrupt.where is None:
            return at
        at += step
        gc.collect(0)
