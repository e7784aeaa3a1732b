"""For all tests: nothing may be left behind, tests that need root say so, and hypothesis repeats itself in CI.

Workers of pytest-xdist run pure tests only, and each looks at its own file descriptors; what is left on the host is
looked for where tests with the marker `root` run, in one process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import hypothesis
import pytest

from tests.guards import Watch

CI = os.environ.get("CI", "").lower() in ("1", "true")
PLAIN_PYTHON = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
SHARED = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1  # pytest-xdist: this is one of several workers

# Timed assertions fail on a busy machine: no deadlines. Plain Python is slow, and compiled code has run all examples.
EXAMPLES = 30 if PLAIN_PYTHON else 100
hypothesis.settings.register_profile("dev", deadline=None, max_examples=EXAMPLES)
hypothesis.settings.register_profile(
    "ci", hypothesis.settings.get_profile("dev"), derandomize=True, database=None, print_blob=True
)
hypothesis.settings.load_profile("ci" if CI else "dev")

# Background jobs of a shell, and what nohup starts, ignore these signals, and pass that on: but tests send them.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# A worker that is plain Python holds the interpreter's lock; a test's threads would wait 5 ms for it at every call.
if PLAIN_PYTHON:
    sys.setswitchinterval(0.0005)

_WATCH = pytest.StashKey[Watch]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that belong to the other run: the one with the compiler, or the one without."""
    other = "compiled" if PLAIN_PYTHON else "plain_python"
    aside = [item for item in items if item.get_closest_marker(other) is not None]
    if aside:
        config.hook.pytest_deselected(items=aside)
        items[:] = [item for item in items if item not in aside]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") is not None and SHARED:
        pytest.fail("has the machine to itself: run it without --numprocesses", pytrace=False)
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        if CI:
            pytest.fail("needs root, and in CI everything runs", pytrace=False)
        pytest.skip("needs root")


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up first, so torn down last: every other fixture has cleaned up by then."""
    on_host = os.geteuid() == 0 and any(item.get_closest_marker("root") for item in request.session.items)
    watch = request.config.stash[_WATCH] = Watch(whole_host=on_host)
    yield
    if leaked := watch.leaked(last_test="the last test"):
        pytest.fail(
            "left behind (by these tests, or by another xskit on this machine):\n  " + "\n  ".join(leaked),
            pytrace=False,
        )


@pytest.fixture(autouse=True)
def _note_what_is_new(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    request.config.stash[_WATCH].note(request.node.nodeid)
