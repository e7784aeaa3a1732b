"""The words of a command that a host is to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from xskit.errors import UsageError
from xskit.lab.host import Host


class NoJournal:
    """Must not be asked to change anything."""

    is_ours = True


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ((["ls", "-l"],), "each word of a command must be an argument of its own.*\n  try: run\\('ls', '-l'\\)"),
        (("sleep", 5), "each word of a command must be a string, not 5\n  try: run\\('5'\\)"),
        (("echo", "a\0b"), "a word of a command must not contain a NUL byte: 'a.x00b'"),
        ((Path("/bin/echo"), b"a", None), "each word of a command must be a string, not None"),
    ],
)
def test_words_that_no_command_can_have_are_refused_before_anything_is_changed(
    argv: tuple[Any, ...], sentence: str
) -> None:
    journal: Any = NoJournal()
    host = Host("a", "xk-a", journal, {})
    for start in (host.run, host.spawn):
        with pytest.raises(UsageError, match=f"^{sentence}"):
            start(*argv)
