"""Shell completion: the answers to a shell when Tab is pressed, and the options that install it.

Typer does the work. This module finds out which command is being completed, so that only that one is loaded, and turns
Typer's failures into xskit's errors.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import takewhile

from xskit.errors import XskitError

_QUESTION = "_XSKIT_COMPLETE"
"""What the functions that Typer installs set: complete_bash, complete_zsh or complete_fish."""

_LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""The command line so far: the first from bash, the second from the others."""

_OPTIONS = {"--install-completion", "--show-completion"}


def line_to_complete() -> list[str] | None:
    """The arguments that the shell wants completed; None if no shell asks."""
    if _QUESTION not in os.environ:
        return None
    return " ".join(os.environ.get(name, "") for name in _LINES).split()[1:]


def is_about_completion(arguments: Sequence[str]) -> bool:
    """Whether one of Typer's options about completion is given to xskit itself."""
    of_xskit: list[str] = list(takewhile(lambda argument: argument.startswith("-"), arguments))
    return not _OPTIONS.isdisjoint(of_xskit)


def run(command: Callable[[], object]) -> None:
    """Install or show completion.

    Raises:
        XskitError: the shell is not one of the three, or its file cannot be written.
    """
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            failed = command()
    except SystemExit as ended:  # how Typer ends when it is done
        failed = ended.code
    except OSError as error:
        raise XskitError(
            f"completion cannot be installed: {error.filename}: {error.strerror}", remedy="xskit --show-completion"
        ) from error
    if failed:
        raise XskitError("completion works in bash, zsh and fish, but none of them started xskit", remedy="bash")
    print(said.getvalue(), end="")
