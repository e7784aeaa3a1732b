"""Long packets in frames of 4096 and 2048 bytes, against one chunk of 8192; and what hiding the frames costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple

from xskit.bench.document import Cell, Table, Unit
from xskit.bench.in_guest import counted_instructions, emulated
from xskit.bench.packet import FCS_BYTES
from xskit.bench.results import CaseResult
from xskit.bench.session import measure
from xskit.bench.settings import BenchMode, Case, Conditions
from xskit.experiments.actions import Passage, passed_and_redirected
from xskit.experiments.catalogue import FRAME_SIZE_COLUMNS
from xskit.experiments.experiment import ExperimentResult, Options
from xskit.experiments.view_cost import ViewCost, view_costs
from xskit.xsk.probe import why_no_frames_of

__all__ = ["PACKET_BYTES", "run"]

PACKET_BYTES = 8192 - 256
MEMORY_BYTES = 16 << 20
FRAME_SIZES = (4096, 2048)
LARGE_CHUNK = 8192
MODES: tuple[BenchMode, ...] = ("rxdrop", "l2fwd")
CHUNKS = (LARGE_CHUNK, 16_384)

Measured = Mapping[BenchMode, Mapping[int, CaseResult]]
"""By mode and frame size."""


def run(options: Options) -> ExperimentResult:
    """Measure on a veth pair."""
    result = ExperimentResult.begin("frame-sizes", options)
    refused = {
        (size, unaligned, hugetlb): why_no_frames_of(size, unaligned=unaligned, hugetlb=hugetlb)
        for size in CHUNKS
        for unaligned in (False, True)
        for hugetlb in (False, True)
    }
    options.say(f"rxdrop and l2fwd, packets of {PACKET_BYTES} bytes")
    measured = measure_all(options, hugetlb=hugetlb_of_large_chunk(refused))
    options.say("the packet view")
    costs = view_costs(options.seconds, options.repeat, PACKET_BYTES)
    options.say("XDP_PASS and XDP_REDIRECT")
    passages = passed_and_redirected(PACKET_BYTES, 50 if options.short else 1000)
    result.tables = [
        _rates(measured),
        _cpu(measured),
        _views(costs),
        _passages(passages),
    ]
    result.findings = _findings(measured, refused, costs, passages)
    return result


Refused = Mapping[tuple[int, bool, bool], str | None]
"""Frame size, unaligned, from the hugetlb pool -> why the kernel does not take such frames; None: it does."""


def hugetlb_of_large_chunk(refused: Refused) -> bool | None:
    """Which memory a kernel wants that takes one chunk for a packet; None: it takes no such chunk."""
    for hugetlb in (False, True):
        if refused[LARGE_CHUNK, False, hugetlb] is None:
            return hugetlb
    return None


def measure_all(options: Options, *, hugetlb: bool | None) -> Measured:
    """Every mode in every frame size, in turns; in one chunk, too, unless `hugetlb` says that there is none."""
    cases = [_case(mode, size, hugetlb=False) for mode in MODES for size in FRAME_SIZES]
    if hugetlb is not None:
        cases += [_case(mode, LARGE_CHUNK, hugetlb=hugetlb) for mode in MODES]
    session = measure(cases, Conditions(duration=options.seconds, repeat=options.repeat))
    found: dict[BenchMode, dict[int, CaseResult]] = {mode: {} for mode in MODES}
    for outcome in session.outcomes:
        found[outcome.case.mode][outcome.case.frame_size] = outcome
    return found


def _case(mode: BenchMode, frame_size: int, *, hugetlb: bool) -> Case:
    return Case(
        mode,
        xdp="native",
        packet_size=PACKET_BYTES + FCS_BYTES,
        frame_size=frame_size,
        frames=MEMORY_BYTES // frame_size,
        hugetlb=hugetlb,
        multi_buffer=True,
    )


def _rates(measured: Measured) -> Table:
    rows: list[list[Cell]] = []
    for mode, by_size in measured.items():
        pps = {size: outcome.median("rx_pps" if mode == "rxdrop" else "tx_pps") for size, outcome in by_size.items()}
        if emulated():
            pps = dict.fromkeys(pps)
        chunk: Cell = pps.get(LARGE_CHUNK, "refused")
        rows.append([mode, pps[4096], pps[2048], chunk, _change(pps[2048], pps[4096])])
    note = "Medians. The source is a socket that copies: often it, and not the receiver, is the limit."
    return Table.of(f"Packets of {PACKET_BYTES} bytes, pps", FRAME_SIZE_COLUMNS, rows, note)


def _change(new: float | None, old: float | None) -> float | None:
    return (new / old - 1) * 100 if new and old else None


def _cost_metric() -> str:
    return "instructions_per_packet" if counted_instructions() else "cpu_ns_per_packet"


def _cpu(measured: Measured) -> Table:
    columns: dict[str, Unit] = {"mode": "text", "4096": "count", "2048": "count", "2048 against 4096": "percent"}
    columns |= {"frames: 4096": "number", "frames: 2048": "number"}
    rows: list[list[Cell]] = []
    one_chunk = LARGE_CHUNK in measured[MODES[0]]
    if one_chunk:
        columns["one chunk of 8192"] = "count"
    for mode, by_size in measured.items():
        cost = {size: outcome.median(_cost_metric()) for size, outcome in by_size.items()}
        frames = [_frames_each(by_size[size]) for size in FRAME_SIZES]
        chunk = [cost[LARGE_CHUNK]] if one_chunk else []
        rows.append([mode, cost[4096], cost[2048], _change(cost[2048], cost[4096]), *frames, *chunk])
    return Table.of(f"{_unit()} of the receiving worker for a packet, and frames that it takes", columns, rows)


def _unit() -> str:
    """Of what a packet costs."""
    return "instructions" if counted_instructions() else "ns of CPU time"


def _frames_each(outcome: CaseResult) -> float | None:
    received = sum(run.counts["received"] for run in outcome.runs)
    frames = sum(run.counts["received_frames"] for run in outcome.runs)
    return frames / received if received else None


def _views(costs: Sequence[ViewCost]) -> Table:
    columns: dict[str, Unit] = dict.fromkeys(("frame", "packet", "frames each", f"{_unit()} a packet"), "count")
    return Table.of(
        "What it costs to hide the frames of a packet",
        {"how the packet is read, in Python": "text", **columns},
        ([cost.how, cost.frame_size, cost.packet_bytes, cost.frames_each, cost.cpu_ns] for cost in costs),
    )


def _passages(passages: Sequence[Passage]) -> Table:
    return Table.of(
        f"Multi-buffer packets of {PACKET_BYTES} bytes, natively, every byte compared",
        {"action": "text", "sent": "count", "arrived": "count", "whole": "count", "remark": "text"},
        map(astuple, passages),
    )


def _findings(
    measured: Measured,
    refused: Refused,
    costs: Sequence[ViewCost],
    passages: Sequence[Passage],
) -> list[str]:
    found = []
    if all(words is not None for words in refused.values()):
        sizes = " and ".join(map(str, CHUNKS))
        words = refused[LARGE_CHUNK, False, False]
        found.append(f"This kernel refuses chunks of {sizes} bytes, aligned or not: {words}.")
    else:
        taken = ", ".join(
            f"{size}{' unaligned' * unaligned}{' from the hugetlb pool' * hugetlb}"
            for (size, unaligned, hugetlb), words in refused.items()
            if words is None
        )
        found.append(f"This kernel takes chunks larger than a page: {taken}.")
    for mode, by_size in measured.items():
        large, small = (by_size[size].median(_cost_metric()) for size in FRAME_SIZES)
        if large and small:
            found.append(
                f"{mode}: in frames of 2048 bytes a packet costs the receiving worker {small:.0f} {_unit()}, in frames "
                f"of 4096 {large:.0f}; the kernel's copy into them is the sender's time on veth."
            )
    by_hand = {cost.frame_size: cost.cpu_ns for cost in costs if cost.how == ViewCost.BY_HAND and cost.frames_each > 1}
    viewed = {cost.frame_size: cost.cpu_ns for cost in costs if cost.how == ViewCost.VIEWED and cost.frames_each > 1}
    for size in sorted(by_hand, reverse=True):
        if size in viewed and by_hand[size]:
            more = viewed[size] - by_hand[size]
            found.append(
                f"In Python, the packet view costs {more:+.0f} {_unit()} a packet over descriptors by hand, in frames "
                f"of {size} bytes; the compiled loops above read descriptors themselves and pay nothing for it."
            )
    broken = [one.action for one in passages if one.whole < one.sent]
    found.append(
        "Every packet that was passed to the stack or redirected arrived whole."
        if not broken
        else f"Not every packet arrived whole: {', '.join(broken)}."
    )
    return found
