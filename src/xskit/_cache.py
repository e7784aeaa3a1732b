"""Compiled code kept between runs: one folder for each state of the sources, one file for each entry point.

    MAGIC | SHA-256 of all that follows | name of the file | \\n | content

The cache only saves time. A file that is damaged or half written counts as missing, and so does anything else in its
place: the code is compiled again and replaces it. A file that cannot be written costs the next start the time to
compile, and is reported once.

Reading a file runs what is in it (pickle), so files that another user could have written are not read.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import secrets
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path

import llvmlite
import numpy as np

COMPILED = (
    "jit/*.py",
    "_cache.py",
    "memory.py",
    "xsk/path/*.py",
    "engine/**/*.py",
    "stages/**/*.py",
    "bench/loops/*.py",
)
"""Where compiled code lives, and all that it takes constants from."""

STRICT_ALIASING = os.environ.get("XSKIT_STRICT_ALIASING", "1") != "0"
"""Whether compiled code relies on records of different classes not to overlap (jit/records.py)."""

KEPT_FOLDERS = 8

SUFFIX = ".code"
MAGIC = b"xskit code 1\n"
_DIGEST_BYTES = 32
_LONGEST_BYTES = 1 << 26
"""Of a file; the whole data plane takes 1 MB."""

OWNER = "XSKIT_CACHE_OWNER"
"""The uid of one more user whose files are read: a guest's root reads those of the user who started the guest."""

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)
_reported: list[str] = []


@functools.cache
def source_hash() -> str:
    """A hash of all sources of compiled code and of the libraries that compile them.

    A function's own file does not say when its code is stale: an edit in a callee of another file changes it too. So
    the name of the cache folder is a hash of everything that could matter.
    """
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(path for pattern in COMPILED for path in root.glob(pattern)):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    for part in (sys.version, np.__version__, llvmlite.__version__, platform.machine()):
        digest.update(part.encode())
    digest.update(os.environ.get("NUMBA_CPU_NAME", "").encode())
    digest.update(b"strict" if STRICT_ALIASING else b"no strict aliasing")
    return digest.hexdigest()[:16]


def cache_root() -> Path:
    """$XSKIT_CACHE, or xskit/ in the user's cache folder."""
    if given := os.environ.get("XSKIT_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xskit"


def cache_folder() -> Path:
    """The folder of compiled code for exactly these sources, whether it is there or not."""
    return cache_root() / f"code-{source_hash()}"


def is_empty() -> bool:
    """Whether no compiled code for these sources is kept yet."""
    try:
        return not any(name.endswith(SUFFIX) for name in os.listdir(cache_folder()))
    except (OSError, RuntimeError):
        return True


def load(name: str) -> bytes | None:
    """The content saved under this name, if it is whole and a trusted user wrote it; else None."""
    try:
        folder = cache_folder()
        if not _trusted(folder.stat()):
            _report(f"the compiled code in {folder} is not used: other users can write there")
            return None
        with open(folder / name, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or not _trusted(status) or status.st_size > _LONGEST_BYTES:
                return None
            data = file.read()
    except (OSError, RuntimeError):
        return None
    body = data[len(MAGIC) + _DIGEST_BYTES :]
    title = f"{name}\n".encode()
    if data != _packed(body) or not body.startswith(title):
        return None
    return body[len(title) :]


def save(name: str, content: bytes) -> None:
    """Keep content under this name. If that fails, log a warning, once per process."""
    try:
        folder = _made_folder()
        if not _trusted(folder.stat()):
            _report(f"compiled code is not kept in {folder}: other users can write there")
            return
        draft = folder / f"{name}.{secrets.token_hex(8)}"
        try:
            with open(draft, "xb", opener=_writable_by_us) as file:
                file.write(_packed(f"{name}\n".encode() + content))
            _replace(draft, folder / name)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        _report(f"compiled code cannot be kept in {cache_root()}: {error.strerror}")
    except RuntimeError:  # Path.home()
        _report("compiled code cannot be kept: this user has no home directory")


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a FIFO in its place does not block until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _writable_by_us(path: str, flags: int) -> int:
    """Create a file that only this user can write, whatever the umask."""
    return os.open(path, flags, 0o644)


def _packed(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).digest() + body


def _made_folder() -> Path:
    """The folder, made if it is missing; then the oldest others are removed."""
    folder = cache_folder()
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(folder):  # something else under a name that is only ours
        folder.unlink(missing_ok=True)
    with suppress(FileExistsError):  # another process has just made it
        folder.mkdir(0o755)
    with suppress(OSError):
        others = sorted(folder.parent.glob("code-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for stale in others[KEPT_FOLDERS:]:
            shutil.rmtree(stale, ignore_errors=True)
    return folder


def _replace(draft: Path, path: Path) -> None:
    try:
        draft.replace(path)
    except IsADirectoryError:
        shutil.rmtree(path)
        draft.replace(path)


def _trusted(status: os.stat_result) -> bool:
    """Whether only root, this user, the owner of xskit's own files, or who started this guest can have written it."""
    owners = {"0", str(os.geteuid()), str(_owner_of_xskit()), os.environ.get(OWNER)}
    return str(status.st_uid) in owners and not status.st_mode & _WRITABLE_BY_OTHERS


@functools.cache
def _owner_of_xskit() -> int:
    """The owner of xskit's own files, whose code is running already."""
    return Path(__file__).stat().st_uid


def _report(cause: str) -> None:
    """Log what costs time at every start, once per process."""
    if not _reported:
        _reported.append(cause)
        _log.warning("%s, so every start compiles again; set XSKIT_CACHE to a folder of your own", cause)
