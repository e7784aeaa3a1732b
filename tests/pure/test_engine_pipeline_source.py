"""Generated pipelines and the cache of compiled code: never compiled twice, never stale."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import xskit
from xskit import jit
from xskit.engine import pipeline
from xskit.engine.fingerprint import fingerprint
from xskit.engine.pipeline import compile_pipeline, plan_block
from xskit.engine.source import pipeline_source
from xskit.engine.stage import StageKind
from xskit.jit import compilation
from xskit.memory import Arena
from xskit.stages import delay, delay_free, loss
from xskit.stages.queues import droptail

PACKAGE = Path(xskit.__file__).parent
COMPILED = {path for pattern in jit.COMPILED for path in PACKAGE.glob(pattern)}
NO_CODE = {"xskit", "xskit.closing", "xskit.errors", "xskit.netconf.signals", "xskit.units", "xskit.xsk.pages"}
"""Modules that compiled ones may use without being compiled: no constant of theirs goes into machine code."""


# --- the generated module ---------------------------------------------------------------------------------------


def text(*kinds: StageKind) -> str:
    return pipeline_source(kinds, *plan_block(kinds, Arena()))


def test_equal_kinds_are_one_function() -> None:
    kinds = (loss.KIND, droptail.KIND, delay.KIND)
    assert text(*kinds) == text(*kinds)
    before = set(sys.modules)
    pointer = compile_pipeline(kinds)
    assert compile_pipeline(list(kinds)) == pointer
    assert len([name for name in set(sys.modules) - before if name.startswith("xskit_pipeline")]) <= 1


def test_other_kinds_or_another_order_are_another() -> None:
    chains = [
        (),
        (loss.KIND,),
        (delay.KIND,),
        (loss.KIND, delay.KIND),
        (delay.KIND, loss.KIND),
        (delay_free.KIND, droptail.KIND),
        (loss.KIND, loss.KIND),
    ]
    assert len({text(*chain) for chain in chains}) == len(chains)


@pytest.mark.parametrize(
    "chain", [(), (loss.KIND,), (delay_free.KIND, loss.KIND, droptail.KIND, delay.KIND), (droptail.KIND,) * 3]
)
def test_any_chain_is_a_python_module(chain: tuple[StageKind, ...]) -> None:
    tree = ast.parse(text(*chain))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert functions[-1] == "run"
    assert [name for name in functions if name.startswith("enter_")] == [
        f"enter_{n}" for n in reversed(range(len(chain)))
    ], "what is called comes before what calls it"


# --- what the cache is named by ---------------------------------------------------------------------------------


def decorators(tree: ast.Module) -> set[str]:
    """Names of all function decorators of a module."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                found.add(ast.unparse(called).rpartition(".")[2])
    return found


SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_every_module_with_compiled_functions_names_the_cache() -> None:
    with_code = {path for path in SOURCES if decorators(ast.parse(path.read_text())) & {"inlined", "compiled"}}
    assert len(with_code) > 10
    assert with_code <= COMPILED


def test_compiled_modules_take_constants_from_such_modules_only() -> None:
    strangers = set()
    for path in COMPILED:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "xskit":
                file = PACKAGE.parent / Path(*node.module.split("."))
                homes = {file.with_suffix(".py"), file / "__init__.py"}
                if not homes & COMPILED and node.module not in NO_CODE:
                    strangers.add((path.relative_to(PACKAGE).as_posix(), node.module))
    assert not strangers


PROBE = """
from xskit import jit
from xskit.engine.virtual import VirtualPipeline
from xskit.stages.loss import Loss
with VirtualPipeline([Loss(1.0)]) as made:
    print(jit.cache_folder().name, len(made.run([(n, 100) for n in range(10)], 10)))
"""


