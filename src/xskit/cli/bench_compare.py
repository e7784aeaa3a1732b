"""`xskit bench compare`: results held against each other."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from xskit.cli.bench_options import as_fraction
from xskit.errors import UsageError

if TYPE_CHECKING:
    from xskit.bench.compare import Comparison
    from xskit.bench.results import Session

__all__ = ["compare", "load"]


def compare(
    files: Annotated[list[Path], typer.Argument(metavar="A.json B.json...", help="what --json wrote; A is the base")],
    across: Annotated[
        str | None, typer.Option(metavar="OPTION", help="with one file: compare its cases along this option of a sweep")
    ] = None,
    format: Annotated[
        Literal["text", "markdown", "csv", "json"], typer.Option("--format", help="text is 72 columns wide, for a mail")
    ] = "text",
    least: Annotated[
        str, typer.Option("--least", metavar="FRACTION", help="differences below that are within noise")
    ] = "1%",
    check: Annotated[bool, typer.Option("--check", help="exit code 1 when something became worse")] = False,
) -> None:
    """Say what changed between results: medians, percent, its 95 % interval, and better, worse or within noise.

    A conclusion needs more than that interval: the 99 % interval must lie on one side of no change. Differences between
    the machines are named.

    \b
    Examples:
      xskit bench compare base.json new.json
      xskit bench compare sweep.json --across mode --format markdown
      xskit bench compare guests.json --across kernel
    """
    from xskit.bench import compare as comparing

    smallest = as_fraction(least, "--least")
    loaded = [load(path) for path in files]
    if across is not None:
        if len(loaded) != 1:
            raise UsageError(
                "--across compares the cases of one file", remedy="xskit bench compare A.json --across mode"
            )
        found = [comparing.across(loaded[0], _field(across), least=smallest)]
    else:
        if len(loaded) < 2:
            raise UsageError("two files are needed", remedy="xskit bench compare A.json B.json, or --across OPTION")
        found = [
            comparing.sessions(loaded[0], later, (files[0].name, path.name), least=smallest)
            for later, path in zip(loaded[1:], files[1:], strict=True)
        ]
    print(_formatted(found, format))
    if check and any(one.worse for one in found):
        raise typer.Exit(1)


def _field(option: str) -> str:
    """The field of a case that an option sets; `--mode` is that of XDP here, since a session has one mode of bench."""
    from xskit.bench.settings import Case
    from xskit.bench.words import option_word

    word = option.removeprefix("--")
    known = {option_word(one.name): one.name for one in fields(Case) if one.name != "mode"}
    return known.get(word, word.replace("-", "_"))


def _formatted(found: list[Comparison], format: str) -> str:
    from xskit.bench.compare_report import as_csv, as_dict, as_mail, as_markdown

    if format == "json":
        return json_module.dumps([as_dict(one) for one in found], indent=1)
    write: Callable[[Comparison], str] = {"text": as_mail, "markdown": as_markdown, "csv": as_csv}[format]
    return "\n\n".join(write(one) for one in found)


def load(path: Path) -> Session:
    """What --json or --report wrote. Raises FileError."""
    from xskit.bench.results import Session

    return Session.load(path)
