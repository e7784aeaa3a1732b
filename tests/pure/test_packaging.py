"""requirements.lock says what pyproject.toml asks for, from public PyPI, with hashes, as wheels, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "requirements.lock").read_text()
PINS = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, re.MULTILINE))
DEV = PYPROJECT["dependency-groups"]["dev"]


@pytest.mark.parametrize("text", [*PYPROJECT["project"]["dependencies"], *DEV, *PYPROJECT["build-system"]["requires"]])
def test_what_is_asked_for_is_locked(text):
    asked = Requirement(text)
    assert PINS[canonicalize_name(asked.name)] in asked.specifier, "run make lock"


@pytest.mark.parametrize("text", DEV)
def test_tools_are_pinned(text):
    assert re.fullmatch(r"[a-z0-9-]+==[0-9.]+", text)


def test_a_line_of_the_lock_is_a_pin_a_hash_or_a_comment():
    pin = r"[a-z0-9-]+==[0-9a-z.]+( ; [^/@]+)? \\"
    digest = r"    --hash=sha256:[0-9a-f]{64}( \\)?"
    comment = r" *#( +[a-z0-9-]+( \(pyproject\.toml(:dev)?\))?| +via.*| This file was .*| +make lock)"
    odd = [line for line in LOCK.splitlines() if not re.fullmatch(f"{pin}|{digest}|{comment}", line)]
    assert odd == []
