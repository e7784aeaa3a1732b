"""A disk that takes no compiled code costs time only: on real file systems, as root, whom no permission stops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.compiled,
]

PROGRAM = """
import ctypes
from xskit.jit import store_word
word = ctypes.c_int64()
store_word(ctypes.addressof(word), 42)
print(word.value)
"""

MOUNTED = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && "$@" && find "$XSKIT_CACHE" -type f'
"""Options, a folder and a command: run it over a file system of its own; then say which files are there."""


@pytest.mark.parametrize(("options", "why"), [("size=4k", "No space left on device"), ("ro", "Read-only file system")])
def test_code_is_compiled_where_it_cannot_be_kept(options: str, why: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", MOUNTED, "sh", options, str(tmp_path), sys.executable, "-c", PROGRAM],
        env=os.environ | {"XSKIT_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert done.stderr == (
        f"compiled code cannot be kept in {tmp_path}: {why}, so every start compiles again; "
        "set XSKIT_CACHE to a folder of your own\n"
    )
