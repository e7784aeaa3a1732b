"""One journal on disk: lines of JSON, appended whole or not at all, and whose they are."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from xskit.errors import KernelError
from xskit.netconf import pids

__all__ = ["JournalFile", "boot", "dead_journals", "folder"]

_FOLDER = "/run/xskit"


def folder() -> Path:
    """Where journals lie: /run/xskit, or what $XSKIT_RUN says."""
    return Path(os.environ.get("XSKIT_RUN", _FOLDER))


def boot() -> str:
    """The kernel's name of this boot (proc_sys_kernel(5), random/boot_id)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def dead_journals() -> list[Path]:
    """The journals of this user's processes that are dead, in the order of their names."""
    try:
        with os.scandir(folder()) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(".jsonl"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable("read", error) from error
    return [folder() / name for name in names if not _owner_runs(name)]


class JournalFile:
    """An open journal."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def create(cls, header: dict[str, Any]) -> Self:
        """A new journal of this process; `header` becomes its first line.

        Raises:
            KernelError: it cannot be written.
        """
        pid = os.getpid()
        start = pids.start_time(pid)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        count = 0
        while True:
            path = folder() / f"{pid}-{start}-{count}.jsonl"
            try:
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                file = cls(path, os.open(path, flags, 0o600))
            except FileExistsError:
                count += 1
                continue
            except OSError as error:
                raise _unusable("written", error) from error
            try:
                file.write(header)
            except KernelError:
                file.unlink()
                file.close()
                raise
            return file

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """A journal that is there already; None if it is not there, or another user's.

        Raises:
            KernelError: it cannot be opened.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable("read", error) from error
        if os.fstat(fd).st_uid != os.geteuid():  # obeying a stranger's journal would lend them our rights
            os.close(fd)
            return None
        return cls(path, fd)

    def write(self, event: dict[str, Any]) -> None:
        """Append one line, whole or not at all.

        Raises:
            KernelError: it cannot be written, for instance because the disk is full.
        """
        size = os.fstat(self._fd).st_size
        cut_short = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"
        line = b"\n" * cut_short + json.dumps(event, separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._fd, line)
            if written < len(line):
                os.ftruncate(self._fd, size)
                os.write(self._fd, line)  # says why
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, size)
            raise _unusable("written", error) from error

    def read(self) -> list[dict[str, Any]]:
        """Every whole line, in order."""
        events = []
        content = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        for line in content.split(b"\n"):
            with suppress(ValueError):  # a line that was cut short, and the empty one at the end
                event = json.loads(line)
                if isinstance(event, dict):
                    events.append(event)
        return events

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Nobody else is in this block with the same journal. False if another process removed it meanwhile."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield os.fstat(self._fd).st_nlink > 0
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def unlink(self) -> None:
        """Everything is put back: take the file away."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the descriptor back, keep the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _owner_runs(name: str) -> bool:
    pid, _, rest = name.partition("-")
    start = rest.partition("-")[0]
    return pid.isdigit() and start.isdigit() and pids.is_running(int(pid), int(start))


def _unusable(what: str, error: OSError) -> KernelError:
    forbidden = error.errno in (errno.EACCES, errno.EPERM)
    return KernelError(
        f"the journal under {folder()} cannot be {what}: {error.strerror}",
        remedy="sudo, or XSKIT_RUN=/another/folder of your own" if forbidden else f"df -h {folder()}",
    )
