"""Where compiled code is kept between runs: one folder for each state of the sources."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import llvmlite
import numpy as np

from xskit.errors import KernelError

COMPILED = (
    "jit/*.py",
    "_cache.py",
    "memory.py",
    "xsk/rings.py",
    "engine/**/*.py",
    "stages/**/*.py",
    "bench/loops/*.py",
)
"""Where compiled code lives, and all that it takes constants from."""

KEPT_FOLDERS = 8


def source_hash() -> str:
    """A hash of all sources of compiled code and of the libraries that compile them.

    Numba's cache looks only at the file of the function itself: an edit in a callee of another file would leave
    a stale entry. So the cache folder itself is named by everything that could matter.
    """
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(path for pattern in COMPILED for path in root.glob(pattern)):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    for part in (sys.version, np.__version__, llvmlite.__version__, platform.machine()):
        digest.update(part.encode())
    digest.update(os.environ.get("NUMBA_CPU_NAME", "").encode())
    return digest.hexdigest()[:16]


def cache_root() -> Path:
    """$XSKIT_CACHE, or xskit/ in the user's cache folder."""
    if given := os.environ.get("XSKIT_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xskit"


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """What is written to the cache, Numba's files too, is written in such a block.

    Raises:
        KernelError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        cause = f"compiled code cannot be kept in {cache_root()}: {error.strerror}"
        raise KernelError(cause, remedy="XSKIT_CACHE=/var/cache/xskit, or another folder of your own") from error


@functools.cache
def cache_folder() -> Path:
    """The folder of compiled code for exactly these sources; made on first use, the oldest others removed.

    Raises:
        KernelError: it cannot be made.
    """
    folder = cache_root() / f"code-{source_hash()}"
    with keeping():
        there = folder.is_dir()
        folder.mkdir(parents=True, exist_ok=True)
    if not there:
        others = sorted(folder.parent.glob("code-*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for stale in others[KEPT_FOLDERS:]:
            shutil.rmtree(stale, ignore_errors=True)
    return folder
