"""The journal against a machine that is a dictionary: whenever death comes, the next start puts everything back."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import typer

from xskit.cli.restore import restore
from xskit.errors import DeviceError, KernelError, XskitError
from xskit.netconf import journal as journal_module
from xskit.netconf import journalfile, pids
from xskit.netconf.changes import Change, Fate, Restored
from xskit.netconf.journal import Journal, restore_dead
from xskit.netconf.namespaces import MissingError

MACHINE: dict[str, int] = {}
DEAD = "4194305-1-0.jsonl"  # one more than the largest pid there can be (PID_MAX_LIMIT)


def _nothing() -> None:
    """What happens after each step on the machine; a test may put a camera here."""


class Camera:
    look = staticmethod(_nothing)


@dataclass
class Poke(Change):
    """MACHINE[name] = value, in two steps, as real changes have them."""

    name: str
    value: int
    before: int | None = field(default=None, kw_only=True)
    serial: int | None = field(default=None, kw_only=True)
    trouble: str = field(default="", kw_only=True)

    def __str__(self):
        return f"poke {self.name}"

    def check(self):
        return MACHINE.get(self.name) == self.value

    def remember(self):
        self.before = MACHINE.get(self.name)

    def apply(self):
        MACHINE[self.name] = -1
        Camera.look()
        if self.trouble == "half":
            raise KernelError("half-way")
        MACHINE[self.name] = self.value
        self.serial = 7
        Camera.look()

    def restore(self):
        if self.trouble == "gone":
            raise MissingError("gone")
        if self.trouble == "stuck":
            raise KernelError("it is stuck")
        if MACHINE.get(self.name) not in (self.value, -1):
            return self._fate(Fate.KEPT if MACHINE.get(self.name) != self.before else Fate.GONE, "other")
        if self.before is None:
            del MACHINE[self.name]
        else:
            MACHINE[self.name] = self.before
        Camera.look()
        return self._fate(Fate.RESTORED)


@dataclass
class Make(Poke):
    exclusive = True

    def check(self):
        return self.name in MACHINE


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path / "run"))
    MACHINE.clear()
    MACHINE["old"] = 1
    yield tmp_path / "run"
    Camera.look = staticmethod(_nothing)


def journals(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def leave(folder: Path, content: bytes, name: str = DEAD) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)


def test_restores_newest_first_and_removes_its_file(folder):
    with Journal.open() as journal:
        assert journals(folder) == []
        assert journal.apply(Poke("old", 2))
        assert journal.apply(Poke("old", 3))
        assert journal.apply(Poke("new", 4))
        assert MACHINE == {"old": 3, "new": 4}
        assert len(journals(folder)) == 1
        fates = journal.restore()
        assert [fate.what for fate in fates] == ["poke new", "poke old", "poke old"]
    assert MACHINE == {"old": 1}
    assert journals(folder) == []


def test_a_journal_can_be_used_again_after_restore(folder):
    with Journal.open() as journal:
        journal.apply(Poke("new", 4))
        journal.restore()
        journal.apply(Poke("new", 5))
        assert len(journals(folder)) == 1
    assert MACHINE == {"old": 1}


def test_two_journals_in_one_process_have_files_of_their_own(folder):
    with Journal.open() as first, Journal.open() as second:
        first.apply(Poke("new", 4))
        second.apply(Poke("newer", 5))
        assert len(journals(folder)) == 2
    assert journals(folder) == []


def test_what_is_as_wanted_is_not_journaled(folder):
    with Journal.open() as journal:
        assert not journal.apply(Poke("old", 1))
        assert journal.pending == []
        assert journals(folder) == []


def test_what_must_be_its_own_may_not_be_there(folder):
    with Journal.open() as journal, pytest.raises(DeviceError, match="there is already a poke old"):
        journal.apply(Make("old", 1))
    assert MACHINE == {"old": 1}
    assert journals(folder) == []


def test_a_change_that_fails_half_way_is_undone(folder):
    with Journal.open() as journal:
        with pytest.raises(KernelError, match="half-way"):
            journal.apply(Poke("old", 2, trouble="half"))
        assert MACHINE == {"old": 1}
        assert journal.pending == []


def test_undo_takes_one_out_of_the_middle(folder):
    first, second = Poke("a", 1), Poke("b", 2)
    with Journal.open() as journal:
        journal.apply(first)
        journal.apply(second)
        assert journal.undo(first).fate is Fate.RESTORED
        assert journal.undo(first).fate is Fate.GONE
        assert MACHINE == {"old": 1, "b": 2}
        assert journal.pending == [second]


def test_one_that_fails_does_not_stop_the_others(folder):
    journal = Journal.open()
    journal.apply(Poke("a", 1))
    journal.apply(Poke("b", 2, trouble="stuck"))
    journal.apply(Poke("c", 3, trouble="gone"))
    journal.apply(Poke("d", 4))
    with pytest.raises(XskitError, match=r"^poke b: not put back \(it is stuck\)\n") as caught:
        journal.close()
    assert caught.value.remedy == "xskit restore"
    assert MACHINE == {"old": 1, "b": 2, "c": 3}
    assert len(journals(folder)) == 1  # b is still in it, for `xskit restore`


def test_closed_is_closed(folder):
    journal = Journal.open()
    journal.apply(Poke("b", 2, trouble="stuck"))
    with pytest.raises(XskitError, match="stuck"):
        journal.close()
    journal.close()
    assert journal.restore() == []
    with pytest.raises(XskitError, match="the journal is closed"):
        journal.apply(Poke("c", 3))
    assert MACHINE == {"old": 1, "b": 2}
    assert len(journals(folder)) == 1


def test_somebody_elses_change_is_left_alone_and_said():
    journal = Journal.open()
    journal.apply(Poke("old", 2))
    MACHINE["old"] = 99
    assert [str(fate) for fate in journal.restore()] == ["poke old: left alone (other)"]
    journal.close()
    assert MACHINE == {"old": 99}


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
    Camera.look = staticmethod(_nothing)
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
    Camera.look = staticmethod(_nothing)
    assert {str(fate) for fate in restore_dead()} == {"poke b: gone already (other)", "poke a: put back"}
    assert MACHINE == {"old": 1}
    assert journals(folder) == []


def test_a_done_line_goes_behind_a_line_that_was_cut_short(folder):
    folder.mkdir()
    file = journalfile.JournalFile.create({"xskit": 1})
    os.write(file._fd, b'{"id": 0, "eve')
    file.write({"id": 1})
    assert file.read() == [{"xskit": 1}, {"id": 1}]
    file.unlink()
    file.close()


def test_full_disk_nothing_is_applied(folder, monkeypatch):
    with Journal.open() as journal:
        journal.apply(Poke("a", 1))
        size = (folder / journals(folder)[0]).stat().st_size

        def full(fd, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(journalfile.os, "write", full)
            with pytest.raises(KernelError) as caught:
                journal.apply(Poke("b", 2))
        assert str(caught.value) == (
            f"the journal under {folder} cannot be written: No space left on device\n  try: df -h {folder}"
        )
        assert MACHINE == {"old": 1, "a": 1}
        assert (folder / journals(folder)[0]).stat().st_size == size
        assert journal.apply(Poke("b", 2))  # there is space again


def test_full_disk_between_applying_and_writing_down_undoes_the_change(folder, monkeypatch):
    real_write = journalfile.JournalFile.write

    def write(self, event):
        if event.get("event") != "planned" and "xskit" not in event:
            raise KernelError("full")
        real_write(self, event)

    monkeypatch.setattr(journalfile.JournalFile, "write", write)
    with Journal.open() as journal:
        with pytest.raises(KernelError, match="full"):
            journal.apply(Poke("a", 1))
        assert MACHINE == {"old": 1}
    assert journals(folder) == []


def test_interrupts_do_not_stop_restoring(folder):
    count = 0

    def interrupt() -> None:
        nonlocal count
        count += 1
        if count == 1:
            raise KeyboardInterrupt

    journal = Journal.open()
    journal.apply(Poke("a", 1))
    journal.apply(Poke("b", 2))
    Camera.look = staticmethod(interrupt)
    with pytest.raises(KeyboardInterrupt):
        journal.close()
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


def test_a_forked_child_restores_nothing(folder):
    with Journal.open() as journal:
        journal.apply(Poke("a", 1))
        journal._pid += 1  # as a child sees it
        assert journal.restore() == []
        assert MACHINE == {"old": 1, "a": 1}
        journal._pid -= 1


def test_no_folder_no_journals():
    assert restore_dead() == []


def test_restored_reads_as_a_sentence():
    assert str(Restored("MTU 9 of va", Fate.KEPT, "somebody else set it to 8")) == (
        "MTU 9 of va: left alone (somebody else set it to 8)"
    )


def test_the_interpreters_exit_restores(folder, monkeypatch):
    registered = []
    monkeypatch.setattr(journal_module.atexit, "register", registered.append)
    journal = Journal.open()
    journal.apply(Poke("a", 1))
    registered[0]()
    assert MACHINE == {"old": 1}
    journal.close()
