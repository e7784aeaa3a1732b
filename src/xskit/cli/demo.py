"""`xskit demo`: two hosts, an emulated link, real packets, and one table: asked against achieved."""

from __future__ import annotations

import contextlib
import json as json_module
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xskit.cli.output import COMPILING, cold

if TYPE_CHECKING:
    from rich.progress import Progress

    from xskit.emulator.report import Report
    from xskit.emulator.report_data import DirectionReport
    from xskit.emulator.settings import DirectionSettings
    from xskit.lab import Lab, LabLink
    from xskit.lab.traffic import UdpResult

CONFIDENCE = 0.9999
PATH_NS = 200_000
"""What the hosts' own stacks and a sleeping loop may add to an owd measured between sockets."""

OWD, RATE, LOSS = "20ms", "50Mbit", "0.5%"
PROBE_PACKETS, PROBE_INTERVAL_NS, PROBE_FRAME_BYTES = 10_000, 500_000, 142
FLOOD_PACKETS, FLOOD_INTERVAL_NS, FLOOD_FRAME_BYTES = 24_000, 120_000, 1_442
TCP_SECONDS = 3.0

WINDOW_ERROR_NS = 1_000_000
"""The packets at the ends of the measured window may be late by so much together."""
LEAST_WINDOW_NS = 200_000_000

BUSY_CPUS = 0.25
"""CPUs that other programs take on average, above which an achieved value may be theirs ..."""
BUSY_SHARE = 0.01
"""... and the share of the time in which a worker wanted to run and did not."""


@dataclass
class DemoRow:
    """One line of the table: `within` is None where nothing was asked."""

    what: str
    asked: str
    achieved: str
    allowed: str = ""
    within: bool | None = None


@dataclass
class Measurements:
    """What the demo found."""

    rows: list[DemoRow] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """No achieved value lies outside what is allowed."""
        return all(row.within is not False for row in self.rows)


def demo(
    json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
    spin: Annotated[bool, typer.Option("--spin", help="never sleep: lowest lateness, a whole CPU")] = False,
    seed: Annotated[int, typer.Option(help="of every random stream")] = 1,
) -> None:
    """Show an emulated link at work: ping, owd, loss, rate and TCP between two hosts, asked against achieved.

    Example: xskit demo --json
    """
    from rich.console import Console

    from xskit.bench.others import OtherPrograms
    from xskit.cli.options import read_engine
    from xskit.netconf.signals import terminated_by_exception

    read_engine({"seed": seed})
    console = Console(stderr=True)
    others = OtherPrograms()
    with terminated_by_exception():
        outcome, report = _run(console, seed=seed, spin=spin)
    good = outcome.good and report.valid
    busy = None if good else _too_busy(report, others.cpus())
    if json:
        rows = [asdict(row) for row in outcome.rows]
        result = {"good": outcome.good, "too_busy": busy, "rows": rows, "report": report.as_dict()}
        print(json_module.dumps(result, indent=2))
    else:
        _show(outcome, report, busy)
    if not good:
        raise typer.Exit(1)


def _run(console: Any, *, seed: int, spin: bool) -> tuple[Measurements, Report]:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from xskit.lab import Lab

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        _laboratory(progress, Lab, seed, spin) as lab,
    ):
        task = progress.add_task("two hosts and a link", total=6)
        link = lab.link(
            lab.host("a"), lab.host("b"), name="demo", owd=OWD, rate=RATE, forward={"loss": LOSS}, reverse={"loss": 0}
        )
        outcome = _measure(link, lambda step: progress.update(task, description=step, advance=1))
        report = link.close()
    assert report is not None
    _add_engine_rows(outcome, report)
    return outcome, report


@contextlib.contextmanager
def _laboratory(progress: Progress, make: type[Lab], seed: int, spin: bool) -> Iterator[Lab]:
    @contextlib.contextmanager
    def compiling() -> Iterator[None]:
        task = progress.add_task(COMPILING, total=None, visible=cold())
        try:
            yield
        finally:
            progress.remove_task(task)

    with make(on_compile=compiling, seed=seed, spin=spin) as lab:
        yield lab


