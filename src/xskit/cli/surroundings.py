"""What a process can lack: a working directory, memory, descriptors, threads. Each becomes one sentence."""

from __future__ import annotations

import errno
import os
import resource

from xskit.errors import XskitError

__all__ = ["explained"]


def explained(error: BaseException) -> XskitError | None:
    """The sentence for an error that such a lack causes; None for every other error."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return XskitError(f"no more files can be opened: {os.strerror(number)}", remedy="ulimit -n 65536")
    if number == errno.ENOENT and not _has_folder():
        return XskitError("the current directory has been removed", remedy="cd /")
    starved = isinstance(error, (MemoryError, ImportError)) or number == errno.ENOMEM
    library = isinstance(error, OSError) and number is None  # how ctypes reports a library that cannot be mapped
    thread = isinstance(error, RuntimeError) and "start new thread" in str(error)
    limit_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    if (starved or library or thread) and limit_bytes != resource.RLIM_INFINITY:
        return XskitError(
            f"the limit of {limit_bytes >> 20} MiB of address space is too low for this command",
            remedy="ulimit -v unlimited",
        )
    if isinstance(error, MemoryError) or number == errno.ENOMEM:
        return XskitError("this machine is out of memory", remedy="free -h")
    if thread:
        return XskitError("no more threads can be started", remedy="ulimit -u unlimited")
    return None


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True
