"""Waits for the command of `xskit run`, and sees to the signals meanwhile.

Ctrl-C is sent by the terminal to its whole foreground process group, so COMMAND has it already; the same signal sent
to xskit alone is passed on. Which it was the kernel tells only to who waits for signals (sigwaitinfo(2)), so they are
blocked, and waited for together with the end of COMMAND.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress

_PASSED_ON = {signal.SIGINT, signal.SIGQUIT}
_ENDING = {signal.SIGTERM, signal.SIGHUP}
_WAITED_FOR = {*_PASSED_ON, *_ENDING, signal.SIGCHLD}

_SI_KERNEL = 0x80
"""si_code of a signal that the kernel sent, as a terminal does (asm-generic/siginfo.h)."""

_LOOK_SECONDS = 1.0


class Attendance:
    """Signals are held back from the moment it is made until `release`; only for the main thread."""

    def __init__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """The exit code of the command, 128 + n where signal n ended it; or 128 + n when signal n ends xskit.

        SIGTERM and SIGHUP leave the command running: whoever started it ends it.
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

    def release(self) -> None:
        """Forget the signals that came late, and let new ones in again; twice is fine."""
        while signal.sigtimedwait(_WAITED_FOR, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
