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
from types import TracebackType
from typing import Self

_PASSED_ON = {signal.SIGINT, signal.SIGQUIT}
_ENDING = {signal.SIGTERM, signal.SIGHUP}
_WAITED_FOR = {*_PASSED_ON, *_ENDING, signal.SIGCHLD}

_SI_KERNEL = 0x80
"""si_code of a signal that the kernel sent, as a terminal does (asm-generic/siginfo.h)."""

_LOOK_SECONDS = 1.0


class Signals:
    """In the block, signals that end a process wait until they are asked for; those left over are forgotten.

    Only for the main thread; other threads must have blocked all signals.
    """

    def __enter__(self) -> Self:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while signal.sigtimedwait(_WAITED_FOR, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def pause(self, seconds: float) -> bool:
        """Sleep; True as soon as a signal asks for the end."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            told = signal.sigtimedwait(_WAITED_FOR, left)
            if told is not None and told.si_signo in _PASSED_ON | _ENDING:
                return True
        return False

    def attend(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of a command, 128 + n where signal n ended it; or 128 + n when signal n asks xskit to end.

        Then the command is still running: whoever started it ends it.
        """
        while (code := process.poll()) is None:
            told = signal.sigtimedwait(_WAITED_FOR, _LOOK_SECONDS)
            if told is None:
                continue
            if told.si_signo in _ENDING:
                return 128 + told.si_signo
            if told.si_signo in _PASSED_ON and told.si_code != _SI_KERNEL:
                with suppress(ProcessLookupError):
                    process.send_signal(told.si_signo)
        return 128 - code if code < 0 else code
