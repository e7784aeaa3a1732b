"""What a process can lack around it: a working directory, memory, descriptors, threads. Each is one sentence."""

from __future__ import annotations

import errno
import os
import resource

from xskit.errors import XskitError

__all__ = ["explained"]


def explained(error: BaseException) -> XskitError | None:
    """The sentence for an error that comes from the surroundings; None for every other one."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return XskitError(f"no more files can be opened: {os.strerror(number)}", remedy="ulimit -n 65536")
    if number == errno.ENOENT and not _has_folder():
        return XskitError("the folder that you are in has been removed", remedy="cd /")
    starved = isinstance(error, (MemoryError, ImportError)) or number == errno.ENOMEM
    library = isinstance(error, OSError) and number is None  # as ctypes says it of a library that cannot be mapped
    thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    limit_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    if (starved or library or thread) and limit_bytes != resource.RLIM_INFINITY:
        return XskitError(
            f"{limit_bytes >> 20} MiB of address space are too little for this command", remedy="ulimit -v unlimited"
        )
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return XskitError("this machine has no memory left", remedy="free -h")
    if thread:
        return XskitError("no more threads can be started", remedy="ulimit -u unlimited")
    return None


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True
