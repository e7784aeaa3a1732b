"""Puts the host back before a signal ends a script.

At SIGTERM, SIGHUP and the like a process ends at once: Python runs no `finally`, no `with` and no `atexit`. So while a
journal holds changes, each signal that would end the process has a handler. It puts everything back and then lets the
process die by that signal. Nothing else of the script runs, just as without the handler.

Only default dispositions are replaced. Ignored signals stay ignored, and the user's handlers, in Python or in C, stay,
whether set before or later. Process 1 of a container ignores signals that it has no handler for; it still does. Python
lets only the main thread set handlers, and runs them there, between two instructions: while that thread is in a C
function that does not return, a signal waits.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

from xskit.bpf.attach import detach_all
from xskit.netconf.signals import DEADLY

__all__ = ["begin", "changing", "is_begun"]

_LENT = (signal.SIGTERM, signal.SIGHUP)
"""Signals that others, such as asyncio, handle for a while and then set to the default: checked before each change."""

_INIT = 1
_TRIES = 3


class _Journal(Protocol):
    @property
    def pending(self) -> Sequence[object]: ...

    def restore_for_good(self) -> None: ...


_c_handler = ctypes.pythonapi.PyOS_getsig
"""The handler that the kernel calls, even one that Python does not know; None is the default."""
_c_handler.restype = ctypes.c_void_p
_c_handler.argtypes = (ctypes.c_int,)


class _Ending:
    """The handler, and the journals that it puts back."""

    def __init__(self) -> None:
        self._journals: dict[int, _Journal] = {}
        self._ours: dict[int, int | None] = {}
        self._dying = False
        self.in_child()

    def in_child(self) -> None:
        """A forked child is in no block of its parent's, and does not end with it."""
        self._begun = False
        self._depth = 0
        self._came: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._depth:
            self._came = self._came or number
        elif not self._dying:
            self._end(number)

    def begin(self) -> None:
        """The process ends now: the programs go first, because a veth whose peer has one takes no offload back."""
        self._begun = True
        detach_all()

    def is_begun(self) -> bool:
        """Whether this process is ending, and takes down by itself what threads still watch."""
        return self._begun

    @contextmanager
    def changing(self, journal: _Journal) -> Iterator[None]:
        """In the block the host is changed or put back: a signal waits for its end."""
        main = threading.current_thread() is threading.main_thread()
        self._depth += main
        try:
            self._journals[id(journal)] = journal
            if main:
                self._install()
            elif self._dying:
                threading.Event().wait()
            yield
        finally:
            self._depth -= main
            if main and self._came is not None and not self._depth and not self._dying:
                self._end(self._came)
            if not journal.pending:
                self._journals.pop(id(journal), None)
            if main and not self._journals:
                self._uninstall()

    def _install(self) -> None:
        if os.getpid() == _INIT:
            return
        for number in _LENT if self._ours else DEADLY:
            if _c_handler(number) is None:
                signal.signal(number, self)
                self._ours[number] = _c_handler(number)

    def _uninstall(self) -> None:
        for number, handler in self._ours.items():
            if signal.getsignal(number) is self and _c_handler(number) == handler:
                signal.signal(number, signal.SIG_DFL)
        self._ours.clear()

    def _end(self, number: int) -> None:
        self._dying = True
        try:
            with suppress(Exception, KeyboardInterrupt, SystemExit):
                self.begin()
            for journal in reversed(list(self._journals.values())):
                with suppress(Exception, KeyboardInterrupt, SystemExit):
                    journal.restore_for_good()
        finally:
            _die(number)


def _die(number: int) -> None:
    for _ in range(_TRIES):
        with suppress(KeyboardInterrupt, SystemExit):  # of another signal
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
    os._exit(128 + number)


_ending = _Ending()
changing = _ending.changing
begin = _ending.begin
is_begun = _ending.is_begun
os.register_at_fork(after_in_child=_ending.in_child)
