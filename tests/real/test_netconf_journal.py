"""Whatever becomes of a process that changed the host, what it changed is put back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from xskit import libc
from xskit.errors import KernelError
from xskit.netconf.changes import CreateNamespace, Fate, SetMtu
from xskit.netconf.journal import Journal, restore_dead
from xskit.netconf.namespaces import Namespace, create_namespace, inside, names, remove_namespace

pytestmark = pytest.mark.root

PREFIX = f"xkj{os.getpid()}"

CHANGES = """
import sys, time
from subprocess import DEVNULL
from xskit.netconf.journal import Journal
from xskit.netconf.changes import *
from xskit.netconf.signals import terminated_by_exception

prefix = sys.argv[1]

def change(journal, rounds=1):
    for round in range(rounds):
        a, b = f"{prefix}a{round}", f"{prefix}b{round}"
        journal.apply(CreateNamespace(a))
        journal.apply(CreateNamespace(b))
        journal.apply(CreateVeth(VethEnd("va", a), VethEnd(f"{prefix}{round}")))
        journal.apply(SetAddress("va", "10.9.0.1/24", namespace=a))
        journal.apply(SetLinkUp("va", namespace=a))
        journal.apply(SetOffload("va", {"tx": False}, namespace=a))
        journal.apply(SetMtu(f"{prefix}{round}", 2000))
        journal.apply(StartedProcess(["sleep", "600"], a, options={"stdout": DEVNULL, "stderr": DEVNULL}))
"""


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


def start(body: str) -> subprocess.Popen[str]:
    """A process that makes changes and says "ready"."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHANGES + body, PREFIX], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()
    return process


def left() -> list[str]:
    """What is there of ours: namespaces, interfaces, processes, journals."""
    interfaces = [name for name in os.listdir("/sys/class/net") if name.startswith(PREFIX)]
    sleepers = subprocess.run(
        ["pgrep", "-f", "^sleep 600$"], capture_output=True, text=True, check=False
    ).stdout.split()
    ours = [pid for pid in sleepers if os.environ["XSKIT_RUN"].encode() in Path("/proc", pid, "environ").read_bytes()]
    folder = Path(os.environ["XSKIT_RUN"])
    files = [entry.name for entry in folder.iterdir()] if folder.exists() else []
    return [name for name in names() if name.startswith(PREFIX)] + interfaces + ours + files


