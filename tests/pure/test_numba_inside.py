"""The parts of Numba that are private and that jit/ uses or replaces: a release that changes one is noticed here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce
from typing import Any

import numba
import pytest
from numba.core import caching, ccallback, cgutils, compiler, datamodel, imputils, runtime, serialize, sigutils

from xskit.jit.kept import Kept

ADVICE = (
    f"Numba {numba.__version__} has changed {{what}}, which {{user}} uses. Compare the two, mend {{user}}, and set "
    "Numba's upper bound in pyproject.toml."
)

SIGNATURES = [
    (caching._Cache.load_overload, "(self, sig, target_context)", "jit/kept.py"),
    (caching._Cache.save_overload, "(self, sig, data)", "jit/kept.py"),
    (compiler.CompileResult._reduce, "(self)", "jit/kept.py"),
    (ccallback.CFunc.__init__, "(self, pyfunc, sig, locals, options, pipeline_class=", "jit/compilation.py"),
    (ccallback.CFunc.compile, "(self)", "jit/compilation.py"),
    (sigutils.normalize_signature, "(sig)", "jit/compilation.py"),
    (cgutils.get_record_member, "(builder, record, offset, typ)", "jit/records.py"),
    (datamodel.register_default, "(typecls)", "jit/records.py"),
    (imputils.Registry.lower_getattr_generic, "(self, ty)", "jit/records.py"),
    (imputils.Registry.lower_setattr_generic, "(self, ty)", "jit/records.py"),
]

NAMES = [
    (caching._Cache, "cache_path", "jit/kept.py"),
    (compiler.CompileResult, "_rebuild", "jit/kept.py"),
    (runtime, "rtsys.initialize", "jit/kept.py"),
    (serialize, "dumps", "jit/kept.py"),
    (numba.config, "OPT", "jit/kept.py"),
    (numba.config, "LOOP_VECTORIZE", "jit/compilation.py"),
    (datamodel, "models.RecordModel", "jit/records.py"),
]


@pytest.mark.parametrize(
    ("function", "signature", "user"), SIGNATURES, ids=lambda one: getattr(one, "__qualname__", "")
)
def test_a_private_function_has_the_signature_that_is_relied_on(
    function: Callable[..., Any], signature: str, user: str
) -> None:
    found = str(inspect.signature(function))
    assert found.startswith(signature), ADVICE.format(what=f"{function.__qualname__}{found}", user=user)


@pytest.mark.parametrize(("home", "name", "user"), NAMES, ids=lambda one: one if isinstance(one, str) else "")
def test_a_private_name_is_there(home: Any, name: str, user: str) -> None:
    missing = object()
    found = reduce(lambda value, part: getattr(value, part, missing), name.split("."), home)
    assert found is not missing, ADVICE.format(what=f"{home.__name__}.{name}", user=user)


class Spy:
    """A cache that is asked, has nothing, and notes what it is given."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []
        self.given: list[tuple[Any, Any]] = []

    def load_overload(self, signature: Any, context: Any) -> None:
        self.asked.append((signature, context))

    def save_overload(self, signature: Any, result: Any) -> None:
        self.given.append((signature, result))


def _by_dispatcher(spy: Spy) -> None:
    dispatcher: Any = numba.njit(lambda a: a + 1)
    assert hasattr(dispatcher, "_cache"), ADVICE.format(what="Dispatcher._cache", user="jit/compilation.py")
    dispatcher._cache = spy
    dispatcher.compile("int64(int64)")


def _by_callback(spy: Spy) -> None:
    signature = sigutils.normalize_signature("int64(int64)")
    native: Any = ccallback.CFunc(lambda a: a + 1, signature, {}, {"nopython": True})
    assert hasattr(native, "_cache"), ADVICE.format(what="CFunc._cache", user="jit/compilation.py")
    native._cache = spy
    native.compile()


@pytest.mark.compiled
@pytest.mark.parametrize("compile_one", [_by_dispatcher, _by_callback])
def test_numba_asks_the_cache_that_stands_in_for_its_own(compile_one: Callable[[Spy], None]) -> None:
    spy = Spy()
    compile_one(spy)
    advice = ADVICE.format(what="how it uses _cache", user="jit/kept.py")
    assert len(spy.asked) == len(spy.given) == 1, advice
    (signature, context), (_, result) = spy.asked[0], spy.given[0]
    assert sigutils.normalize_signature(signature)[0] == (numba.int64,), advice
    assert context.codegen().magic_tuple(), advice
    assert isinstance(result, compiler.CompileResult), advice
    assert result.library.has_dynamic_globals is False, advice
    assert result.library.codegen.magic_tuple() == context.codegen().magic_tuple(), advice
    assert compiler.CompileResult._rebuild(context, *result._reduce()).signature == result.signature, advice


def test_kept_has_the_methods_that_the_spy_has():
    for name in ("load_overload", "save_overload"):
        assert len(inspect.signature(getattr(Kept, name)).parameters) == 3
