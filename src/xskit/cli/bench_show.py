"""What `xskit bench` shows: the live table while it runs, xdpsock's blocks, the final table, files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xskit.bench.in_guest import COUNTED, counted_instructions
from xskit.cli.output import lack_of_charts, write_text

if TYPE_CHECKING:
    from xskit.bench.results import Session
    from xskit.bench.runner import Running
    from xskit.bench.settings import Conditions

__all__ = ["Display", "show"]


class Display:
    """What is shown while it runs: the live table on a terminal, or xdpsock's blocks."""

    def __init__(self, *, format: str, quiet: bool, extra: bool, calls: bool, conditions: Conditions) -> None:
        self._session: Session | None = None
        self._total = f"{'at most ' if conditions.until else ''}{conditions.limit}"
        self._live: Any = None
        self._printer: Any = None
        if format == "xdpsock" and not quiet:
            from xskit.bench.xdpsock_format import Printer

            self._printer = Printer(
                self._line, interval=conditions.interval, extra=extra, calls=calls, rates=not counted_instructions()
            )
        elif sys.stderr.isatty() and not quiet:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)

    @staticmethod
    def _line(text: str) -> None:
        print(text, flush=True)

    def __enter__(self) -> Display:
        if self._live:
            self._live.start()
        if self._printer and counted_instructions():
            self._line(COUNTED)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def observe(self, running: Running) -> None:
        """A sample was taken."""
        if self._printer:
            self._printer.observe(running)
        if self._live:
            from rich.text import Text

            from xskit.bench import render
            from xskit.bench.session_report import live

            said = render.text(live(self._session, running, self._total), self._live.console.width)
            self._live.update(Text(said), refresh=True)

    def note(self, session: Session) -> None:
        """A run is over."""
        self._session = session


def show(
    session: Session, *, json: bool, format: str, extra: bool, calls: bool, report: Path | None, html: Path | None
) -> None:
    """What was measured, on stdout and in files."""
    from xskit.bench import render, session_report

    if json:
        print(session.to_json())
    elif format == "table":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 130
        print(render.text(session_report.final(session, extra=extra, calls=calls), width))
    if report:
        write_text(report, session.to_json() + "\n")
    if html:
        write_text(html, render.html("xskit bench", session_report.page(session)))
        lack_of_charts(f"{html} has")
