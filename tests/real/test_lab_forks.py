"""A forked process may use the hosts of its parent's lab, and change nothing of the lab."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.real.lab_rig import wait_until
from xskit.errors import UsageError
from xskit.lab import Lab
from xskit.netconf.journal import restore_dead

pytestmark = pytest.mark.root

FORK = multiprocessing.get_context("fork")


def in_child(function: Callable[[], Any]) -> Any:
    """What `function` returns, or the UsageError that it raises, in a forked process."""

    def run(answer: Connection) -> None:
        try:
            answer.send(function())
        except UsageError as error:
            answer.send(error.cause)

    here, there = FORK.Pipe(duplex=False)
    with here, there:
        process = FORK.Process(target=run, args=(there,))
        process.start()
        try:
            return here.recv() if here.poll(60) else None
        finally:
            process.join()
            process.close()


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_child_cannot_change_the_lab():
    with Lab() as lab:
        a, b = lab.host("a"), lab.host("b")
        before = lab._journal.pending
        refused = f"the lab belongs to process {os.getpid()}, from which this one was forked"
        for call in (lambda: lab.host("c"), lab.machine, lambda: lab.link(a, b), lab.close):
            assert in_child(call) == refused
        assert in_child(lab._journal.restore) == []
        assert in_child(lambda: lab._journal.undo(before[0])) == refused.replace(
            "the lab belongs to", "the changes to this machine belong to"
        )
        assert in_child(lambda: lab.__exit__(None, None, None)) is None
        assert list(lab.hosts) == ["a", "b"]
        assert [str(change) for change in lab._journal.pending] == [*map(str, before), "commands of forked processes"]
        assert lab.host("c").run("true").returncode == 0


def test_a_child_can_use_the_hosts_that_are_there():
    with Lab() as lab:
        a, machine = lab.host("a"), lab.machine()
        file = lab._journal._file

        def use() -> tuple[str, list[str], int]:
            before = os.path.getsize(file.path)
            shown = a.run("ls", "/sys/class/net", capture_output=True, text=True).stdout
            with a.inside():
                seen = [name for _, name in socket.if_nameindex()]
            assert machine.run("true").returncode == 0
            assert os.path.getsize(file.path) == before, "only the parent writes its journal"
            return shown, seen, a.spawn("sleep", "600").pid

        for _ in range(2):
            shown, seen, pid = in_child(use)
            assert (shown, seen) == ("lo\n", ["lo"])
            assert running(pid)
    assert not running(pid), "it ended with the lab"


ABANDONS = """
import os, signal, subprocess, xskit
lab = xskit.Lab()
a = lab.host("a")
if os.fork() == 0:
    print(a.spawn("sleep", "600", stdout=subprocess.DEVNULL).pid, flush=True)
    os._exit(0)
os.wait()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_child_started_ends_with_its_killed_parents_lab():
    done = subprocess.run([sys.executable, "-c", ABANDONS], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    assert running(pid)
    assert {fate.what: fate.fate for fate in restore_dead()}["commands of forked processes"] == "put back"
    wait_until(lambda: not running(pid), "the command has ended")
