"""Machine code kept on disk, in place of Numba's own cache.

Numba trusts what it finds: one emptied file ends every start in a traceback, and a flipped bit is executed. It also
registers everything that it can compile before it loads anything, which takes 0.3 s and imports SciPy; machine code
needs none of that. Here each entry point has one file, which is checked before it is used.
"""

from __future__ import annotations

import hashlib
import linecache
import pickle
from collections.abc import Callable
from typing import Any

import numba
from numba.core import compiler, runtime, serialize

from xskit import _cache

__all__ = ["Kept"]

# Untyped in Numba.
_config: Any = numba.config
_CompileResult: Any = compiler.CompileResult
_numba_runtime: Any = runtime
_numba_serialize: Any = serialize


class Kept:
    """Has the methods of numba.core.caching._Cache that dispatchers and C callbacks call.

    A function is kept if its module's text is known (linecache has it), because the file's name depends on the text.
    """

    cache_path = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._text = "".join(linecache.getlines(function.__code__.co_filename))

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compile result for this signature; None if it must be compiled."""
        content = _cache.load(self._name(signature, context.codegen())) if self._text else None
        if content is None:
            return None
        _numba_runtime.rtsys.initialize(context)  # the symbols that every entry point's wrapper needs
        try:
            return _CompileResult._rebuild(context, *pickle.loads(content))
        except Exception:  # whole, but not what this Numba writes
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a compile result, unless it holds addresses of this process."""
        if self._text and not result.library.has_dynamic_globals:
            content = _numba_serialize.dumps(result._reduce())
            _cache.save(self._name(signature, result.library.codegen), content)

    def _name(self, signature: Any, codegen: Any) -> str:
        """The file's name: what it is, and a hash of all that its code depends on besides the sources of xskit."""
        code = self._function.__code__
        module = self._function.__module__
        parts = (
            numba.__version__, _config.OPT, codegen.magic_tuple(), module, code.co_filename, code.co_firstlineno,
            self._function.__qualname__, signature, self._text,
        )  # fmt: skip
        digest = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
        return f"{module.rpartition('.')[2]}.{self._function.__name__}-{digest}{_cache.SUFFIX}"
