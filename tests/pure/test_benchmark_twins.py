"""The C twins of the benchmarks compile, and know the very records that the engine and the benchmarks use."""

from __future__ import annotations

import importlib
import os
import shutil
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("bed", "generator_library"),
        ("peers", "twin_library"),
        ("parts.bridge", "twin_library"),
        ("parts.pipeline", "twin_library"),
        ("parts.stores", "twin_library"),
    ],
)
def test_a_twin_has_the_records_of_what_it_is_compared_with(monkeypatch, module, library):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    getattr(importlib.import_module(module), library)()  # SystemExit: it does not compile, or a size is another


def test_every_twin_is_tested():
    sources = {path.stem for path in (BENCHMARKS / "c").glob("*.c")}
    assert sources == {"generator", "peer_modes", "bridge", "pipeline", "stores"}
