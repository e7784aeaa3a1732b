"""Commands on hosts, including those that a forked child starts.

Only the process that opened a journal writes it. So before the first fork, the journal notes a mark, and the commands
of all children carry the mark in their environment. They end when the journal puts everything back, whoever started
them.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from xskit.errors import UsageError, XskitError
from xskit.netconf.changes.processes import StartedProcess
from xskit.netconf.journal import Journal
from xskit.netconf.processes import SPAWNER

__all__ = ["expect_children", "start"]


@dataclass
class ChildrensCommands(StartedProcess):
    """All commands that forked children start."""

    argv: list[str] = field(default_factory=list)
    namespace: str | None = None

    def __str__(self) -> str:
        return "commands of forked processes"

    def apply(self) -> None:
        """Do nothing: the mark is noted."""

    def touches_home(self) -> bool:
        """No: the mark finds the commands wherever they are."""
        return False

    def _await_birth(self) -> None:
        """Do not wait: nothing was started."""


_expected: WeakKeyDictionary[Journal, ChildrensCommands | None] = WeakKeyDictionary()


def expect_children(journal: Journal) -> None:
    """From now on children may start commands that this journal ends."""
    _expected.setdefault(journal, None)


def start(journal: Journal, command: StartedProcess) -> None:
    """Start a command: journaled, or in a forked child with the mark that the parent's journal knows.

    Raises:
        UsageError: the command cannot be started, or this is a child and the journal could not note the mark.
    """
    if journal.is_ours:
        journal.apply(command)
        return
    known = _expected.get(journal)
    if known is None:
        raise UsageError("a forked process cannot start commands here: its parent could not note them in the journal")
    command.mark = known.mark
    with journal.at_home():
        command.apply()


def _before_fork() -> None:
    if threading.current_thread().name == SPAWNER:  # the journal waits for it, and its child becomes a command
        return
    for journal, known in list(_expected.items()):
        if known is None and journal.is_ours:
            change = ChildrensCommands()
            with suppress(XskitError):
                journal.apply(change)
                _expected[journal] = change


os.register_at_fork(before=_before_fork)
