"""Compiled code relies on records of different classes not to overlap: it does the same as a build that does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def build(**variables: str) -> dict[str, Any]:
    """What the runs of aliasing_runs.py give with these variables."""
    environment = {name: value for name, value in os.environ.items() if name != "XSKIT_STRICT_ALIASING"} | variables
    command = [sys.executable, "-m", "tests.pure.aliasing_runs"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.fixture(scope="module")
def strict() -> dict[str, Any]:
    return build()


@pytest.fixture(scope="module")
def careful() -> dict[str, Any]:
    """The debug build."""
    return build(XSKIT_STRICT_ALIASING="0")


def test_both_builds_give_every_packet_the_same_fate(strict, careful):
    assert strict["runs"] == careful["runs"]
    for name, run in strict["runs"].items():
        assert run["updates"] == 1, name
        assert len(run["departures"]) > 200, name
        assert sum(packets for packets, _ in run["dropped"]) > 50, name


@pytest.mark.compiled
def test_the_debug_build_makes_no_promise(strict, careful):
    """A program that breaks the promise: the store is not seen in one build, and is seen in the other."""
    assert (strict["met"], careful["met"]) == (1, 2)


def test_each_build_has_a_cache_folder_of_its_own(strict, careful):
    assert strict["folder"] != careful["folder"]
