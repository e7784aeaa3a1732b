"""The C twins: built with `cc -O3 -march=native` when their sources changed, and called in this process by ctypes."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xskit.memory import Record, size_of

SOURCES = Path(__file__).parent / "c"
BUILD = SOURCES / "build"
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


def build(name: str) -> Path:
    """The shared object of c/NAME.c, as new as its sources.

    Raises:
        SystemExit: no C compiler, or the source does not compile.
    """
    source, target = SOURCES / f"{name}.c", BUILD / f"{name}.so"
    newest = max(path.stat().st_mtime_ns for path in (source, *SOURCES.glob("*.h")))
    if target.exists() and target.stat().st_mtime_ns > newest:
        return target
    BUILD.mkdir(exist_ok=True)
    draft = target.with_suffix(f".{os.getpid()}")
    try:
        subprocess.run([os.environ.get("CC", "cc"), *FLAGS, "-o", str(draft), str(source)], check=True)
    except FileNotFoundError:
        raise SystemExit("the benchmarks need a C compiler for the C twins: apt-get install gcc") from None
    except subprocess.CalledProcessError:
        raise SystemExit(f"{source} does not compile") from None
    draft.rename(target)
    return target


def load(name: str) -> ctypes.CDLL:
    """A twin, ready to be called; integers are 64 bits wide, addresses too."""
    return ctypes.CDLL(str(build(name)))


def function(library: ctypes.CDLL, name: str, arguments: int) -> ctypes._NamedFuncPointer:
    """A function of so many i64 that returns one."""
    found: ctypes._NamedFuncPointer = getattr(library, name)
    found.restype, found.argtypes = ctypes.c_int64, [ctypes.c_int64] * arguments
    return found


def check_layout(library: ctypes.CDLL, name: str, records: Sequence[type[Record]]) -> None:
    """Compare the sizes of the twin's structs with those of the engine's records."""
    sizes = np.zeros(len(records), np.int64)
    function(library, name, 1)(sizes.ctypes.data)
    for record, size in zip(records, sizes.tolist(), strict=True):
        if size_of(record) != size:
            raise SystemExit(
                f"the twin's {record.__name__} has {size} bytes, the engine's {size_of(record)}: update it"
            )
