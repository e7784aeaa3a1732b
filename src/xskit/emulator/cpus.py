"""Which CPUs workers are pinned to: the last ones that no worker of another link, of any process, is pinned to.

A claim on CPU n is a lock on byte n of one file, as an open file description has it (fcntl(2), F_OFD_SETLK): it ends
with the process, however that ends, and counts between links of the same process, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress
from typing import Self

from xskit.emulator.mistakes import SettingsError
from xskit.emulator.settings import EngineSettings
from xskit.errors import Setting
from xskit.netconf.journalfile import folder

__all__ = ["CpuClaim"]

_FILE = "cpus.lock"
_FLOCK = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, len, pid


class CpuClaim:
    """CPUs for workers, claimed until closed.

    Attributes:
        cpus: one for each worker.
    """

    def __init__(self, cpus: tuple[int, ...], fd: int | None) -> None:
        self.cpus = cpus
        self._fd = fd

    @classmethod
    def make(cls, engine: EngineSettings) -> Self:
        """Those asked for, or the last free ones that this process may use; where none is free, the last ones.

        Raises:
            SettingsError: this process may not use one of those asked for.
        """
        allowed = sorted(os.sched_getaffinity(0), reverse=True)
        if engine.cpus is not None and (refused := [cpu for cpu in engine.cpus if cpu not in allowed]):
            usable = ", ".join(map(str, reversed(allowed)))
            raise SettingsError(
                f"a worker cannot run on CPU {refused[0]}: this process may use {usable}",
                remedy=Setting("cpus", allowed[: engine.workers]),
            )
        fd = _open()
        if engine.cpus is not None:
            for cpu in engine.cpus[: engine.workers]:
                _lock(fd, cpu)  # so that others keep off
            return cls(engine.cpus, fd)
        chosen: list[int] = []
        for cpu in allowed:
            if len(chosen) < engine.workers and _lock(fd, cpu):
                chosen.append(cpu)
        chosen += [cpu for cpu in allowed if cpu not in chosen]
        return cls(tuple(chosen[number % len(chosen)] for number in range(engine.workers)), fd)

    def close(self) -> None:
        """Let others have them; twice is fine."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _open() -> int | None:
    """The file with the locks; None where this user cannot have it."""
    with suppress(OSError):
        folder().mkdir(mode=0o755, parents=True, exist_ok=True)
        return os.open(folder() / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    return None


def _lock(fd: int | None, cpu: int) -> bool:
    """Whether the CPU is ours now; also where there is no file, so that the last ones are taken."""
    if fd is None:
        return True
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, cpu, 1, 0))
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True