def test_an_edited_stage_is_compiled_anew_and_an_unedited_one_is_not(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "xskit", ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "XSKIT_CACHE": str(tmp_path / "cache")}

    def probe() -> tuple[str, int]:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        name, left = done.stdout.split()
        return name, int(left)

    def code() -> set[str]:
        return {f"{path} {path.stat().st_mtime_ns}" for path in (tmp_path / "cache").rglob("*.code")}

    name, left = probe()
    assert left == 0, "everything is lost"
    compiled = code()
    assert bool(compiled) != jit.DISABLED
    assert probe() == (name, 0)
    assert code() == compiled, "the second time all comes from the cache"

    stage = tmp_path / "xskit" / "stages" / "loss.py"
    original = stage.read_text()
    stage.write_text(original.replace("< parameters.threshold", ">= parameters.threshold"))
    assert stage.read_text() != original
    other, left = probe()
    assert left == 10, "the edit is in force"
    assert other != name


# --- stages from outside ----------------------------------------------------------------------------------------


def test_stages_of_xskit_need_no_fingerprint() -> None:
    assert fingerprint("xskit.stages.loss", "xskit.stages.queues.droptail") == ""


def test_a_foreign_stage_is_known_by_all_that_it_leans_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper, stage = tmp_path / "xk_helper.py", tmp_path / "xk_stage.py"
    helper.write_text("def chance():\n    return 1\n")
    stage.write_text("from xk_helper import chance\nLIMIT = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("xk_stage")
    try:
        seen = [fingerprint("xk_stage")]
        assert fingerprint("xk_stage", "xskit.stages.loss") == seen[0]
        monkeypatch.setattr(module, "LIMIT", 4)
        seen.append(fingerprint("xk_stage"))
        stage.write_text(stage.read_text() + "# edited\n")
        seen.append(fingerprint("xk_stage"))
        helper.write_text("def chance():\n    return 2\n")
        seen.append(fingerprint("xk_stage"))
        assert len(set(seen)) == 4
        assert "" not in seen
    finally:
        del sys.modules["xk_stage"], sys.modules["xk_helper"]


# --- the folder -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "variable"), [("", "elsewhere"), ("import numba", "")])
def test_another_user_of_numba_changes_nothing(first: str, variable: str, tmp_path: Path) -> None:
    """All code lies in the folder that a hash of the sources names; Numba's own setting stays as it is."""
    code = f"{first}\n{PROBE}\nimport numba; assert numba.config.CACHE_DIR == {variable!r}"
    environment = os.environ | {"XSKIT_CACHE": str(tmp_path / "cache"), "NUMBA_CACHE_DIR": variable}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    written = {path.relative_to(tmp_path).parts for path in tmp_path.rglob("*") if path.is_file()}
    assert {parts[0] for parts in written} == ({"cache"} if not jit.DISABLED else set())
    assert ("virtual" in {parts[-1].partition(".")[0] for parts in written}) != jit.DISABLED


def test_threads_that_compile_at_once_leave_numbas_settings_as_they_were() -> None:
    config = compilation.numba.config
    before = config.LOOP_VECTORIZE
    compiling, first_is_done = threading.Event(), threading.Event()

    def compile_too() -> None:
        with compilation._compiling():
            compiling.set()
            first_is_done.wait()

    second = threading.Thread(target=compile_too)
    with compilation._compiling():
        second.start()
        compiling.wait(0.1)  # it must wait; would it not, its end would bring our settings back
    first_is_done.set()
    second.join()
    assert before == config.LOOP_VECTORIZE


def test_a_thread_does_not_see_half_a_generated_module() -> None:
    text = f"import time\ntime.sleep(0.2)\ndef run(): pass  # {os.getpid()}"
    known = set(sys.modules)
    first = threading.Thread(target=pipeline._import_generated, args=(text,))
    first.start()
    while not any(name.startswith("xskit_pipeline") for name in set(sys.modules) - known) and first.is_alive():
        time.sleep(0.001)
    made = pipeline._import_generated(text)
    assert callable(made.run)
    first.join()
    del sys.modules[made.__name__]


def test_a_module_that_an_interrupt_cut_short_is_made_again() -> None:
    text = f"import sys\nif not sys.was_interrupted: raise KeyboardInterrupt\ndef run(): pass  # {os.getpid()}"
    try:
        sys.was_interrupted = False
        with pytest.raises(KeyboardInterrupt):
            pipeline._import_generated(text)
        sys.was_interrupted = True
        made = pipeline._import_generated(text)
        assert callable(made.run)
        del sys.modules[made.__name__]
    finally:
        del sys.was_interrupted
