"""Which process a pid means: its start time tells a process from a later one with the same pid."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_running", "start_time"]


def start_time(pid: int) -> int | None:
    """When it started, in clock ticks after boot (proc(5), /proc/PID/stat field 22). None if dead or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(b")")[2].split()  # the name before may hold spaces and brackets
    if fields[0] in (b"Z", b"X", b"x"):
        return None
    return int(fields[19])


def is_running(pid: int, start: int) -> bool:
    """Whether the process with this pid that started at this time still runs."""
    return start_time(pid) == start
