"""Signals made into exceptions: none is lost where Python would forget it, and nothing half made complains."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BEGIN = """
import signal, sys, time
from xskit.netconf.signals import no_signals, terminated_by_exception

class Interrupted:
    def __del__(self):
        signal.raise_signal(signal.{name})

class HalfMade:
    def __del__(self):
        self.never_set
"""

LOST = """
try:
    with terminated_by_exception():
        half_made, thing = HalfMade(), Interrupted()
        del thing
        time.sleep(3600)
except (KeyboardInterrupt, SystemExit) as error:
    print(repr(error))
    del half_made
"""

BEHIND = """
try:
    with terminated_by_exception():
        signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    pass
Interrupted()
time.sleep(0.1)
print("goes on")
"""

QUIET = """
with terminated_by_exception():
    HalfMade()
HalfMade()
"""


def run(code: str, name: str = "SIGINT") -> subprocess.CompletedProcess[str]:
    program = BEGIN.replace("{name}", name) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("name", "exception"), [("SIGINT", "KeyboardInterrupt()"), ("SIGTERM", f"Terminated({128 + signal.SIGTERM})")]
)
def test_an_exception_that_an_object_in_its_end_swallows_is_raised_again(name, exception):
    done = run(LOST, name)
    assert (done.stdout, done.stderr) == (f"{exception}\n", "")


def test_behind_the_block_no_alarm_ends_the_process():
    done = run(BEHIND)
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")


def test_without_a_signal_what_is_half_made_complains_as_ever():
    assert run(QUIET).stderr.count("AttributeError") == 2


def test_a_signal_waits_for_the_end_of_the_block():
    done = run(
        "try:\n"
        "    with no_signals():\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        print('goes on')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    assert (done.stdout, done.stderr) == ("goes on\ninterrupted set()\n", "")
