"""txonly in skb mode by packet size: where the kernel copies each packet, and where it hangs on the page."""

from __future__ import annotations

from collections.abc import Sequence

from xskit.bench.bed import Bed
from xskit.bench.document import Cell, Table, Unit
from xskit.bench.in_guest import counted_instructions, emulated
from xskit.bench.results import CaseResult
from xskit.bench.session import measure
from xskit.bench.settings import Case, Conditions
from xskit.experiments.experiment import ExperimentResult, Options
from xskit.experiments.sends import Sends, count_sends
from xskit.netconf.interfaces import look

__all__ = ["run"]

SIZES = (64, 512, 1024, 1500)
"""xdpsock's: with the 4 bytes of the checksum that a NIC puts behind."""
ROUNDS, SHORT_ROUNDS = 200, 100


def run(options: Options) -> ExperimentResult:
    """Measure on the interface given, or on a veth pair."""
    interfaces = options.interfaces[:1]
    driver = look(interfaces[0]).driver if interfaces else "veth"
    result = ExperimentResult.begin("tx-sizes", options, driver)
    cases = [Case("txonly", interfaces, xdp="generic", packet_size=size, frame_size=4096) for size in SIZES]
    options.say(f"sendto, skb mode, {driver}, packets of {', '.join(map(str, SIZES))} bytes")
    rounds = SHORT_ROUNDS if options.short else ROUNDS
    with Bed() as bed:
        sends = [count_sends(case, bed.place(case), rounds) for case in cases]
    outcomes: list[CaseResult] = []
    if not emulated():
        options.say("txonly, skb mode")
        outcomes = measure(cases, Conditions(duration=options.seconds, repeat=options.repeat)).outcomes
    result.tables = [_table(outcomes, sends, driver)]
    result.findings = _findings(outcomes, sends, driver)
    return result


def _table(outcomes: Sequence[CaseResult], sends: Sequence[Sends], driver: str) -> Table:
    cost = "instructions of sendto a packet" if counted_instructions() else "ns of sendto a packet"
    columns: dict[str, Unit] = {"size": "text", "pps": "pps", cost: "count", "against 64": "percent"}
    columns |= {"bytes copied a packet": "count", "path": "text"}
    rates = [outcome.median("tx_pps") for outcome in outcomes]
    rows: list[list[Cell]] = []
    for number, (size, one) in enumerate(zip(SIZES, sends, strict=True)):
        rate = rates[number] if rates else None
        rows.append([str(size), rate, one.ns, (one.ns / sends[0].ns - 1) * 100, one.copied_bytes, _path(one, driver)])
    why = sends[0].why
    note = (
        f"Bytes copied were not counted here: {why}."
        if why
        else "Bytes copied: calls of skb_store_bits and __pskb_pull_tail, counted."
    )
    return Table.of("txonly, skb mode", columns, rows, note)


def _path(one: Sends, driver: str) -> str:
    if one.copies is not None:
        stored, pulled = one.copies["skb_store_bits"] >= 0.5, one.copies["__pskb_pull_tail"] >= 0.5
        return "copy" if stored else "page, then made linear for the device" if pulled else "page"
    return "copy: the device needs a linear part" if driver == "veth" else "not known"


def _findings(outcomes: Sequence[CaseResult], sends: Sequence[Sends], driver: str) -> list[str]:
    found = []
    known = [one.copied_bytes for one in sends if one.copied_bytes is not None]
    if known and max(known) < 1:
        found.append("Nothing was copied: the pages of the packet memory themselves went out (since Linux 5.13).")
    elif known and all((one.copied_bytes or 0) > 0.99 * one.length for one in sends):
        found.append("Every packet was copied whole.")
    if driver == "veth":
        found.append(
            "veth does not say IFF_TX_SKB_NO_LINEAR, so every packet is copied into the linear part of an skb."
        )
    rates = [outcome.median("tx_pps") for outcome in outcomes]
    if rates and rates[0] and rates[-1]:
        found.append(f"From 64 to 1500 bytes the rate changed by {(rates[-1] / rates[0] - 1) * 100:+.1f} %.")
    return found