def _measure(link: LabLink, step: Callable[[str], None]) -> Measurements:
    from xskit.lab import traffic

    a, b = link.hosts
    outcome = Measurements()
    step("ping")
    times = sorted(traffic.ping(a, b, count=5))
    asked_ns = link.forward.settings.owd + link.reverse.settings.owd
    outcome.rows.append(_time_row("ping, round trip p50", asked_ns, times))
    pace: dict[str, Any] = {
        "packets": PROBE_PACKETS,
        "interval_ns": PROBE_INTERVAL_NS,
        "frame_bytes": PROBE_FRAME_BYTES,
    }
    step("owd and loss, forward")
    forward = traffic.udp(a, b, **pace)
    _add_probe_rows(outcome, "forward", link.forward.settings.owd, link.forward.settings.loss, forward)
    step("owd and loss, reverse")
    reverse = traffic.udp(b, a, **pace | {"packets": PROBE_PACKETS // 4})
    _add_probe_rows(outcome, "reverse", link.reverse.settings.owd, link.reverse.settings.loss, reverse)
    step("rate, overloaded with UDP")
    flood = traffic.udp(a, b, packets=FLOOD_PACKETS, interval_ns=FLOOD_INTERVAL_NS, frame_bytes=FLOOD_FRAME_BYTES)
    _add_rate_row(outcome, link.forward.settings, flood)
    step("a TCP transfer")
    bps, sender = traffic.tcp(a, b, seconds=TCP_SECONDS)
    outcome.rows.append(DemoRow("TCP goodput, forward", "for show", f"{bps / 1e6:.1f} Mbit", f"by {sender}"))
    step("done")
    return outcome


def _time_row(what: str, asked_ns: int, samples_ns: list[int], path_ns: int = 2 * PATH_NS) -> DemoRow:
    """A median: what was asked must lie between its interval less the path's own time, and its interval."""
    from xskit.emulator.intervals import median_interval
    from xskit.emulator.report_text import duration
    from xskit.units import apart, format_duration

    if not samples_ns:
        return DemoRow(what, format_duration(asked_ns), "nothing came back", within=False)
    low, high = median_interval(samples_ns, CONFIDENCE)
    median = samples_ns[len(samples_ns) // 2]
    within = low - path_ns <= asked_ns <= high and (math.isinf(high) or median >= asked_ns)
    shown, *_ = apart((median, asked_ns, asked_ns + path_ns), _ms, 3)
    decided_alone = within == (asked_ns <= median <= asked_ns + path_ns)
    if not decided_alone and math.isinf(high - low):
        shown += " (too few to tell)"
    elif not decided_alone:
        shown += f" ({apart((low, asked_ns + path_ns), _ms, 3)[0]} .. {apart((high, asked_ns), _ms, 3)[0]})"
    return DemoRow(what, format_duration(asked_ns), shown, f"+ {duration(path_ns)} of path", within=within)


def _ms(value_ns: float, digits: int) -> str:
    return f"{value_ns / 1e6:.{digits}f} ms"


def _add_probe_rows(outcome: Measurements, name: str, owd_ns: int, loss: float, result: UdpResult) -> None:
    from xskit.emulator.intervals import binomial_interval
    from xskit.emulator.report_text import duration
    from xskit.emulator.significance import late_limit_ns
    from xskit.units import apart, format_duration, format_probability

    outcome.rows.append(_time_row(f"owd {name} p50", owd_ns, result.owd_ns, PATH_NS))
    if result.owd_ns:
        high = result.owd_ns[min(int(0.99 * len(result.owd_ns)), len(result.owd_ns) - 1)]
        allowed_ns = late_limit_ns(owd_ns) + PATH_NS
        outcome.rows.append(
            DemoRow(
                f"owd {name} p99",
                format_duration(owd_ns),
                apart((high, owd_ns, owd_ns + allowed_ns), _ms, 3)[0],
                f"+ {duration(allowed_ns)}",
                within=owd_ns <= high <= owd_ns + allowed_ns,
            )
        )
    low, up = binomial_interval(result.lost, result.sent, CONFIDENCE)
    least, _, most = apart((low, loss, up), lambda value, digits: f"{value:.{digits}%}", 3)
    outcome.rows.append(
        DemoRow(
            f"loss {name}",
            format_probability(loss),
            f"{result.lost / result.sent:.3%}",
            f"{least} .. {most}",
            within=low <= loss <= up,
        )
    )
    outcome.rows.append(
        DemoRow(f"reordered {name}", "0", str(result.reordered), "exactly", within=result.reordered == 0)
    )


def _add_rate_row(outcome: Measurements, settings: DirectionSettings, flood: UdpResult) -> None:
    """The rate at which packets came while there was a queue."""
    from xskit.emulator.intervals import mean_rate_interval
    from xskit.units import apart, format_rate

    assert settings.rate is not None
    asked = format_rate(settings.rate)
    service_ns = flood.frame_bytes * 8_000_000_000 // settings.rate
    packets, window_ns = flood.saturated(settings.owd + 4 * service_ns + WINDOW_ERROR_NS)
    if window_ns < LEAST_WINDOW_NS:
        outcome.rows.append(DemoRow("rate forward", asked, "never saturated for long enough", within=False))
        return
    bits = flood.frame_bytes * 8
    low, high = mean_rate_interval(packets, bits, window_ns, window_error_ns=WINDOW_ERROR_NS)
    least, _, most = apart((low, settings.rate, high), lambda value, digits: f"{value / 1e6:.{digits}f}", 3)
    outcome.rows.append(
        DemoRow(
            "rate forward, overloaded",
            asked,
            f"{packets * bits * 1e3 / window_ns:.3f} Mbit",
            f"{least} .. {most} Mbit",
            within=low <= settings.rate <= high,
        )
    )


def _add_engine_rows(outcome: Measurements, report: Report) -> None:
    for direction in report.links[0].directions:
        packets = direction.packets
        dropped = ", ".join(f"{count} {cause}" for cause, count in packets["dropped"].items()) or "none"
        outcome.rows.append(
            DemoRow(
                f"packets {direction.name}",
                f"{packets['received']} in",
                f"{packets['sent']} out, dropped: {dropped}",
                f"{packets['in_flight']} in flight",
                within=_balanced(direction),
            )
        )
        late = direction.lateness_ns
        outcome.rows.append(DemoRow(f"lateness {direction.name}", "0", _lateness(late), "p50 / p99 / p99.9 / max"))


def _balanced(direction: DirectionReport) -> bool:
    packets = direction.packets
    gone = packets["sent"] + sum(packets["dropped"].values()) + packets["in_flight"]
    came = packets["received"] + packets["duplicated"] + packets["injected"]
    return bool(came == gone)


def _lateness(late: dict[str, float | None]) -> str:
    from xskit.emulator.report_text import duration

    return " / ".join(duration(late[key]) for key in ("p50", "p99", "p999", "max"))


def _too_busy(report: Report, others_cpus: float) -> str | None:
    """Why a demo that failed says little about xskit: the machine had other things to do. None when it had not."""
    from xskit.emulator.report_text import duration

    reasons = []
    if others_cpus > BUSY_CPUS:
        reasons.append(f"other programs took {others_cpus:.1f} CPUs")
    stalled_ns = max((worker.host_stall_ns for worker in report.workers), default=0)
    if stalled_ns > BUSY_SHARE * report.duration_ns:
        reasons.append(f"the worker was kept from running for {duration(stalled_ns)}")
    lateness = [way.lateness_ns for link in report.links for way in link.directions]
    late = [one["p99"] for one in lateness if one["judgement"] == "late"]
    if late:
        reasons.append(f"packets left {duration(max(late))} late at the 99th percentile")
    return f"the machine was too busy; run it again ({', '.join(reasons)})" if reasons else None


def _show(outcome: Measurements, report: Report, busy: str | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 110)
    table = Table(title="an emulated link between two hosts: asked against achieved", title_justify="left")
    for name in ("", "asked", "achieved", "allowed (99.99 %)", ""):
        table.add_column(name, overflow="fold")
    for row in outcome.rows:
        shown = {True: "[green]within[/]", False: "[bold red]OUTSIDE[/]", None: ""}[row.within]
        table.add_row(row.what, row.asked, row.achieved, row.allowed, shown)
    console.print(table)
    for port in report.ports:
        console.print(f"[dim]port {port.name}: {port.xdp_mode}, {'zero copy' if port.zero_copy else 'copy'}[/]")
    stalls = sum(worker.host_stalls for worker in report.workers)
    console.print(f"[dim]host stalls: {stalls}[/]")
    if not report.valid:
        console.print(f"[bold red]INVALID: {'; '.join(report.invalid_because)}[/]")
    if busy is not None:
        console.print(f"[bold red]{busy}[/]")
