"""Signals that end a process, made into an exception, so that what stands in `with` and `finally` still runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Terminated", "terminated_by_exception"]

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(SystemExit):
    """A signal asks the process to end; `code` is 128 + its number, as shells have it."""


@contextmanager
def terminated_by_exception() -> Iterator[None]:
    """In the block, SIGTERM and SIGHUP raise `Terminated` in the main thread. An ignored one (nohup) stays ignored.

    Does nothing in another thread: Python lets only the main thread handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Terminated(128 + number)
