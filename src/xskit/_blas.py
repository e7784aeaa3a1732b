"""Imports NumPy and SciPy without linear-algebra threads, in processes that belong to xskit.

Their wheels carry OpenBLAS, which starts a thread for every CPU when it is loaded; xskit multiplies no matrices.
OpenBLAS reads the number of threads from the environment at that moment (OPENBLAS_NUM_THREADS;
https://github.com/OpenMathLib/OpenBLAS, "Setting the number of threads using environment variables"). The variable is
set only while these libraries are imported. It never appears in os.environ, nor in the environment of commands that
xskit starts.
"""

from __future__ import annotations

import importlib.abc
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["start_no_threads"]

_VARIABLE = "OPENBLAS_NUM_THREADS"
_RESPECTED = (_VARIABLE, "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""What OpenBLAS looks at, in this order."""


def start_no_threads() -> None:
    """From now on, import NumPy and SciPy in this process without threads, unless the user has set a number."""
    if not any(name in os.environ for name in _RESPECTED):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds NumPy and SciPy's packages where the import system does, and imports them with one thread."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if not (fullname == "numpy" or (top == "scipy" and "." not in rest)):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Wraps another loader and sets the variable while it executes; the module does not notice."""

    def __init__(self, real: importlib.abc.Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._real
        _executing.append(module.__name__)
        os.putenv(_VARIABLE, "1")  # the environment that C code reads, not os.environ
        try:
            self._real.exec_module(module)
        finally:
            _executing.pop()
            if not _executing and _VARIABLE not in os.environ:
                os.unsetenv(_VARIABLE)


_executing: list[str] = []
"""The modules that are being executed now: one imports another."""
