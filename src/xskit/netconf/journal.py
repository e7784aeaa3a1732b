"""The journal: what this process changed on the host, on disk, so that it is put back whatever becomes of the process.

    /run/xskit/PID-START-N.jsonl    one file a journal, only ever appended to, one line an event
        {"xskit": 1, "boot": ..., "home": ...}                             the first line
        {"id": 0, "event": "planned", "kind": "SetMtu", "change": {...}}   before the machine is changed
        {"id": 0, "event": "applied", "change": {...}}                     only if applying taught something (a pid)
        {"id": 0, "event": "done", "fate": "put back"}                     after it was put back

PID and START (the start time in /proc/PID/stat) say whose it is: a pid that was given to another process does not
match. A line that SIGKILL cut short is the last one and means what its absence means: not planned, so not applied; not
done, so done again. Nothing is synced to disk: a file outlives its process anyway, and the changes do not outlive the
kernel.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Self

from xskit._fork import require_parent
from xskit.closing import Closing
from xskit.errors import DeviceError, KernelError, XskitError
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.ending import begin, changing
from xskit.netconf.journalfile import JournalFile, boot, dead_journals
from xskit.netconf.names import shown
from xskit.netconf.namespaces import OWN, MissingError, find, identity, inside

__all__ = ["Journal", "restore_dead"]

_VERSION = 1
_MISUNDERSTOOD = (TypeError, ValueError, AttributeError, LookupError)
"""What a record of another version leads to: fields or types that are not those of this one."""
_TRIES = 3  # of one restore that Ctrl-C cuts short


class Journal(Closing):
    """What this process changed. A context manager; at the latest the interpreter's exit, or a signal that
    ends the process, puts it back.

    Threads may share it. A forked child neither restores what its parent changed nor
    changes more.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._file: JournalFile | None = None
        self._pending: dict[int, Change] = {}
        self._next = 0

    @classmethod
    def open(cls) -> Self:
        """A journal for changes made from the calling thread's namespace. Its file comes with the first change."""
        journal = cls()
        atexit.register(journal._at_exit)
        return journal

    @property
    def is_ours(self) -> bool:
        """Whether this process may write it; one that was forked off may not."""
        return os.getpid() == self._pid

    def at_home(self) -> AbstractContextManager[None]:
        """In the block the calling thread is in the namespace in which the journal was opened."""
        return inside(self._home)

    @property
    def pending(self) -> list[Change]:
        """The changes that are in force, oldest first."""
        return list(self._pending.values())

    def apply(self, change: Change) -> bool:
        """Change the machine, if it is not like that already. Returns whether anything was changed.

        If the change fails half-way, what was done of it is undone.

        Raises:
            DeviceError: what is to be made is there already.
            KernelError: the journal cannot be written (nothing was changed), or the kernel refused.
            UsageError: the journal belongs to the process from which this one was forked.
            XskitError: as the change says.
        """
        self._require_ours()
        if self._home < 0:
            raise XskitError("the journal is closed")
        with changing(self), self._lock, inside(self._home):
            if change.check():
                if change.exclusive:
                    raise DeviceError(f"there is already a {change}", remedy="xskit restore")
                return False
            change.remember()
            number = self._plan(change)
            planned = change.record()
            try:
                change.apply()
                if change.record() != planned:
                    self._write({"id": number, "event": "applied", "change": change.record()})
            except BaseException:
                self._put_back(number)
                raise
            return True

    def undo(self, change: Change) -> Restored:
        """Put this one change back, before the others.

        Raises:
            UsageError: the journal belongs to the process from which this one was forked.
        """
        self._require_ours()
        with changing(self), self._lock:
            for number, pending in self._pending.items():
                if pending is change:
                    return self._put_back(number)
        return Restored(str(change), Fate.GONE)

    def restore(self) -> list[Restored]:
        """Put everything back, the newest first. One that fails does not stop the others, and stays in the journal.

        Ctrl-C does not stop it either; it is raised afterwards.
        """
        if not self.is_ours or self._home < 0:
            return []
        interrupts: list[BaseException] = []
        with changing(self), self._lock:
            fates = [self._put_back_surely(number, interrupts) for number in sorted(self._pending, reverse=True)]
            if self._file is not None and not self._pending:
                self._file.unlink()
                self._file.close()
                self._file = None
        if interrupts:
            raise interrupts[0]
        return fates

    def _at_exit(self) -> None:
        if self.is_ours:
            begin()
            self.restore()

    def restore_for_good(self) -> None:
        """Put everything back because this process ends now. A thread that wants to change more waits."""
        if self.is_ours:
            self._lock.acquire()
            self.restore()

    def close(self) -> None:
        """Put everything back and close the journal.

        Raises:
            XskitError: some could not be put back; the sentence names each of them.
        """
        try:
            fates = self.restore()
        finally:
            atexit.unregister(self._at_exit)
            self._release()
        failed = [str(fate) for fate in fates if fate.fate is Fate.FAILED]
        if failed:
            raise XskitError("; ".join(failed), remedy="xskit restore")

    def _require_ours(self) -> None:
        require_parent(self._pid, "the changes to this machine belong to")

    def _release(self) -> None:
        if self._home >= 0:
            os.close(self._home)
            self._home = -1
        if self._file is not None:
            self._file.close()
            self._file = None

    def _plan(self, change: Change) -> int:
        number = self._next
        if self._file is None:
            self._file = JournalFile.create({"xskit": _VERSION, "boot": boot(), "home": identity()})
        self._write({"id": number, "event": "planned", "kind": type(change).__name__, "change": change.record()})
        self._pending[number] = change
        self._next += 1
        return number

    def _put_back_surely(self, number: int, interrupts: list[BaseException]) -> Restored:
        while True:
            try:
                return self._put_back(number)
            except (KeyboardInterrupt, SystemExit) as error:
                interrupts.append(error)
                if len(interrupts) >= _TRIES:
                    raise

    def _put_back(self, number: int) -> Restored:
        if number not in self._pending:  # an interrupt came between the restoring and its return
            return Restored("a change", Fate.RESTORED)
        with inside(self._home):
            fate = _restore(self._pending[number])
        if fate.fate is not Fate.FAILED:
            with suppress(KernelError):  # a full disk must not stop the restoring, and to do it again is harmless
                self._write({"id": number, "event": "done", "fate": fate.fate})
            del self._pending[number]
        return fate

    def _write(self, event: dict[str, Any]) -> None:
        if self._file is None:
            raise XskitError("the journal is closed")
        self._file.write(event)


