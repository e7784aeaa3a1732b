"""Processes that end with xskit, however it ends: the kernel kills them (PR_SET_PDEATHSIG, prctl(2))."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from xskit import libc

__all__ = ["dying_with_us"]


def dying_with_us() -> Callable[[], None]:
    """A `preexec_fn` for subprocess.Popen: the child is killed when the thread that starts it ends."""
    parent = os.getpid()

    def prepare() -> None:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before we said so
            os._exit(1)

    return prepare
