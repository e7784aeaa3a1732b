"""A report for people: one table of asked against achieved, then what happened to the packets."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from xskit import units
from xskit.emulator.report_data import DirectionReport, RunRecord


def report_text(report: RunRecord, width: int = 110) -> str:
    """The report as plain text."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(render(report))
    return stream.getvalue().rstrip()


def render(report: RunRecord) -> RenderableType:
    """The report as something that rich prints."""
    parts: list[RenderableType] = [_quality(report), _packets(report), _machine(report)]
    parts += [Text(f"warning: {sentence}", style="yellow") for sentence in report.warnings]
    if report.valid:
        parts.append(Text("valid", style="bold green"))
    else:
        parts.append(Text("INVALID: " + "; ".join(report.invalid_because), style="bold red"))
    return Group(*parts)


def _quality(report: RunRecord) -> Table:
    table = Table(title="asked against achieved", title_justify="left")
    for name in ("link", "direction", "owd asked", "owd p50 / p99", "rate asked", "rate", "loss asked", "loss"):
        table.add_column(name, justify="left" if name in ("link", "direction") else "right", overflow="fold")
    for name, direction in _directions(report):
        asked, achieved = direction.asked, direction.achieved
        owd = achieved["owd_ns"]
        table.add_row(
            name,
            direction.name,
            _owd(asked),
            f"{precise(owd['p50'])} / {precise(owd['p99'])}",
            "unlimited" if asked["rate_bps"] is None else units.format_rate(asked["rate_bps"]),
            rate(achieved["rate_bps"]),
            units.format_probability(asked["loss"]),
            probability(achieved["loss"]),
        )
    return table


def _owd(asked: dict[str, Any]) -> str:
    text = units.format_duration(asked["owd_ns"])
    if asked["jitter_ns"]:
        text += f" ± {units.format_duration(asked['jitter_ns'])}"
    return text


def _packets(report: RunRecord) -> Table:
    table = Table(title="packets", title_justify="left")
    for name in ("link", "direction", "received", "sent", "dropped", "in flight", "lateness p50 / p99 / p99.9 / max"):
        table.add_column(name, justify="left" if name in ("link", "direction", "dropped") else "right", overflow="fold")
    for name, direction in _directions(report):
        packets, late = direction.packets, direction.lateness_ns
        dropped = ", ".join(f"{count} {cause}" for cause, count in packets["dropped"].items()) or "none"
        table.add_row(
            name,
            direction.name,
            str(packets["received"]),
            str(packets["sent"]),
            dropped,
            str(packets["in_flight"]),
            " / ".join(duration(late[key]) for key in ("p50", "p99", "p999", "max")),
        )
    return table


def _machine(report: RunRecord) -> Text:
    lines = []
    for port in report.ports:
        lost = ", ".join(f"{name} {value}" for name, value in port.kernel.items() if value)
        chatter = f"; chatter: {port.chatter} dropped" if port.chatter else ""
        copies = "zero copy" if port.zero_copy else "copy"
        queues = "1 queue" if port.queues == 1 else f"{port.queues} queues"
        lines.append(
            f"port {port.name}: {port.xdp_mode}, {copies}, {queues}" + (f"; kernel: {lost}" if lost else "") + chatter
        )
    for worker in report.workers:
        share = f"{worker.busy / worker.loops:.0%}" if worker.loops else "0%"
        lines.append(
            f"worker on CPU {worker.cpu}: {worker.mode}, {worker.loops} loops, {share} busy, "
            f"{worker.host_stalls} host stalls ({duration(worker.host_stall_ns)} in all)"
        )
    return Text("\n".join(lines), style="dim")


def _directions(report: RunRecord) -> list[tuple[str, DirectionReport]]:
    return [(link.name, direction) for link in report.links for direction in link.directions]


def duration(value_ns: float | None) -> str:
    """Three digits are enough for a measured time."""
    if value_ns is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if value_ns >= size:
            return f"{value_ns / size:.3g} {unit}" if value_ns / size < 100 else f"{value_ns / size:.0f} {unit}"
    return f"{value_ns:.0f} ns"


def precise(value_ns: float | None) -> str:
    """A measured owd, to the microsecond or better."""
    if value_ns is None:
        return "-"
    return f"{value_ns / 1e6:.3f} ms" if value_ns >= 1e6 else f"{value_ns / 1e3:.1f} us"


def rate(value_bps: float | None) -> str:
    """A measured rate."""
    if value_bps is None:
        return "-"
    for unit, size in (("Gbit", 1e9), ("Mbit", 1e6), ("kbit", 1e3)):
        if value_bps >= size:
            return f"{value_bps / size:.4g} {unit}"
    return f"{value_bps:.0f} bit"


def probability(value: float | None) -> str:
    """A measured probability."""
    return "-" if value is None else f"{value * 100:.3g}%"
