"""Signals that end a process, made into an exception, so that what stands in `with` and `finally` still runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["DEADLY", "Asked", "Terminated", "no_signals", "terminated_by_exception"]

_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
"""A handler of Python's runs later, and the instruction at fault would be executed again before."""

_ENDING_NOBODY = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH} | {
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU
}  # fmt: skip

DEADLY = frozenset(signal.valid_signals() - {signal.SIGKILL} - _FAULTS - _ENDING_NOBODY)
"""Every signal that ends a process by default and that Python can handle (signal(7))."""

_ALARM = signal.SIGALRM
_AGAIN_SECONDS = 0.01


class Terminated(SystemExit):
    """A signal asks the process to end; `code` is 128 + its number, as shells have it."""


class Asked:
    """What signals have asked for so far.

    An exception that a signal raises while an object is being destroyed, or while C calls back, is lost: Python would
    print and forget it, as it would what objects complain of that an exception left half made. The compiler has many of
    both. So nothing of that is printed once a signal has come, and an alarm raises the exception again. Whoever is
    about to begin something long calls `check`.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if number != _ALARM or not self.numbers:  # else it is our own alarm
            self.numbers.append(number)
        self.check()

    def lost(self, unraisable: sys.UnraisableHookArgs) -> None:
        """What stands for sys.unraisablehook."""
        if not self.numbers:
            sys.__unraisablehook__(unraisable)
        elif isinstance(unraisable.exc_value, (KeyboardInterrupt, Terminated)) and signal.getsignal(_ALARM) is self:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    def check(self) -> None:
        """Raise what the first signal stands for, if there was one.

        Raises:
            KeyboardInterrupt: for SIGINT.
            Terminated: for the others.
        """
        if not self.numbers:
            return
        if self.numbers[0] == signal.SIGINT:
            raise KeyboardInterrupt
        raise Terminated(128 + self.numbers[0])


@contextmanager
def terminated_by_exception() -> Iterator[Asked]:
    """In the block, signals that end a process raise in the main thread. An ignored one (nohup) stays ignored, and one
    that was given a handler in C keeps it: Python could not put it back.

    SIGINT raises KeyboardInterrupt, the others raise `Terminated`. Does nothing in another thread: Python lets
    only the main thread handle signals.
    """
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    hook = sys.unraisablehook
    before = {number: signal.getsignal(number) for number in DEADLY}
    ours = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in ours:
            signal.signal(number, asked)
        sys.unraisablehook = asked.lost
        yield asked
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not asked.numbers:  # else what is half made is destroyed when the exception is, behind this block
            sys.unraisablehook = hook
        for number, handler in ours.items():
            signal.signal(number, handler)


@contextmanager
def no_signals() -> Iterator[None]:
    """In the block this thread takes no signals, nor does, for good, any thread that is started there.

    Else Ctrl-C could come between a thread's start and the moment when Python knows of it: it would be taken for ended,
    and its memory given back while it runs. What came meanwhile is delivered at the end of the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