def restore_dead() -> list[Restored]:
    """Put back what processes left that are dead now. Called at every start, and by `xskit restore`.

    Raises:
        KernelError: the journals cannot be read.
    """
    fates: list[Restored] = []
    for path in dead_journals():
        fates += _restore_file(path)
    return fates


def _restore_file(path: Path) -> list[Restored]:
    file = JournalFile.open(path)
    if file is None:
        return []
    try:
        with file.locked() as there:
            if not there:  # another process has just put it back
                return []
            fates = _restore_open(file)
            if all(fate.fate is not Fate.FAILED for fate in fates):
                file.unlink()
            return fates
    finally:
        file.close()


def _restore_open(file: JournalFile) -> list[Restored]:
    header, pending, unreadable = _replay(file.read())
    written = header.get("xskit", _VERSION)
    by = "another version of xskit wrote it" if written == _VERSION else f"journals of version {written} are not known"
    remedy = f"xskit restore, of the version that wrote {file.path}; or, when nothing of it is left: rm {file.path}"
    rebooted = header.get("boot", boot()) != boot()
    number_of_home = header.get("home", identity())
    home = find(number_of_home) if isinstance(number_of_home, int) else None
    fates = [Restored(what, Fate.FAILED, by, remedy) for what in unreadable]
    with inside(home):
        for number in sorted(pending, reverse=True):
            change = pending[number]
            try:
                if rebooted and not change.outlives_boot:
                    fate = Restored(str(change), Fate.GONE, "the machine was restarted")
                elif home is None and change.touches_home():
                    fate = Restored(str(change), Fate.GONE, "the network namespace of its process is gone")
                else:
                    fate = _restore(change)
            except _MISUNDERSTOOD as error:
                what = f"a change {type(change).__name__}"
                fate = Restored(what, Fate.FAILED, f"its record makes no sense to this version: {error}", remedy)
            if fate.fate is not Fate.FAILED:
                with suppress(KernelError):
                    file.write({"id": number, "event": "done", "fate": fate.fate})
            fates.append(fate)
    return fates


def _restore(change: Change) -> Restored:
    try:
        return change.restore()
    except MissingError:
        return Restored(str(change), Fate.GONE)
    except (XskitError, OSError) as error:
        cause, remedy = getattr(error, "cause", str(error)), getattr(error, "remedy", None)
        return Restored(str(change), Fate.FAILED, cause, remedy)


def _replay(events: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[int, Change], list[str]]:
    """The header, the changes still in force by number, and what this version cannot read."""
    header = events[0] if events and "xskit" in events[0] else {}
    kinds: dict[int, str] = {}
    records: dict[int, dict[str, Any]] = {}
    unreadable = []
    for event in events[bool(header) :]:
        match event:
            case {"event": "planned", "id": int(number), "kind": str(kind), "change": dict(record)}:
                kinds[number], records[number] = kind, record
            case {"event": "applied", "id": int(number), "change": dict(record)} if number in records:
                records[number] = record
            case {"event": "done", "id": int(number)}:
                kinds.pop(number, None)
            case _:
                unreadable.append(f"an event {event.get('event')!r}")
    pending: dict[int, Change] = {}
    for number, kind in kinds.items():
        try:
            pending[number] = Change.kinds[kind].from_record(records[number])
        except (*_MISUNDERSTOOD, XskitError):
            unreadable.append(f"a change {shown(kind)}")
    return header, pending, unreadable
