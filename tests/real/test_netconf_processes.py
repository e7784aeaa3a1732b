"""Commands inside a network namespace: what they see, what their parent does not see, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from xskit import libc
from xskit.errors import KernelError, UsageError
from xskit.netconf import pids, processes
from xskit.netconf.changes import CreateNamespace, Fate, StartedProcess
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import MissingError, identity
from xskit.netconf.processes import spawn_in

pytestmark = pytest.mark.root

NAME = f"xkp{os.getpid()}"


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path / "run"))
    with Journal.open() as journal:
        journal.apply(CreateNamespace(NAME))
        yield journal


def output(*argv: str, **options) -> str:
    with spawn_in(NAME, argv, stdout=subprocess.PIPE, text=True, **options) as process:
        out, _ = process.communicate()
    assert process.returncode == 0
    return out


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


@pytest.mark.usefixtures("journal")
def test_peer_is_a_name():
    hosts = {"peer": ["10.99.0.2"], "other": ["fd99::2"]}
    assert output("getent", "hosts", "peer", hosts=hosts).split() == ["10.99.0.2", "peer"]
    assert output("getent", "ahosts", "other", hosts=hosts).split()[0] == "fd99::2"
    assert output("getent", "hosts", "localhost", hosts=hosts)  # /etc/hosts is extended, not replaced


@pytest.mark.usefixtures("journal")
def test_our_names_come_before_those_of_the_machine():
    assert output("getent", "hosts", "localhost", hosts={"localhost": ["10.99.0.3"]}).split()[0] == "10.99.0.3"


@pytest.mark.usefixtures("journal")
def test_it_is_inside_and_sees_the_interfaces_of_its_namespace():
    inside, interfaces = output("sh", "-c", "readlink /proc/self/ns/net; ls /sys/class/net").split()
    assert inside == f"net:[{identity(f'/run/netns/{NAME}')}]"
    assert interfaces == "lo"


@pytest.mark.usefixtures("journal")
def test_what_was_mounted_under_sys_is_still_there():
    points = [line.split()[4] for line in mounts().splitlines()]
    below = [point for point in points if point.startswith("/sys/")]
    seen = output("cat", "/proc/self/mountinfo")
    assert {point for point in below if f" {point} " not in seen} == set()
    for point in below:
        assert set(output("ls", "-A", point).split()) == set(os.listdir(point))


@pytest.mark.usefixtures("journal")
def test_the_parent_is_unaffected():
    before = (mounts(), Path("/etc/hosts").read_bytes(), identity(), sorted(os.listdir("/sys/class/net")))
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    output("true", hosts={"peer": ["10.99.0.2"]})
    assert (mounts(), Path("/etc/hosts").read_bytes(), identity(), sorted(os.listdir("/sys/class/net"))) == before
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, descriptors)
    assert os.stat("/proc/self/ns/mnt").st_ino == os.stat("/proc/thread-self/ns/mnt").st_ino


@pytest.mark.usefixtures("journal")
def test_popen_options_and_exit_code():
    env, pipe = {"COLOUR": "blue", "PATH": os.environ["PATH"]}, subprocess.PIPE
    argv = ["sh", "-c", "echo $COLOUR >&2; pwd; exit 7"]
    with spawn_in(NAME, argv, env=env, cwd="/tmp", stdout=pipe, stderr=pipe, text=True) as process:
        assert process.communicate() == ("/tmp\n", "blue\n")
    assert process.returncode == 7


@pytest.mark.usefixtures("journal")
def test_commands_that_cannot_be_started(tmp_path):
    with pytest.raises(UsageError, match="^xk-nonsense cannot be started: No such file or directory$"):
        spawn_in(NAME, ["xk-nonsense"])
    with pytest.raises(UsageError, match="^true cannot be started in /xk-nowhere: No such file or directory$"):
        spawn_in(NAME, ["true"], cwd="/xk-nowhere")
    with pytest.raises(UsageError, match="cannot be started: Permission denied"):
        spawn_in(NAME, [str(tmp_path)])
    with pytest.raises(MissingError, match="there is no network namespace xk-none"):
        spawn_in("xk-none", ["true"])


@pytest.mark.usefixtures("journal")
def test_no_hosts_file_to_extend(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "_HOSTS", str(tmp_path / "hosts"))
    with pytest.raises(KernelError) as caught:
        spawn_in(NAME, ["true"], hosts={"peer": ["10.99.0.2"]})
    assert str(caught.value) == (f"there is no {tmp_path}/hosts to add peer to\n  try: touch {tmp_path}/hosts")
    assert output("echo", "fine") == "fine\n"  # without names of its own it needs none


@pytest.mark.usefixtures("journal")
def test_a_name_daemon_is_not_asked(monkeypatch, tmp_path):
    """nscd and systemd-resolved would answer from the machine's /etc/hosts: their sockets are covered."""
    import socket

    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(path)
        daemon.listen()
        monkeypatch.setattr(processes, "_NAME_DAEMONS", (path, "/nonexistent"))
        assert output("stat", "-Lc", "%F", path, hosts={"peer": ["10.99.0.2"]}) == "character special file\n"
        assert output("stat", "-Lc", "%F", path) == "socket\n"