ENDS = {
    "the end of the block": ("with Journal.open() as j: change(j); print('ready', flush=True)", None, 0),
    "the interpreter's exit": ("j = Journal.open(); change(j); print('ready', flush=True)", None, 0),
    "an exception": ("with Journal.open() as j: change(j); print('ready', flush=True); 1/0", None, 1),
    "sys.exit": ("j = Journal.open(); change(j); print('ready', flush=True); sys.exit(3)", None, 3),
    "Ctrl-C": ("j = Journal.open(); change(j); print('ready', flush=True); time.sleep(60)", signal.SIGINT, -2),
    **{
        name: (
            "with terminated_by_exception(), Journal.open() as j:\n"
            "    change(j); print('ready', flush=True); time.sleep(60)",
            number,
            128 + number,
        )
        for name, number in {"SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}.items()
    },
}


@pytest.mark.parametrize("end", ENDS)
def test_put_back_at(end):
    body, number, code = ENDS[end]
    process = start(body)
    if number is not None:
        process.send_signal(number)
    process.communicate()
    assert process.returncode == code
    assert left() == []


def test_an_ignored_hangup_stays_ignored():
    process = start(
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with terminated_by_exception():\n"
        "    print('ready', flush=True); time.sleep(60)"
    )
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM


def test_after_sigkill_the_next_start_puts_back():
    process = start("j = Journal.open(); change(j, 2); print('ready', flush=True); time.sleep(60)")
    assert restore_dead() == []  # it lives
    process.kill()
    process.communicate()
    assert len(left()) == 2 * 4 + 1
    fates = restore_dead()
    assert {fate.fate for fate in fates} <= {Fate.RESTORED, Fate.GONE}
    assert len(fates) == 2 * 8
    assert left() == []
    assert restore_dead() == []


@pytest.mark.parametrize("delay_ms", range(0, 60, 6))
def test_sigkill_at_any_moment(delay_ms):
    process = start("print('ready', flush=True)\nj = Journal.open()\nchange(j, 40); time.sleep(60)")
    time.sleep(delay_ms / 1000)
    process.kill()
    process.communicate()
    assert [str(fate) for fate in restore_dead() if fate.fate is Fate.FAILED] == []
    assert left() == []


def test_two_processes_restore_the_same_dead_one():
    process = start("j = Journal.open(); change(j, 3); print('ready', flush=True); time.sleep(60)")
    process.kill()
    process.communicate()
    code = "from xskit.netconf.journal import restore_dead; print(*restore_dead(), sep='\\n')"
    restorers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [restorer.communicate()[0].split("\n") for restorer in restorers]
    assert [restorer.returncode for restorer in restorers] == [0, 0, 0]
    lines = [line for lines in said for line in lines if line]
    assert len(lines) == 3 * 8  # each change was put back by exactly one
    assert not any("not put back" in line for line in lines)
    assert left() == []


def test_two_processes_live_side_by_side(run):
    other = start("j = Journal.open(); change(j); print('ready', flush=True); time.sleep(60)")
    with Journal.open() as journal:
        journal.apply(CreateNamespace(f"{PREFIX}mine"))
        assert len(list(run.iterdir())) == 2
        other.kill()
        other.communicate()
        restore_dead()
        assert Namespace(f"{PREFIX}mine").exists
        assert len(list(run.iterdir())) == 1
    assert left() == []


def test_the_dead_one_lived_in_another_namespace(run):
    """Its own interfaces are looked for where it lived, never here."""
    there = create_namespace(f"{PREFIX}home")
    mtu = "from xskit.netconf.interfaces import mtu; print('ready' if mtu('lo') == 4000 else mtu('lo'), flush=True)"
    try:
        with inside(there):
            process = start(f"j = Journal.open(); j.apply(SetMtu('lo', 4000)); {mtu}; time.sleep(60)")
        process.kill()
        process.communicate()
        assert [str(fate) for fate in restore_dead()] == ["MTU 4000 of lo: put back"]
        with inside(there):
            assert SetMtu("lo", 65536).check()
            process = start(f"j = Journal.open(); j.apply(SetMtu('lo', 4000)); {mtu}; time.sleep(60)")
    finally:
        remove_namespace(there.name)
    process.kill()
    process.communicate()
    assert [str(fate) for fate in restore_dead()] == [
        "MTU 4000 of lo: gone already (the network namespace of its process is gone)"
    ]


def fill(path: Path) -> None:
    with suppress(OSError), open(path, "wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


def apply_many(journal: Journal) -> None:
    for number in range(40):
        journal.apply(CreateNamespace(f"{PREFIX}b{number}"))


def test_full_disk(run):
    """On a tmpfs of four pages, really full: nothing is changed; and what was changed before is put back."""
    run.mkdir()
    libc.mount("none", str(run), "tmpfs", 0)
    try:
        subprocess.run(["mount", "-o", "remount,size=16k", str(run)], check=True)
        with Journal.open() as journal:
            journal.apply(CreateNamespace(f"{PREFIX}a"))
            fill(run / "filler")
            with pytest.raises(KernelError) as caught:
                apply_many(journal)
            assert str(caught.value) == (
                f"the journal under {run} cannot be written: No space left on device\n  try: df -h {run}"
            )
            ours = {name for name in names() if name.startswith(PREFIX)}
            assert ours == {change.name for change in journal.pending}
            second = Journal.open()
            with pytest.raises(KernelError, match="cannot be written: No space left"):
                second.apply(CreateNamespace(f"{PREFIX}c"))
            second.close()
            assert {name for name in names() if name.startswith(PREFIX)} == ours
        assert sorted(entry.name for entry in run.iterdir()) == ["filler"]
    finally:
        libc.umount(str(run))
    assert left() == []
