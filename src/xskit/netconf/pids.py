"""Which process a pid means, and what /proc says of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["all_pids", "environment", "is_running", "start_time"]

_EXEC_S = 1.0  # more than execve(2) can take


def all_pids() -> list[int]:
    """Every process of this machine (or container)."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def start_time(pid: int) -> int | None:
    """When it started, in clock ticks after boot: no later process with its pid has that. None if dead or a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in (b"Z", b"X", b"x"):
        return None
    return int(fields[22 - 3])


def is_running(pid: int, start: int) -> bool:
    """Whether the process with this pid that started at this time still runs."""
    return start_time(pid) == start


def environment(pid: int) -> list[bytes]:
    """The environment it was started with, ["NAME=value", ...]; empty for a kernel thread or a zombie. Raises OSError.

    In the middle of execve(2) a process has none yet; then this waits for it.
    """
    deadline = time.monotonic() + _EXEC_S
    while True:
        content = Path(f"/proc/{pid}/environ").read_bytes()
        if content or not _in_execve(pid) or time.monotonic() > deadline:
            return content.split(b"\0")
        time.sleep(0.0002)


def _in_execve(pid: int) -> bool:
    """It has a program, but the place of its environment is not known yet (field 51, env_end)."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    fields = _stat(pid)
    return fields is not None and fields[51 - 3] == b"0"


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat (proc(5)) from the third, the state, on. None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat.rpartition(b")")[2].split()  # the name before may hold spaces and brackets
