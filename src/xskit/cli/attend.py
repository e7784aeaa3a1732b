"""Signals to a command that goes on for long, taken one by one instead of wherever the program happens to be.

Ctrl-C is sent by the terminal to its whole foreground process group, so what `xskit run` runs has it already; the same
signal sent to xskit alone is passed on. Which it was the kernel tells only to who waits for signals (sigwaitinfo(2)):
so they are blocked, and waited for.
"""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

from xskit.netconf.signals import DEADLY

_PASSED_ON = {signal.SIGINT, signal.SIGQUIT}
_ENDING = DEADLY - _PASSED_ON
_SI_KERNEL = 0x80
"""si_code of a signal that the kernel sent, as a terminal does (asm-generic/siginfo.h)."""

_LOOK_SECONDS = 1.0


class Signals:
    """In the block, signals that end a process wait until they are asked for; those left over are forgotten.

    Only for the main thread; other threads must have blocked all signals. One that starts a command has not, for the
    command would inherit that: a signal that comes in by it is noted by a handler. What is ignored (nohup(1), or the
    background of a script) stays ignored.
    """

    def __init__(self) -> None:
        self._noted: list[int] = []
        self._mine = {n for n in _PASSED_ON | _ENDING if signal.getsignal(n) not in (signal.SIG_IGN, None)}

    def __enter__(self) -> Self:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {*self._mine, signal.SIGCHLD})
        self._handlers = {number: signal.signal(number, self._note) for number in self._mine}
        return self

    def _wait(self, seconds: float) -> signal.struct_siginfo | None:
        return signal.sigtimedwait({*self._mine, signal.SIGCHLD}, seconds)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append(number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._wait(0) is not None:
            pass
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def pause(self, seconds: float) -> bool:
        """Sleep; True as soon as a signal asks for the end."""
        deadline = time.monotonic() + seconds
        if self._noted:
            return True
        while (left := deadline - time.monotonic()) > 0:
            told = self._wait(left)
            if told is not None and told.si_signo in self._mine:
                return True
        return False

    def attend(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of a command, 128 + n where signal n ended it; or 128 + n when signal n asks xskit to end.

        Then the command is still running: whoever started it ends it.
        """
        for number in _ENDING.intersection(self._noted):
            return 128 + number
        while (code := process.poll()) is None:
            told = self._wait(_LOOK_SECONDS)
            if told is None:
                continue
            if told.si_signo in _ENDING:
                return 128 + told.si_signo
            if told.si_signo in _PASSED_ON and told.si_code != _SI_KERNEL:
                with suppress(ProcessLookupError):
                    process.send_signal(told.si_signo)
        return 128 - code if code < 0 else code
