"""How data-plane code is compiled: what is inlined, what is an entry point, what is called by pointer.

Under NUMBA_DISABLE_JIT=1 nothing is: every function stays the Python that it was written as.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numba
from numba.core import ccallback, sigutils

from xskit.jit.kept import Kept

__all__ = ["DISABLED", "by_pointer", "compiled", "direct", "function_pointer", "inlined"]

Function = TypeVar("Function", bound=Callable[..., Any])

DISABLED = bool(getattr(numba.config, "DISABLE_JIT"))  # noqa: B009  Numba sets it at run time, unknown to mypy
"""True under NUMBA_DISABLE_JIT=1: all of the data plane is plain Python, and every intrinsic its twin."""

# Untyped in Numba.
_numba_ccallback: Any = ccallback
_numba_sigutils: Any = sigutils

_settings = threading.RLock()


def inlined(function: Function) -> Function:
    """Compile a data-plane function that other data-plane functions call; LLVM inlines it where that pays.

    It has no wrapper to be called from Python with, and no reference counting: both would only cost compile time.
    """
    compiler: Any = numba.njit
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
    return compiler(function, nogil=True, error_model="numpy", **options)  # type: ignore[no-any-return]


def fused(function: Function) -> Function:
    """As `inlined`, and inlined always: for what is called once a packet from one place or two."""
    compiler: Any = numba.njit
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False, "forceinline": True}
    return compiler(function, nogil=True, error_model="numpy", **options)  # type: ignore[no-any-return]


def compiled(signature: str, *, brief: bool = False) -> Callable[[Function], Function]:
    """Compile an entry point called from Python: cached on disk, runs without the GIL.

    `signature` is Numba's, for example "int64(int64, int64)"; compilation happens at the first call, so that
    importing a module stays cheap. A `brief` function keeps the GIL: for what takes a microsecond and never waits.
    Whoever gives up the GIL while another thread computes gets it back only after 5 ms.
    """

    def decorate(function: Function) -> Function:
        if DISABLED:
            return function
        return _Lazy(function, signature, brief)  # type: ignore[return-value]

    return decorate


def direct(function: Function) -> Function:
    """An entry point of `compiled` as the machine knows it: it is compiled, or loaded from the cache, now.

    Calling it takes a third of the time: nothing looks up first what the arguments are, so they must be integers.
    """
    return function.direct if isinstance(function, _Lazy) else function  # type: ignore[return-value]


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Compile without vector loops: for packets LLVM would gather and scatter, which is slower than one by one.

    One thread at a time: the setting is that of the process.
    """
    config: Any = numba.config
    with _settings:
        before = config.LOOP_VECTORIZE
        config.LOOP_VECTORIZE = 0
        try:
            yield
        finally:
            config.LOOP_VECTORIZE = before


class _Lazy:
    """A cached entry point that is compiled, or loaded from the cache, when it is first called."""

    def __init__(self, function: Callable[..., Any], signature: str, brief: bool) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.signature = signature
        self.brief = brief

    @functools.cached_property
    def compiled(self) -> Callable[..., Any]:
        compiler: Any = numba.njit
        with _compiling():
            dispatcher = compiler(nogil=not self.brief, error_model="numpy")(self.py_func)
            dispatcher._cache = Kept(self.py_func)
            dispatcher.compile(self.signature)
        dispatcher.disable_compile()
        return cast(Callable[..., Any], dispatcher)

    @functools.cached_property
    def direct(self) -> Callable[..., Any]:
        (only,) = cast(Any, self.compiled).overloads.values()
        return cast(Callable[..., Any], only.entry_point)

    def __call__(self, *arguments: int) -> Any:
        return self.direct(*arguments)


# --- calls by pointer -------------------------------------------------------------------------------------------

PIPELINE_SIGNATURE = "int64(int64, int64, int64, int64)"

by_pointer: dict[int, Callable[[int, int, int, int], int]] = {}
"""What stands behind each address that `function_pointer` gave: kept alive, and what `call_pointer`'s twin calls."""


@functools.cache
def function_pointer(function: Callable[[int, int, int, int], int], cache: bool = True) -> int:
    """The address by which `call_pointer` reaches a function of four int64 that returns one; valid for ever."""
    if DISABLED:
        by_pointer[id(function)] = function
        return id(function)
    signature = _numba_sigutils.normalize_signature(PIPELINE_SIGNATURE)
    native = _numba_ccallback.CFunc(function, signature, {}, {"nopython": True, "error_model": "numpy"})
    with _compiling():
        if cache:
            native._cache = Kept(function)
        native.compile()
    by_pointer[native.address] = native
    return int(native.address)
