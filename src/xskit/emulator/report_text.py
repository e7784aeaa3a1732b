"""A report for people: one table of asked against achieved, then what happened to the packets.

This module knows objects only by their attributes, so that the parts of a report can show themselves.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from xskit import units
from xskit.emulator.significance import LATE_LIMIT

__all__ = ["direction_text", "duration", "link_text", "port_text", "precise", "probability", "rate", "render",
           "report_text", "worker_text"]  # fmt: skip


class ShownDirection(Protocol):
    """A DirectionReport."""

    name: str
    asked: dict[str, Any]
    achieved: dict[str, Any]
    packets: dict[str, Any]
    lateness_ns: dict[str, Any]
    since_update_ns: int | None
    update_waiting: dict[str, Any] | None


class ShownLink(Protocol):
    """A LinkReport."""

    name: str

    @property
    def directions(self) -> Sequence[ShownDirection]: ...


class ShownPort(Protocol):
    """A PortReport."""

    name: str
    xdp_mode: str
    zero_copy: bool
    queues: int
    chatter: int

    @property
    def kernel(self) -> Mapping[str, int]: ...


class ShownWorker(Protocol):
    """A WorkerReport."""

    cpu: int | None
    mode: str
    loops: int
    busy: int
    host_stalls: int
    host_stall_ns: int


class ShownRun(Protocol):
    """A Report."""

    valid: bool
    invalid_because: list[str]
    warnings: list[str]

    @property
    def links(self) -> Sequence[ShownLink]: ...

    @property
    def ports(self) -> Sequence[ShownPort]: ...

    @property
    def workers(self) -> Sequence[ShownWorker]: ...


Ways = Sequence[tuple[str, ShownDirection]]
"""Directions, each with the name of its link."""


def report_text(report: ShownRun, width: int = 110) -> str:
    """The report as plain text."""
    return _plain(render(report), width)


def link_text(link: ShownLink, width: int = 110) -> str:
    """Both directions of a link as plain text, as the report of a run shows them."""
    return _plain(Group(*_tables([(link.name, direction) for direction in link.directions])), width)


def direction_text(direction: ShownDirection, width: int = 110) -> str:
    """One direction as plain text, as the report of a run shows it."""
    return _plain(Group(*_tables([("", direction)])), width)


def render(report: ShownRun) -> RenderableType:
    """The report as something that rich prints."""
    parts = _tables([(link.name, direction) for link in report.links for direction in link.directions])
    lines = [*map(port_text, report.ports), *map(worker_text, report.workers), *_remarks(report)]
    parts.append(Text("\n".join(lines), style="dim"))
    known = report.invalid_because  # not repeated
    parts += [Text(f"warning: {sentence}", style="yellow") for sentence in report.warnings if sentence not in known]
    if report.valid:
        parts.append(Text("valid", style="bold green"))
    else:
        parts.append(Text("INVALID: " + "; ".join(report.invalid_because), style="bold red"))
    return Group(*parts)


def _plain(shown: RenderableType, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, legacy_windows=False).print(shown)
    return stream.getvalue().rstrip()


def _tables(ways: Ways) -> list[RenderableType]:
    parts: list[RenderableType] = [_quality(ways)]
    if notes := _periods(ways):
        parts.append(Text("\n".join(notes)))
    return [*parts, _packets(ways)]


def _periods(ways: Ways) -> list[str]:
    """What the figures of the first table count from, if not from the start."""
    updated: dict[str, list[str]] = {}
    notes = []
    for name, way in ways:
        place = f"{name} {way.name}".lstrip()
        if way.since_update_ns is not None:
            updated.setdefault(duration(way.since_update_ns), []).append(place)
        if way.update_waiting is not None:
            notes.append(f"{place}: the next update takes effect at {duration(way.update_waiting['at_ns'])}")
    since = [f"{', '.join(places)}: asked and achieved since the update at {at}" for at, places in updated.items()]
    return since + notes


def _quality(ways: Ways) -> Table:
    table = Table(title="asked against achieved", title_justify="left")
    for name in ("link", "direction", "owd asked", "owd p50 / p99", "rate asked", "rate", "loss asked", "loss"):
        table.add_column(name, justify="left" if name in ("link", "direction") else "right", overflow="fold")
    for name, direction in ways:
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


def _packets(ways: Ways) -> Table:
    updated = any(way.since_update_ns is not None for _, way in ways)
    table = Table(title="packets and lateness, since the start" if updated else "packets", title_justify="left")
    for name in ("link", "direction", "received", "sent", "dropped", "in flight", "lateness p50 / p99 / p99.9 / max"):
        table.add_column(name, justify="left" if name in ("link", "direction", "dropped") else "right", overflow="fold")
    for name, direction in ways:
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


def port_text(port: ShownPort) -> str:
    """A line about a port."""
    lost = ", ".join(f"{name} {value}" for name, value in port.kernel.items() if value)
    copies = "zero copy" if port.zero_copy else "copy"
    queues = "1 queue" if port.queues == 1 else f"{port.queues} queues"
    chatter = f"; chatter: {port.chatter} dropped" if port.chatter else ""
    return f"port {port.name}: {port.xdp_mode}, {copies}, {queues}" + (f"; kernel: {lost}" if lost else "") + chatter


def worker_text(worker: ShownWorker) -> str:
    """A line about a worker."""
    share = f"{worker.busy / worker.loops:.0%}" if worker.loops else "0%"
    return (
        f"worker on CPU {worker.cpu}: {worker.mode}, {worker.loops} loops, {share} busy, "
        f"{worker.host_stalls} host stalls ({duration(worker.host_stall_ns)} in all)"
    )


def _remarks(report: ShownRun) -> list[str]:
    """Links without a packet, and directions with too few packets to judge although all were on time."""
    silent = [link.name for link in report.links if not any(way.packets["received"] for way in link.directions)]
    few = [
        f"{link.name} {way.name} ({way.lateness_ns['packets']})"
        for link in report.links
        for way in link.directions
        if _all_on_time_but_few(way.lateness_ns)
    ]
    remarks = [f"no packets on {', '.join(silent)}: nothing was measured"] if silent else []
    if few:
        remarks.append(f"too few packets to judge lateness: {', '.join(few)}; none left more than {LATE_LIMIT} late")
    return remarks


def _all_on_time_but_few(late: Mapping[str, Any]) -> bool:
    return late["judgement"] == "too few packets" and bool(late["packets"]) and not late["late"]


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
