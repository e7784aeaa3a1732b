"""Files that users name: read up to a limit, with a command that helps if one cannot be read."""

from __future__ import annotations

import difflib
import errno
import os
import shlex
from pathlib import Path

from xskit.errors import XskitError

__all__ = ["ReadError", "cannot_read", "read"]


class ReadError(XskitError):
    """A file cannot be read or is too long; `missing`: it does not exist."""

    def __init__(self, cause: str, *, remedy: str | None = None, missing: bool = False) -> None:
        super().__init__(cause, remedy=remedy)
        self.missing = missing


def read(path: Path, most_bytes: int) -> bytes:
    """All bytes of a file, or of a pipe that somebody writes to.

    A pipe without a writer is empty. A file without an end, such as /dev/zero, is too long.

    Raises:
        ReadError: it cannot be read, or has more than `most_bytes`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
        try:
            os.set_blocking(descriptor, True)
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(most_bytes + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise cannot_read(path, error) from error
    if len(content) > most_bytes:
        raise ReadError(f"{shown(path)} is longer than {most_bytes >> 20} MiB", remedy=f"ls -lL {quoted(path)}")
    return content


def cannot_read(path: Path, error: OSError | ValueError) -> ReadError:
    """The error for a file that could not be opened or read, with a similar name if there is one."""
    number = error.errno if isinstance(error, OSError) else errno.EINVAL  # a NUL in the name
    if number == errno.EISDIR:
        return ReadError(f"{shown(path)} is a folder", remedy=f"ls {quoted(path)}")
    if number not in (errno.ENOENT, errno.ENOTDIR):
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no file can have this name"
        return ReadError(f"{shown(path)} cannot be read: {why}", remedy=f"ls -ld {quoted(path)}")
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    close = difflib.get_close_matches(path.name, _names(folder), n=1) if folder == path.parent else []
    meant = f"; did you mean {shown(folder / close[0])}?" if close else ""
    return ReadError(f"there is no file {shown(path)}{meant}", remedy=f"ls {quoted(folder)}", missing=True)


def shown(path: Path) -> str:
    """A path, escaped if it cannot be printed."""
    words = str(path)
    return words if words.isprintable() else repr(words)


def quoted(path: Path) -> str:
    """A path as the shell takes it."""
    words = str(path)
    return shlex.quote(words) if words.isprintable() else "$" + repr(words)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
