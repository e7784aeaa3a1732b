"""The journal of a living process: what it applied is put back, newest first, whatever goes wrong."""

from __future__ import annotations

import errno
import os

import pytest

from tests.pure.support_journal import (
    MACHINE,
    Camera,
    Make,
    Poke,
    journal_folder,  # noqa: F401  a fixture
    journals,
)
from xskit.errors import DeviceError, KernelError, XskitError
from xskit.netconf import journal as journal_module
from xskit.netconf import journalfile
from xskit.netconf.changes import Fate, Restored
from xskit.netconf.journal import Journal


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


def test_a_forked_child_restores_nothing(folder):
    with Journal.open() as journal:
        journal.apply(Poke("a", 1))
        journal._pid += 1  # as a child sees it
        assert journal.restore() == []
        assert MACHINE == {"old": 1, "a": 1}
        journal._pid -= 1


def test_restored_reads_as_a_sentence():
    assert str(Restored("MTU 9 of va", Fate.KEPT, "somebody else set it to 8")) == (
        "MTU 9 of va: left alone (somebody else set it to 8)"
    )


def test_the_interpreters_exit_restores(folder, monkeypatch):
    registered = []
    began = []
    monkeypatch.setattr(journal_module.atexit, "register", registered.append)
    monkeypatch.setattr(journal_module, "begin", lambda: began.append(dict(MACHINE)))  # this process goes on
    journal = Journal.open()
    journal.apply(Poke("a", 1))
    registered[0]()
    assert began == [{"old": 1, "a": 1}]
    assert MACHINE == {"old": 1}
    journal.close()
