"""A hash of everything that a stage from outside xskit is made of, so that an edit never meets stale code.

Numba looks only at the file of the function it compiles. So a pipeline's name carries the sources of each foreign
stage's module, of every foreign module whose functions or values that one uses, and so on, and the numbers among
their globals, which are compiled in as constants.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_HASHED_ELSEWHERE = {"xskit", "numba", "numpy", "llvmlite", "builtins", "typing"}


def fingerprint(*names: str) -> str:
    """A hash over the modules of these names and all that they lean on; "" when none is from outside xskit."""
    found: dict[str, bytes] = {}
    for name in names:
        _collect(name, found)
    if not found:
        return ""
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + found[name] + b"\0")
    return digest.hexdigest()[:16]


def _collect(name: str, found: dict[str, bytes]) -> None:
    top = name.partition(".")[0]
    if name in found or top in _HASHED_ELSEWHERE or top in sys.stdlib_module_names:
        return
    module = importlib.import_module(name)
    file = getattr(module, "__file__", None)
    source = Path(file).read_bytes() if file and Path(file).exists() else b""
    numbers = sorted((k, repr(v)) for k, v in vars(module).items() if isinstance(v, (int, float)))
    found[name] = source + repr(numbers).encode()
    for value in list(vars(module).values()):
        if home := _home(value):
            _collect(home, found)


def _home(value: Any) -> str | None:
    """The module that a global comes from: a function's, a class's, or a module itself."""
    if isinstance(value, ModuleType):
        return value.__name__
    home = getattr(getattr(value, "py_func", value), "__module__", None)
    return home if isinstance(home, str) and home in sys.modules else None
