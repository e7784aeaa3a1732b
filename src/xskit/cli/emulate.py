"""`xskit emulate`: links between interfaces that are there already, as a file says."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xskit.errors import UsageError
from xskit.files import ReadError

if TYPE_CHECKING:
    from xskit.cli.attend import Signals
    from xskit.emulator.emulator import Emulator
    from xskit.emulator.report import Report

_SHOW_SECONDS = 0.5


def emulate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="which links, between which interfaces", show_default=False)
    ],
    duration: Annotated[str | None, typer.Option(metavar="DURATION", help="stop after 10s, 5min, ...")] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write the report to FILE: JSON if it ends in .json, else text"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> None:
    """Emulate the links of a file until Ctrl-C, another signal or the end of --duration; then print a report.

    A link joins two interfaces of this machine, and takes all packets that come in there: what comes into one goes
    out of the other. The exit code is 1 when the run was invalid, or could not go on.

    \b
    The file, for a link between eth1 and eth2 of the network namespace blue:
      [link.wan]
      ports = ["eth1", "blue/eth2"]   # forward goes from the first to the second
      owd = "20ms"                    # both directions; what `xskit run --help` shows
      forward = { rate = "10Mbit", queue = "100ms" }
      reverse = { loss = "0.5%" }
      [engine]                        # may be left out
      workers = 2

    \b
    Example: xskit emulate wan.toml --duration 10s --json
    """
    from xskit.cli.output import REPORTS, check_file, write_report
    from xskit.emulator.configuration import read_configuration
    from xskit.netconf.privileges import require

    try:
        configuration = read_configuration(file)
    except ReadError as error:
        raise ReadError(error.cause, remedy="xskit emulate --help" if error.missing else error.remedy) from error
    seconds = _seconds(duration)
    require(("CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"), "xskit emulate")
    check_file("--report", report, REPORTS)

    from xskit.cli.attend import Signals
    from xskit.cli.output import compiling, show_warnings
    from xskit.emulator.emulator import Emulator
    from xskit.netconf.journal import restore_dead
    from xskit.netconf.signals import terminated_by_exception

    show_warnings()
    with terminated_by_exception() as asked:
        restore_dead()
        with (
            Emulator(configuration.links, configuration.engine, on_compile=compiling) as emulator,
            Signals() as signals,
        ):
            asked.check()
            failure = _watch(emulator, signals, seconds)
            result = emulator.close()
    assert result is not None
    write_report(result, report, sys.stdout, json=json)
    if failure is not None:
        print(f"xskit: {failure}", file=sys.stderr)
    if not result.valid:
        raise typer.Exit(1)


def _seconds(duration: str | None) -> float:
    if duration is None:
        return math.inf
    from xskit.units import parse_duration

    try:
        return parse_duration(duration) / 1e9
    except UsageError as error:
        raise UsageError(f"--duration: {error.cause}") from error


def _watch(emulator: Emulator, signals: Signals, seconds: float) -> str | None:
    """Let it run; returns why it cannot go on, or None when it was to end."""
    deadline = time.monotonic() + seconds
    with _live() as show:
        while (left := deadline - time.monotonic()) > 0:
            if signals.pause(min(left, _SHOW_SECONDS)):
                return None
            if (failure := emulator.wait(0)) is not None:
                return failure
            show(emulator)
    return None


@contextmanager
def _live() -> Iterator[Callable[[Emulator], None]]:
    """On a terminal, a line for each direction, with what happened since the last look."""
    if not sys.stderr.isatty():
        yield lambda emulator: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    last: Report | None = None

    def show(emulator: Emulator) -> None:
        nonlocal last
        now = emulator.report()
        live.update(Text("\n".join(_lines(now, last)), no_wrap=True, overflow="ellipsis"), refresh=True)
        last = now

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield show


def _lines(now: Report, last: Report | None) -> list[str]:
    from xskit.emulator.report_text import rate

    lines = []
    elapsed_ns = now.duration_ns - (0 if last is None else last.duration_ns)
    for number, link in enumerate(now.links):
        for side, direction in enumerate(link.directions):
            before = 0 if last is None else last.links[number].directions[side].bytes["sent"]
            packets = direction.packets
            lines.append(
                f"{link.name} {direction.name}: {packets['received']} packets in, {packets['sent']} out, "
                f"{sum(packets['dropped'].values())} dropped, {packets['in_flight']} in flight, "
                f"{rate((direction.bytes['sent'] - before) * 8e9 / max(elapsed_ns, 1))}"
            )
    return lines