@pytest.mark.usefixtures("journal")
def test_where_sys_cannot_be_mounted_the_command_still_runs(monkeypatch):
    real = libc.mount

    def mount(source, target, kind, flags):
        if kind == "sysfs":
            raise PermissionError(1, "Operation not permitted")
        real(source, target, kind, flags)

    monkeypatch.setattr(libc, "mount", mount)
    assert output("getent", "hosts", "peer", hosts={"peer": ["10.99.0.2"]}).split() == ["10.99.0.2", "peer"]


def test_ends_with_the_journal(journal):
    process = StartedProcess(["sleep", "60"], NAME)
    journal.apply(process)
    assert process.process is not None
    pid, start = process.process.pid, process.start
    assert pids.is_running(pid, start)
    assert journal.restore()[0].fate is Fate.RESTORED
    assert not pids.is_running(pid, start)
    assert process.process.returncode == -signal.SIGTERM


def test_one_that_has_ended_is_gone(journal):
    process = StartedProcess(["true"], NAME)
    journal.apply(process)
    process.process.wait()
    assert journal.undo(process).fate is Fate.GONE


def test_one_that_ignores_sigterm_and_its_children_end_too(journal, monkeypatch):
    from xskit.netconf.changes import processes as changes

    monkeypatch.setattr(changes, "_GRACE_S", 0.2)
    script = "trap '' TERM; sleep 61 & setsid sleep 62 & echo ready; wait; sleep 63"
    process = StartedProcess(["sh", "-c", script], NAME, options={"stdout": subprocess.PIPE})
    journal.apply(process)
    with process.process.stdout:
        process.process.stdout.readline()
    mark = process.mark.encode()
    while len(family(mark)) < 3:
        time.sleep(0.001)
    assert journal.undo(process).fate is Fate.RESTORED
    assert family(mark) == []


def family(mark: bytes) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and mark in Path("/proc", entry, "environ").read_bytes():
                found.append(int(entry))
        except OSError:
            continue
    return found


def test_another_process_with_the_same_pid_is_left_alone(journal):
    with subprocess.Popen(["sleep", "60"]) as stranger:
        start = pids.start_time(stranger.pid)
        assert start is not None
        change = StartedProcess(["sleep", "60"], NAME, pid=stranger.pid, start=start - 1)
        assert change.restore().fate is Fate.GONE
        assert pids.is_running(stranger.pid, start)
        stranger.kill()
    assert journal.pending


def test_one_whose_pid_was_never_written_down_is_found(journal):
    process = StartedProcess(["sleep", "60"], NAME)
    journal.apply(process)
    forgetful = StartedProcess.from_record({**process.record(), "pid": None, "start": None})
    assert forgetful.restore().fate is Fate.RESTORED
    assert process.process.wait() == -signal.SIGTERM
    assert journal.undo(process).fate is Fate.GONE
