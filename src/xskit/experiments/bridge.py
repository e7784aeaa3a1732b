"""Two ports over one packet memory: forwarding without a copy, and very large memories filled and drained."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from xskit.bench.document import Cell, Table, Unit
from xskit.bench.results import CaseResult
from xskit.bench.session import measure
from xskit.bench.settings import Case, Conditions, DriveKind
from xskit.errors import XskitError
from xskit.experiments.experiment import ExperimentResult, Options, unless_emulated
from xskit.experiments.large_memory import Filling, fill_and_drain
from xskit.lab import Lab
from xskit.lab.host import Host
from xskit.lab.traffic import PORT, tcp
from xskit.netconf.interfaces import look
from xskit.xsk.opening import BindMode

__all__ = ["run"]

MODES: tuple[BindMode, ...] = ("zero-copy", "native", "generic")
PACKET_SIZES = (64, 1518)
"""With the 4 bytes of the checksum: the shortest, and the longest at MTU 1500."""
WAYS = ("there", "back", "both at once")
UNIT_FRAMES, FRAME_BYTES = 524_288, 2048
FACTORS = (1, 4, 10)
SHORT_FRAMES = 16_384


@dataclass
class _Carried:
    """TCP through the emulator: bit/s of all connections, packets a second of both directions together."""

    mode: str
    direction: str
    rates: list[float]
    pps: list[float]
    why: str = ""


def run(options: Options) -> ExperimentResult:
    """Measure on the two interfaces given, or on veth pairs."""
    interfaces = options.interfaces[:2]
    drivers = dict.fromkeys(look(name).driver for name in interfaces)
    result = ExperimentResult.begin("bridge", options, " and ".join(drivers) or "veth")
    outcomes, refused = _forward(interfaces, options)
    result.tables = [_forwarding(outcomes, refused)]
    if not interfaces:
        carried = _tcp(options)
        result.tables.append(_carrying(carried))
    frames = [SHORT_FRAMES] if options.short else [factor * UNIT_FRAMES for factor in FACTORS]
    fillings = [fill_and_drain(count, FRAME_BYTES, options.say) for count in frames]
    result.tables.append(_large(fillings))
    result.findings = _findings(refused, fillings)
    return result


def _forward(interfaces: tuple[str, ...], options: Options) -> tuple[list[CaseResult], dict[str, str]]:
    """Bench's forward in every mode that the ports allow; and why the others do not work."""
    outcomes: list[CaseResult] = []
    refused: dict[str, str] = {}
    drive: DriveKind = "af-xdp" if options.far else "auto"  # NICs send no live frames without a program of their own
    for mode in MODES:
        options.say(f"forward, {mode}")
        cases = [
            Case("forward", interfaces, xdp=mode, packet_size=size, frame_size=2048, drive=drive, both_ways=both)
            for size in PACKET_SIZES
            for both in (False, True)
        ]
        try:
            outcomes += measure(
                cases, Conditions(duration=options.seconds, repeat=options.repeat), far=options.far
            ).outcomes
        except XskitError as error:
            refused[mode] = error.cause
    return outcomes, refused


def _tcp(options: Options) -> list[_Carried]:
    """iperf3 through an emulated link without any impairment: there, back, and both at once."""
    seconds = math.ceil(options.seconds)  # iperf3 knows whole ones
    found = {(mode, way): _Carried(mode, way, [], []) for mode in MODES[1:] for way in WAYS}
    for repeat in range(options.repeat):
        for (mode, way), one in found.items():
            options.say(f"TCP through the bridge, {mode}, {way}, {repeat + 1} of {options.repeat}")
            with Lab(ip=4, mode=mode) as lab:
                a, b = lab.host("a"), lab.host("b")
                link = lab.link(a, b, mtu=1500)
                one.rates.append(_carry(a, b, way, seconds))
                carried = [direction.packets["sent"] for direction in link.report().links[0].directions]
                one.pps.append(sum(carried) / seconds)
    return list(found.values())


def _carry(a: Host, b: Host, way: str, seconds: float) -> float:
    """The bit/s of all connections together."""
    streams = [(a, b, PORT)] if way == "there" else [(b, a, PORT)]
    if way == "both at once":
        streams.append((a, b, PORT + 1))
    with ThreadPoolExecutor(len(streams)) as pool:
        running = [pool.submit(tcp, *ends, seconds=seconds, port=port) for *ends, port in streams]
        return sum(one.result()[0] for one in running)


def _forwarding(outcomes: Sequence[CaseResult], refused: dict[str, str]) -> Table:
    columns: dict[str, Unit] = {
        **dict.fromkeys(("mode asked", "in use", "packet", "driven"), "text"),
        "forwarded": "count",
        "pps": "pps",
        "Gbit/s": "bit/s",
        "CPU ns a packet": "count",
    }
    rows: list[list[Cell]] = []
    for outcome in outcomes:
        figures = unless_emulated(*(outcome.median(name) for name in ("tx_pps", "tx_bps", "cpu_ns_per_packet")))
        sent = sum(run.counts["sent"] for run in outcome.runs)
        driven = "both ways" if outcome.case.both_ways else "one way"
        rows.append([outcome.case.xdp, str(outcome.mode), f"{outcome.case.packet_size} B", driven, sent, *figures])
    rows += [[mode, "refused", "", "", None, None, None, None] for mode in refused]
    note = (
        "Two ports, one memory, one worker; medians of what left both ports together; bits with Ethernet header, "
        "without checksum."
    )
    return Table.of("forward: from one port to the other without a copy", columns, rows, note)


def _carrying(carried: Sequence[_Carried]) -> Table:
    return Table.of(
        "TCP through the bridge at MTU 1500 (iperf3, as the thread did it)",
        {"mode": "text", "direction": "text", "Gbit/s": "bit/s", "pps, with ACKs": "pps"},
        (
            [one.mode, one.direction, *unless_emulated(statistics.median(one.rates), statistics.median(one.pps))]
            for one in carried
        ),
    )


def _large(fillings: Sequence[Filling]) -> Table:
    return Table.of(
        "Packet memory registered, filled with delayed packets, and drained",
        {
            "packet memory": "text",
            "frames": "count",
            "registered": "text",
            "in flight at most": "count",
            "arrived": "count",
            "lost": "count",
            "kernel memory": "bytes",
        },
        (
            [
                *(f"{one.frames / UNIT_FRAMES:g} x (2048 x 524288)", one.frames, one.refused or "yes, by both ports"),
                *(one.in_flight, one.arrived, one.lost, one.kernel_bytes),
            ]
            for one in fillings
        ),
        "Filled while a bottleneck holds everything, then drained to the last; frames kept for FILL stay there.",
    )


def _findings(refused: dict[str, str], fillings: Sequence[Filling]) -> list[str]:
    found = [f"{mode}: {why}." for mode, why in refused.items()]
    whole = [filling for filling in fillings if not filling.refused and not filling.lost]
    if whole:
        largest = max(filling.frames for filling in whole)
        beyond = ": the limit of 1 GiB that the thread met is gone since Linux 5.6" if largest > UNIT_FRAMES else ""
        found.append(
            f"{largest} frames ({largest * FRAME_BYTES / 2**30:g} GiB) were registered by both ports, filled and "
            f"drained without loss{beyond}."
        )
    found += [f"{filling.frames} frames: {filling.lost} packets were lost." for filling in fillings if filling.lost]
    return found
