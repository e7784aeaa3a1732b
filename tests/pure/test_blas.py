"""NumPy and SciPy start no threads in the command `xskit`, and are as ever in a process that imports xskit."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

NAMES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")

COUNT = """
import json, os, subprocess, sys
import numpy, scipy.special, scipy.linalg
child = "import json, os; print(json.dumps(dict(os.environ)))"
print(json.dumps({
    "threads": len(os.listdir("/proc/self/task")),
    "environment": dict(os.environ),
    "child": json.loads(subprocess.check_output([sys.executable, "-c", child])),
    "finders": [finder.__module__ for finder in sys.meta_path if type(finder) is not type],
    "loaders": [type(module.__spec__.loader).__module__ for module in (numpy, scipy, scipy.special)],
}))
"""

COMMAND = """
import contextlib, io, sys
from xskit.cli.start import main
sys.argv = ["xskit", "plan", "--rate", "1Gbit"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""

LIBRARY = """
import xskit
for name in xskit.__all__:
    getattr(xskit, name)
"""


def counted(before: str, **variables: str) -> dict[str, object]:
    """What a fresh process sees after running `before`, with only these of the variables that matter."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | variables
    ran = subprocess.run([sys.executable, "-c", before + COUNT], env=environment, capture_output=True, check=True)
    found: dict[str, object] = json.loads(ran.stdout)
    for place in ("environment", "child"):
        seen = found[place]
        assert isinstance(seen, dict)
        found[place] = {name: value for name, value in seen.items() if name in NAMES}
    return found


def test_the_command_has_no_threads_for_linear_algebra():
    found = counted(COMMAND)
    assert found["threads"] == 1
    assert found["environment"] == found["child"] == {}
    assert set(found["loaders"]) == {"_frozen_importlib_external"}  # type: ignore[call-overload]


@pytest.mark.parametrize("name", NAMES)
def test_what_the_user_says_of_threads_counts(name):
    found = counted(COMMAND, **{name: "2"})
    assert found["environment"] == found["child"] == {name: "2"}
    assert found["finders"] == counted("")["finders"]


def test_importing_xskit_leaves_a_users_numpy_alone():
    assert counted(LIBRARY) == counted("")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU: there are no threads to prevent")
def test_elsewhere_there_are_such_threads():
    assert counted("")["threads"] > 1  # type: ignore[operator]
