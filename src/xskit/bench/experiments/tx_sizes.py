"""txonly in skb mode by packet size: where the kernel copies each packet, and where it hangs on the page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from xskit.bench.experiments.copies import CopyCount
from xskit.bench.experiments.experiment import Options, Result, counted_instructions, emulated
from xskit.bench.experiments.tables import Cell, Column, Table
from xskit.bench.results import Outcome
from xskit.bench.session import measure
from xskit.bench.settings import Case, Conditions

__all__ = ["run"]

SIZES = (64, 512, 1024, 1500)
"""xdpsock's: with the 4 bytes of the checksum that a NIC puts behind."""
LEAST_COUNTED = 64


def run(options: Options) -> Result:
    """Measure on the interface given, or on a veth pair."""
    interfaces = options.interfaces[:1]
    result = Result.begin("tx-sizes", options, interfaces[0] if interfaces else "veth")
    cases = [Case("txonly", interfaces, xdp="generic", packet_size=size, frame_size=4096) for size in SIZES]
    counted = _copies(cases, options)
    options.say("txonly, skb mode, packets of " + ", ".join(map(str, SIZES)) + " bytes")
    session = measure(cases, Conditions(duration=options.seconds, repeat=options.repeat))
    if interfaces:
        drivers = {facts["driver"] for outcome in session.outcomes for facts in outcome.interfaces}
        result.where = f"{result.where} ({', '.join(sorted(drivers))})"
    result.tables = [_table(session.outcomes, counted)]
    result.findings = _findings(session.outcomes, counted)
    return result


def _copies(cases: Sequence[Case], options: Options) -> list[float | str]:
    """Bytes copied for each packet of each case, or why nobody knows."""
    found: list[float | str] = []
    for case in cases:
        options.say(f"counting copies, packets of {case.packet_size} bytes")
        with CopyCount() as count:
            session = measure([case], Conditions(duration=options.seconds / 3, repeat=1))
        packets = session.outcomes[0].runs[0].counts["sent"]
        if count.calls is None:
            found.append(count.why)
        elif packets < LEAST_COUNTED:
            found.append("too few packets")
        else:
            found.append(count.calls / packets * case.packet.length)
    return found


def _table(outcomes: Sequence[Outcome], copied: Sequence[float | str]) -> Table:
    cost = "instructions a packet" if counted_instructions() else "CPU ns a packet"
    columns = [Column("size"), Column("pps", "pps"), Column(cost, "count"), Column("bytes copied a packet", "count"),
               Column("path")]  # fmt: skip
    rows: list[list[Cell]] = []
    for outcome, copies in zip(outcomes, copied, strict=True):
        rate: Cell = None if emulated() else _median(outcome, "tx_pps")
        number = None if isinstance(copies, str) else copies
        rows.append([str(outcome.case.packet_size), rate, _median(outcome, "cpu_ns_per_packet"), number, _path(copies)])
    why = next((words for words in copied if isinstance(words, str)), "")
    note = f"Bytes copied are not known here: {why}." if why else "Bytes copied: calls of skb_store_bits, counted."
    return Table("txonly, skb mode", columns, rows, note)


def _median(outcome: Outcome, metric: str) -> float | None:
    values = outcome.values(metric)
    return statistics.median(values) if values else None


def _path(copied: float | str) -> str:
    if isinstance(copied, str):
        return "copy: this device needs a linear part"
    return "page" if copied < 1 else "copy"


def _findings(outcomes: Sequence[Outcome], copied: Sequence[float | str]) -> list[str]:
    metric = "cpu_ns_per_packet" if emulated() else "tx_pps"
    first, last = (_median(outcome, metric) for outcome in (outcomes[0], outcomes[-1]))
    found = []
    if first and last:
        word = "instructions" if counted_instructions() else "time" if emulated() else "packets a second"
        found.append(f"From 64 to 1500 bytes {word} changed by {(last / first - 1) * 100:+.1f} %.")
    known = [copies for copies in copied if not isinstance(copies, str)]
    if known and max(known) < 1:
        found.append("Nothing was copied: the pages of the packet memory themselves went out (since Linux 5.13).")
    elif known:
        found.append("Every packet was copied whole into an skb.")
    else:
        found.append(
            "veth does not say IFF_TX_SKB_NO_LINEAR, so every packet is copied into the linear part of an skb."
        )
    return found
