"""Journals of the dead: whenever death comes, the next start puts everything back, and touches nothing else."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from itertools import pairwise

import pytest
import typer

from tests.pure.support_journal import (
    DEAD,
    MACHINE,
    Camera,
    Poke,
    journal_folder,  # noqa: F401  a fixture
    journals,
    leave,
    no_camera,
)
from xskit.cli.restore import restore
from xskit.errors import KernelError
from xskit.netconf import journalfile, pids
from xskit.netconf.changes import Fate
from xskit.netconf.journal import Journal, restore_dead


def test_every_moment_of_death(folder, monkeypatch):
    """SIGKILL after each step on the machine and each byte of the file: the next start puts everything back."""
    moments: list[tuple[bytes, dict[str, int]]] = []

    def photograph() -> None:
        files = list(folder.glob("*.jsonl"))
        moments.append((files[0].read_bytes() if files else b"", dict(MACHINE)))

    real_write = journalfile.JournalFile.write

    def write(self, event):
        real_write(self, event)
        photograph()

    monkeypatch.setattr(journalfile.JournalFile, "write", write)
    Camera.look = staticmethod(photograph)
    photograph()
    with Journal.open() as journal:
        journal.apply(Poke("old", 2))
        journal.apply(Poke("new", 4))
        journal.apply(Poke("old", 3))
    Camera.look = staticmethod(no_camera)
    monkeypatch.setattr(journalfile.JournalFile, "write", real_write)

    deaths = list(moments)
    for (before, machine), (after, _) in pairwise(moments):
        deaths += [(after[:size], machine) for size in range(len(before), len(after))]
    assert len(deaths) > 500
    for content, machine in deaths:
        MACHINE.clear()
        MACHINE.update(machine)
        leave(folder, content)
        assert all(fate.fate is not Fate.FAILED for fate in restore_dead()), content
        assert MACHINE == {"old": 1}, content
        assert journals(folder) == []


def test_death_while_restoring_the_dead(folder, monkeypatch):
    """The restorer writes behind a line that was cut short, and dies as well."""
    with Journal.open() as journal:
        journal.apply(Poke("a", 1))
        journal.apply(Poke("b", 2))
        content = (folder / journals(folder)[0]).read_bytes()
        machine = dict(MACHINE)
    MACHINE.update(machine)
    leave(folder, content + b'{"id":2,"event":"plan')

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    Camera.look = staticmethod(die)
    with pytest.raises(Killed):
        restore_dead()
    assert MACHINE == {"old": 1, "a": 1}  # b is back, but that is not written down
    Camera.look = staticmethod(no_camera)
    assert {str(fate) for fate in restore_dead()} == {"poke b: gone already (other)", "poke a: put back"}
    assert MACHINE == {"old": 1}
    assert journals(folder) == []


def test_a_living_process_is_left_alone(folder):
    with Journal.open() as journal:
        journal.apply(Poke("a", 1))
        assert restore_dead() == []
        assert MACHINE == {"old": 1, "a": 1}


def test_a_pid_that_was_given_away_is_dead(folder):
    start = pids.start_time(os.getpid())
    leave(folder, b"", f"{os.getpid()}-{start - 1}-0.jsonl")
    leave(folder, b"", f"{os.getpid()}-{start}-0.jsonl")
    restore_dead()
    assert journals(folder) == [f"{os.getpid()}-{start}-0.jsonl"]


def test_a_zombie_is_dead():
    with subprocess.Popen(["sleep", "60"]) as process:
        start = pids.start_time(process.pid)
        assert start is not None
        assert pids.is_running(process.pid, start)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped
        assert not pids.is_running(process.pid, start)


def test_after_a_restart_of_the_machine_nothing_is_touched(folder):
    lines = [
        {"xskit": 1, "boot": "another", "home": 1},
        {"id": 0, "event": "planned", "kind": "Poke", "change": {"name": "old", "value": 1, "before": 5}},
    ]
    leave(folder, b"\n".join(json.dumps(line).encode() for line in lines))
    assert [str(fate) for fate in restore_dead()] == ["poke old: gone already (the machine was restarted)"]
    assert MACHINE == {"old": 1}


def written(folder, *lines):
    leave(folder, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    return str(folder / DEAD)


HEADER = {"xskit": 1, "boot": journalfile.boot(), "home": None}


KNOWN = {"id": 1, "event": "planned", "kind": "Poke", "change": {"name": "old", "value": 1, "before": 5}}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"id": 0, "event": "planned", "kind": "NotYetInvented", "change": {}}, "a change NotYetInvented"),
        ({"id": 0, "event": "planned", "kind": "Poke", "change": {"name": "a", "since": 3}}, "a change Poke"),
        ({"id": 0, "event": "planned", "kind": "Poke", "change": ["a", 3]}, "an event 'planned'"),
        ({"id": 0, "event": "planned", "kind": "SetMtu", "change": {}}, "a change SetMtu"),
        ({"id": 0, "event": "planned"}, "an event 'planned'"),
        ({"id": [0], "event": "done"}, "an event 'done'"),
        ({"id": 0, "event": "moved", "to": 7}, "an event 'moved'"),
        ({}, "an event None"),
    ],
)
def test_what_another_version_wrote_is_told_and_kept_and_the_rest_put_back(folder, line, what):
    path = written(folder, HEADER, line, KNOWN)
    failed, done = restore_dead()
    assert str(failed) == f"{what}: not put back (another version of xskit wrote it)"
    assert failed.remedy == (
        f"xskit restore, of the version that wrote {path}; or, when nothing of it is left: rm {path}"
    )
    assert str(done) == "poke old: put back"
    assert MACHINE == {"old": 5}
    assert journals(folder) == [DEAD]
    assert restore_dead() == [failed], "what was put back is not put back again"


def test_a_journal_of_a_later_version(folder):
    written(folder, HEADER | {"xskit": 2}, {"event": "noted"}, KNOWN)
    failed, done = restore_dead()
    assert str(failed) == "an event 'noted': not put back (journals of version 2 are not known)"
    assert str(done) == "poke old: put back"


def test_a_record_with_other_types_stops_nothing(folder):
    path = written(
        folder, HEADER, KNOWN, {"id": 2, "event": "planned", "kind": "Poke", "change": {"name": ["x"], "value": 1}}
    )
    failed, done = restore_dead()
    assert str(failed).startswith("a change Poke: not put back (its record makes no sense to this version: ")
    assert failed.remedy.endswith(f"rm {path}")
    assert str(done) == "poke old: put back"


def test_the_command_says_what_cannot_be_put_back(folder, capsys):
    path = written(folder, HEADER, KNOWN, {"id": 0, "event": "planned", "kind": "NotYetInvented", "change": {}})
    with pytest.raises(typer.Exit) as ended:
        restore()
    assert ended.value.exit_code == 1
    told = capsys.readouterr()
    assert told.out == (
        "a change NotYetInvented: not put back (another version of xskit wrote it)\npoke old: put back\n"
    )
    assert told.err == (
        f"try: xskit restore, of the version that wrote {path}; or, when nothing of it is left: rm {path}\n"
    )


def test_a_strangers_journal_is_not_obeyed(folder, monkeypatch):
    leave(folder, b"")
    monkeypatch.setattr(journalfile.os, "geteuid", lambda: 12345)
    assert restore_dead() == []
    assert journals(folder) == [DEAD]


def test_a_journal_that_may_not_be_read_says_who_may(folder, monkeypatch):
    leave(folder, b"")

    def forbidden(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(journalfile.os, "open", forbidden)
        with pytest.raises(KernelError) as caught:
            restore_dead()
    assert caught.value.cause == f"the journal under {folder} cannot be read: Permission denied"
    assert caught.value.remedy.startswith("sudo, or XSKIT_RUN=")


def test_no_folder_no_journals():
    assert restore_dead() == []
