"""TCP over veth with and without an XDP_PASS program, and the page pool memory that it takes."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from xskit.abi.bpf import XdpAction
from xskit.bench.document import Cell, Table, Unit
from xskit.bench.in_guest import emulated
from xskit.bpf.asm import Assembler
from xskit.bpf.attach import XdpMode, attach
from xskit.bpf.probe import BpfFeature, available
from xskit.bpf.program import Program, ProgramSpec
from xskit.experiments.experiment import ExperimentResult, Options, unless_emulated
from xskit.experiments.pagepool import PagePoolWatch
from xskit.experiments.rooms import Pair
from xskit.experiments.veth_buffers import (
    FULL_PAGE,
    HALF_PAGE,
    HALF_PAGE_192,
    PUBLISHED_LARGEST_MTU,
    RFC_CAPACITY,
)
from xskit.lab.host import Host
from xskit.lab.traffic import tcp
from xskit.netconf.interfaces import index
from xskit.netconf.netdev import page_pools

__all__ = ["run"]

MTUS = (1500, 8000)
WAYS: dict[str, XdpMode | None] = {"none": None, "native": XdpMode.NATIVE, "generic": XdpMode.GENERIC}
MODEL_MTUS = (1500, 1522, 3000, 8000, 9000, 36_000)
PAGE_BYTES = 4096


@dataclass
class _Measured:
    """By (MTU, way): the rates of all runs in bit/s, and the most pages that the pools held."""

    rates: dict[tuple[int, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    pages: dict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))
    source: str = ""
    listed: bool = False
    tool: str = ""

    def rate(self, mtu: int, way: str) -> float:
        """The median."""
        return statistics.median(self.rates[mtu, way])


def run(options: Options) -> ExperimentResult:
    """Measure, and calculate what buffers of half a page would change."""
    result = ExperimentResult.begin("veth-tcp", options)
    found = _measure(options)
    result.tables = [_rates(found), _memory(found), _model(), _capacities()]
    result.findings = _findings(found)
    return result


def _measure(options: Options) -> _Measured:
    found = _Measured()
    for repeat in range(options.repeat):
        for mtu in MTUS:
            for way in WAYS:
                options.say(f"TCP at MTU {mtu}, XDP_PASS {way}, {repeat + 1} of {options.repeat}")
                with PagePoolWatch() as watch, Pair(mtu) as pair, _passing(pair.hosts, WAYS[way]):
                    rate, found.tool = tcp(pair.hosts[0], pair.hosts[1], seconds=max(options.seconds, 1))
                    with pair.hosts[1].inside():
                        found.listed |= bool(page_pools())
                found.source = watch.source
                found.rates[mtu, way].append(rate)
                found.pages[mtu, way] = max(found.pages[mtu, way], watch.peak_pages)
    return found


@contextmanager
def _passing(hosts: Sequence[Host], mode: XdpMode | None) -> Iterator[None]:
    """XDP_PASS on the ends of all hosts."""
    with ExitStack() as stack:
        if mode is not None:
            code = Assembler().returns(XdpAction.PASS).assemble()
            spec = ProgramSpec("xk_pass", code, frags=available(BpfFeature.XDP_FRAGS))
            program = stack.enter_context(Program.load(spec))
            for host in hosts:
                with host.inside():
                    stack.enter_context(attach(program, index(host.interfaces[0]), mode))
        yield


def _rates(found: _Measured) -> Table:
    columns: dict[str, Unit] = dict.fromkeys(("no program", "XDP_PASS native", "XDP_PASS generic"), "bit/s")
    rows = []
    for mtu in MTUS:
        none, native, generic = (found.rate(mtu, way) for way in WAYS)
        rows.append([str(mtu), *unless_emulated(none, native, generic, (native / none - 1) * 100)])
    runs = len(found.rates[MTUS[0], "none"])
    note = f"Medians of {runs} runs in turns, TCP by {found.tool}, program on both ends."
    columns = {"MTU": "text", **columns, "native against none": "percent"}
    return Table.of("TCP over veth, Gbit/s", columns, rows, note)


def _memory(found: _Measured) -> Table:
    pages = ((mtu, way, found.pages[mtu, way]) for mtu in MTUS for way in WAYS)
    also = "" if found.listed else " The netdev family's page-pool-get lists no pool of veth on this kernel."
    note = f"The most at one moment of all runs, both ends. Source: {found.source}.{also}"
    return Table.of(
        "Page pool memory in flight",
        {"MTU": "text", "XDP_PASS": "text", "pages": "count", "bytes": "bytes"},
        ([str(mtu), way, count, count * PAGE_BYTES] for mtu, way, count in pages),
        note,
    )


def _model() -> Table:
    """Memory of one full-size packet by MTU."""
    ways = (FULL_PAGE, HALF_PAGE, HALF_PAGE_192)
    columns: dict[str, Unit] = dict.fromkeys((way.name for way in ways), "bytes")
    columns = {"MTU": "text", **columns, "half (192) / full": "number"}
    rows: list[list[Cell]] = []
    for mtu in MODEL_MTUS:
        sizes = [way.bytes_per_packet(mtu) if mtu <= way.largest_mtu else None for way in ways]
        whole, half = sizes[0], sizes[2]
        rows.append([str(mtu), *sizes, half / whole if whole and half else None])
    return Table.of("Calculated: bytes of page pool memory for a full-size packet", columns, rows)


def _capacities() -> Table:
    ways = (FULL_PAGE, HALF_PAGE, HALF_PAGE_192, RFC_CAPACITY)
    note = (
        f"The published largest MTU, {PUBLISHED_LARGEST_MTU}, is the capacity for a headroom of 192 and a NET_IP_ALIGN "
        "of 2: 17 x 2048 + 2048 - (192 + 2) - 320. On x86 NET_IP_ALIGN is 0, and an MTU leaves 14 bytes for the "
        f"Ethernet header: by the kernel's own formula it would be {HALF_PAGE_192.largest_mtu} there."
    )
    return Table.of(
        "Calculated: what the buffers hold",
        {"buffers": "text", "first holds": "bytes", "capacity": "bytes", "largest MTU": "bytes"},
        ([way.name, way.first, way.capacity, way.largest_mtu] for way in ways),
        note,
    )


def _findings(found: _Measured) -> list[str]:
    sentences = [
        f"A packet of MTU 1500 has {1500 + 14} bytes: half a page with the headroom of 256 that XDP promises holds "
        f"{HALF_PAGE.first} of them, with 192 it holds {HALF_PAGE_192.first}. That is why the headroom was cut.",
    ]
    for mtu in MTUS:
        native, generic = found.pages[mtu, "native"], found.pages[mtu, "generic"]
        if native or generic:
            sentences.append(f"At MTU {mtu} native XDP held up to {native} pages of page pools, generic {generic}.")
    if not emulated():
        change = (found.rate(1500, "native") / found.rate(1500, "none") - 1) * 100
        generic_change = (found.rate(1500, "generic") / found.rate(1500, "none") - 1) * 100
        sentences.append(
            f"At MTU 1500 native XDP_PASS changed the rate by {change:+.0f} % and generic by {generic_change:+.0f} %: "
            "attaching natively takes TSO away from the sender, so every packet passes the stack by itself."
        )
    return sentences
