"""Long packets in frames of 4096 and 2048 bytes, against one chunk of 8192; and what hiding the frames costs."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from xskit.abi.xdp import AF_XDP, SOL_XDP, SocketOption, UmemFlag, UmemReg
from xskit.bench.experiments.actions import Passage, passed_and_redirected
from xskit.bench.experiments.experiment import Options, Result
from xskit.bench.experiments.tables import Cell, Column, Table
from xskit.bench.experiments.view_cost import ViewCost, view_costs
from xskit.bench.guest import counted_instructions, emulated
from xskit.bench.packet import FCS_BYTES
from xskit.bench.results import Outcome
from xskit.bench.session import measure
from xskit.bench.settings import Case, Conditions
from xskit.memory import Region

__all__ = ["PACKET_BYTES", "run"]

PACKET_BYTES = 8192 - 256
MEMORY_BYTES = 16 << 20
FRAME_SIZES = (4096, 2048)
MODES = ("rxdrop", "l2fwd")
CHUNKS = (8192, 16_384)


def run(options: Options) -> Result:
    """Measure on a veth pair."""
    result = Result.begin("frame-sizes", options)
    cases = [_case(mode, size) for mode in MODES for size in FRAME_SIZES]
    options.say(f"rxdrop and l2fwd, packets of {PACKET_BYTES} bytes")
    session = measure(cases, Conditions(duration=options.seconds, repeat=options.repeat))
    refused = [large_chunk(size, unaligned=unaligned) for size in CHUNKS for unaligned in (False, True)]
    options.say("the packet view")
    costs = view_costs(options.seconds, options.repeat, PACKET_BYTES)
    options.say("XDP_PASS and XDP_REDIRECT")
    passages = passed_and_redirected(PACKET_BYTES, 50 if options.short else 1000)
    result.tables = [
        _rates(session.outcomes, refused),
        _cpu(session.outcomes),
        _views(costs),
        _passages(passages),
    ]
    result.findings = _findings(session.outcomes, refused, costs, passages)
    return result


def _case(mode: str, frame_size: int) -> Case:
    return Case(
        "rxdrop" if mode == "rxdrop" else "l2fwd",
        xdp="native",
        packet_size=PACKET_BYTES + FCS_BYTES,
        frame_size=frame_size,
        frames=MEMORY_BYTES // frame_size,
        multi_buffer=True,
    )


def large_chunk(size: int, *, unaligned: bool) -> str | None:
    """Why the kernel refuses a UMEM with chunks of this size; None: it takes them."""
    flags = UmemFlag.UNALIGNED_CHUNK if unaligned else UmemFlag.NONE
    with Region(2 << 20, huge=True) as region, socket.socket(AF_XDP, socket.SOCK_RAW, 0) as handle:
        wanted = UmemReg(region.address, region.size, size, 0, flags, 0)
        try:
            handle.setsockopt(SOL_XDP, SocketOption.UMEM_REG, wanted.pack())
        except OSError as error:
            return error.strerror
    return None


def _rates(outcomes: Sequence[Outcome], refused: Sequence[str | None]) -> Table:
    columns = [
        Column("mode"),
        Column("4096, multi-buffer", "pps"),
        Column("2048, multi-buffer", "pps"),
        Column("one chunk of 8192", "pps"),
        Column("2048 against 4096", "percent"),
    ]
    rows: list[list[Cell]] = []
    for mode, pair in zip(MODES, (outcomes[:2], outcomes[2:]), strict=True):
        large, small = (outcome.median("rx_pps" if mode == "rxdrop" else "tx_pps") for outcome in pair)
        change = (small / large - 1) * 100 if large and small else None
        chunk = "taken" if refused[0] is None else "refused"
        if emulated():
            large = small = change = None
        rows.append([mode, large, small, chunk, change])
    note = "Medians. The source is a socket that copies: often it, and not the receiver, is the limit."
    return Table(f"Packets of {PACKET_BYTES} bytes, pps", columns, rows, note)


def _cost_metric() -> str:
    return "instructions_per_packet" if counted_instructions() else "cpu_ns_per_packet"


def _cpu(outcomes: Sequence[Outcome]) -> Table:
    columns = [Column("mode"), Column("4096", "count"), Column("2048", "count"), Column("2048 against 4096", "percent"),
               Column("frames: 4096", "number"), Column("frames: 2048", "number")]  # fmt: skip
    rows: list[list[Cell]] = []
    for mode, pair in zip(MODES, (outcomes[:2], outcomes[2:]), strict=True):
        large, small = (outcome.median(_cost_metric()) for outcome in pair)
        frames = [_frames_each(outcome) for outcome in pair]
        rows.append([mode, large, small, (small / large - 1) * 100 if large and small else None, *frames])
    return Table(f"{_unit()} of the receiving worker for a packet, and frames that it takes", columns, rows)


def _unit() -> str:
    """Of what a packet costs."""
    return "instructions" if counted_instructions() else "ns of CPU time"


def _frames_each(outcome: Outcome) -> float | None:
    received = sum(run.counts["received"] for run in outcome.runs)
    frames = sum(run.counts["received_frames"] for run in outcome.runs)
    return frames / received if received else None


def _views(costs: Sequence[ViewCost]) -> Table:
    columns = [Column("how the packet is read, in Python"), Column("frame", "count"), Column("packet", "count"),
               Column("frames each", "count"), Column(f"{_unit()} a packet", "count")]  # fmt: skip
    rows: list[list[Cell]] = [
        [cost.how, cost.frame_size, cost.packet_bytes, cost.frames_each, cost.cpu_ns] for cost in costs
    ]
    return Table("What it costs to hide the frames of a packet", columns, rows)


def _passages(passages: Sequence[Passage]) -> Table:
    columns = [Column("action"), Column("sent", "count"), Column("arrived", "count"), Column("whole", "count"),
               Column("remark")]  # fmt: skip
    rows: list[list[Cell]] = [[one.action, one.sent, one.arrived, one.whole, one.remark] for one in passages]
    return Table(f"Multi-buffer packets of {PACKET_BYTES} bytes, natively, every byte compared", columns, rows)


def _findings(
    outcomes: Sequence[Outcome],
    refused: Sequence[str | None],
    costs: Sequence[ViewCost],
    passages: Sequence[Passage],
) -> list[str]:
    found = []
    if all(words is not None for words in refused):
        sizes = " and ".join(map(str, CHUNKS))
        found.append(f"This kernel refuses chunks of {sizes} bytes, aligned or not: {refused[0]}.")
    else:
        found.append("This kernel takes chunks larger than a page: that is new, and the column is to be measured.")
    for mode, pair in zip(MODES, (outcomes[:2], outcomes[2:]), strict=True):
        large, small = (outcome.median(_cost_metric()) for outcome in pair)
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
