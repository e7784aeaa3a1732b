"""What commands share: the spinner of the first run, and where a report goes."""

from __future__ import annotations

import errno
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from xskit.errors import UsageError, XskitError

if TYPE_CHECKING:
    from xskit.emulator.report import Report


REPORTS = {".json": "JSON", ".txt": "text"}
"""Endings of files with reports of links, and what is in them."""
COMPILING = "compiling the data plane (first run only)"


class OutputError(XskitError):
    """A file for results cannot be written."""


@contextmanager
def compiling() -> Iterator[None]:
    """A spinner on the terminal, while there is no compiled code yet."""
    if not sys.stderr.isatty() or not cold():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(COMPILING):
        yield


def cold() -> bool:
    """There is no compiled code yet."""
    from xskit.jit import is_empty

    return is_empty()


def show_warnings() -> None:
    """What is logged while links run, as lines on stderr like all that the command says."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter("xskit: %(message)s"))


def check_file(option: str, path: Path | None, formats: Mapping[str, str]) -> None:
    """Find out now, not after an hour's run, that a file cannot be written. What is in it stays; a new one does not.

    Args:
        option: that names the file.
        path: of the file; None: nothing is to be written.
        formats: what is written to files with each ending, such as {".json": "JSON"}. Names without an ending, and
            special files, may have any.

    Raises:
        UsageError: the ending stands for another format.
        OutputError: it cannot be written.
    """
    if path is not None:
        _check_ending(option, path, formats)
        there = os.path.lexists(path)
        try:
            if path.is_fifo():  # its reader would take that for the end
                return
            path.open("a").close()
            if not there:
                path.unlink()
        except OSError as error:
            raise _unwritable(path, error) from error


def _check_ending(option: str, path: Path, formats: Mapping[str, str]) -> None:
    ending = path.suffix.lower()
    if ending in ("", *formats) or (path.exists() and not path.is_file()):
        return
    known = ", ".join(f"{name} ({written})" for name, written in formats.items())
    raise UsageError(
        f"{option} {path}: no report can be written as {ending}, only as {known}",
        remedy=f"{option} {shlex.quote(str(path.with_suffix(next(iter(formats)))))}",
    )


def write_report(report: Report, path: Path | None, stream: TextIO, *, json: bool) -> None:
    """The report to a file, or to a stream; as JSON, when asked or when the file's name ends in .json.

    Raises:
        OutputError: the file cannot be written; the report then went to the stream.
    """
    if path is None:
        _print(report, stream, json=json)
        return
    try:
        path.write_text(_text(report, json=json or path.suffix.lower() == ".json") + "\n", encoding="utf-8")
    except OSError as error:
        _print(report, stream, json=json)
        raise _unwritable(path, error) from error


def write_text(path: Path, content: str) -> None:
    """Write results, into a folder that is made for them where it is not there.

    Raises:
        OutputError: they cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}", remedy=f"ls -ld {path.parent}") from error


def lack_of_charts(what: str) -> bool:
    """Whether charts cannot be drawn here; then it says on stderr what mends it."""
    from xskit.bench import charts

    if charts.available():
        return False
    command = shlex.join([sys.executable, "-m", "pip", "install", "matplotlib"])
    print(f"xskit: {what} {charts.MISSING}\ntry: {command}", file=sys.stderr)
    return True


def _text(report: Report, *, json: bool) -> str:
    return report.to_json() if json else str(report)


def _print(report: Report, stream: TextIO, *, json: bool) -> None:
    if json or not stream.isatty():
        print(_text(report, json=json), file=stream)
        return
    from rich.console import Console

    from xskit.emulator.report_text import render

    Console(file=stream).print(render(report))


def _unwritable(path: Path, error: OSError) -> OutputError:
    remedies = {errno.ENOSPC: f"df {path.parent}", errno.ENOENT: f"mkdir -p {path.parent}"}
    return OutputError(
        f"the report cannot be written to {path}: {error.strerror}",
        remedy=remedies.get(error.errno or 0, f"ls -ld {path.parent}"),
    )
