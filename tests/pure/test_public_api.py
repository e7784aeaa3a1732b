"""The public names: a change of one is a change of docs/reference/python.md, and is seen there in review.

Signatures are compared by test_docs.py, which holds that page to the code.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import xskit

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text()
NAMES = [name for name in xskit.__all__ if name != "__version__"]


def test_names_are_those_of_the_page():
    assert re.findall(r"^## xskit\.(\w+)$", PAGE, re.MULTILINE) == NAMES == sorted(NAMES)


def test_every_name_is_there_and_says_what_it_is():
    for name in NAMES:
        thing = getattr(xskit, name)
        assert thing.__name__ == name
        assert inspect.getdoc(thing), f"{name} has no docstring"
    assert dir(xskit) == sorted(xskit.__all__)


def test_members_are_those_of_the_page():
    for name in NAMES:
        members = re.findall(rf"^### {name}\.(\w+)$", PAGE, re.MULTILINE)
        assert [member for member in members if not hasattr(getattr(xskit, name), member)] == []


def test_import_loads_nothing():
    source = "import sys; before = set(sys.modules); import xskit; print(sorted(set(sys.modules) - before))"
    loaded = subprocess.check_output([sys.executable, "-c", source], text=True)
    assert not re.findall(r"'(?:numpy|numba|pydantic|xskit\.\w+)'", loaded)
