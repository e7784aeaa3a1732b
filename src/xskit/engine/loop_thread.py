"""A thread for a compiled loop: it takes no signals, may be pinned, and counts as ended only when it has ended.

The memory of the loop is unmapped after it ends, so assuming too early that it has ended means a crash.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence

from xskit import libc
from xskit.errors import KernelError
from xskit.memory import array_at
from xskit.netconf.signals import no_signals

__all__ = ["FOR_EVER", "POLLIN", "POLLOUT", "LoopThread", "fill_pollfds", "pin", "sleep_exactly"]

FOR_EVER = 1 << 62
"""Rounds of a loop that others end."""

POLLIN, POLLOUT = 1, 4
"""asm-generic/poll.h."""


class LoopThread:
    """Runs a function once, in a thread of its own.

    Args:
        name: of the thread.
        body: what it does. What it raises is kept for `raise_failure`.
    """

    def __init__(self, name: str, body: Callable[[], None]) -> None:
        self._body = body
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            self._body()
        except BaseException as failure:
            self._failure = failure
        finally:
            self._ended.set()

    def start(self) -> None:
        """Begin; once only."""
        with no_signals():
            self._thread.start()

    @property
    def started(self) -> bool:
        """True for ever after `start`."""
        return self._thread.ident is not None

    @property
    def running(self) -> bool:
        """True from `start` until the function has ended; never in a forked child, which has no such thread."""
        return self._thread.is_alive() and not self._ended.is_set()

    @property
    def ended(self) -> bool:
        """True for ever after the function has ended."""
        return self._ended.is_set()

    @property
    def native_id(self) -> int | None:
        """The kernel's number of the thread, gettid(2); None before `start`."""
        return self._thread.native_id

    def join(self, timeout: float) -> bool:
        """Wait some seconds for the end; False when they are over first."""
        return self._ended.wait(timeout)

    def wait(self) -> None:
        """Wait for the end. Ctrl-C is raised after it.

        This cannot use Thread.join: when that is interrupted, Python 3.11 takes the thread for ended (bpo-45274 and its
        follow-ups).
        """
        interrupts: list[BaseException] = []
        while self.running:
            try:
                self._ended.wait()
            except (KeyboardInterrupt, SystemExit) as interrupt:
                interrupts.append(interrupt)
        if interrupts:
            raise interrupts[0]

    def raise_failure(self) -> None:
        """Raise what the function raised, once."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


def pin(cpu: int | None) -> None:
    """Keep the calling thread on one CPU; None: leave it to the scheduler.

    Raises:
        KernelError: there is no such CPU, or this process may not use it.
    """
    if cpu is None:
        return
    try:
        os.sched_setaffinity(0, {cpu})
    except (OSError, ValueError, OverflowError) as error:  # negative, or no number that the kernel could have
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise KernelError(f"a worker cannot run on CPU {cpu}: {why}", remedy="lscpu --online --extended") from error


def sleep_exactly() -> None:
    """Let the calling thread wake up within some 50 us of the time it asked for (timer slack, prctl(2))."""
    with contextlib.suppress(OSError):  # a sandbox may forbid it: then it wakes up later
        libc.prctl(libc.PR_SET_TIMERSLACK, 1)


def fill_pollfds(address: int, fds: Sequence[int], events: Sequence[int]) -> None:
    """Write a table of struct pollfd, 8 bytes each, for poll(2) in compiled code."""
    table = array_at(address, len(fds), [("fd", "i4"), ("events", "i2"), ("revents", "i2")])
    table["fd"], table["events"] = fds, events
