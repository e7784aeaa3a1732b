"""The same link asked of sch_netem and of xskit: what packets get of it, measured by the same senders.

host a [xka] --- veth, netem on xka's way out --- [xkb] host b          host a --- xskit's link --- host b
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xskit.bench.experiments.bursts import Burst, segmented
from xskit.bench.experiments.experiment import Options, Result
from xskit.bench.experiments.rooms import Pair
from xskit.bench.experiments.tables import Cell, Column, Plot, Table
from xskit.errors import KernelError
from xskit.lab import Lab
from xskit.lab.host import Host
from xskit.lab.traffic import UdpResult, udp

__all__ = ["run"]

WAYS = ("sch_netem", "xskit")
FRAME_BYTES = 142
LARGE_BYTES = 1442
ROOM_PACKETS, ROOM_PAUSE_S = 3000, 0.0001
"""So many, and sent within the owd: all are in flight at once."""
SEGMENTS, SEGMENT_BYTES = 40, 1000

Ends = tuple[Host, Host]


@dataclass(frozen=True)
class _Asked:
    """One question: netem's words, xskit's settings."""

    title: str
    netem: str
    xskit: dict[str, object]


ASKED = {
    "owd": _Asked("owd 20ms", "delay 20ms", {"owd": "20ms"}),
    "jitter": _Asked(
        "owd 20ms, jitter 5ms uniform",
        "delay 20ms 5ms",
        {"owd": "20ms", "jitter": "5ms", "jitter_distribution": "uniform"},
    ),
    "loss": _Asked("loss 5%", "loss 5%", {"loss": "5%"}),
    "rate": _Asked("rate 10Mbit", "rate 10mbit", {"rate": "10Mbit", "queue": "1s"}),
    "room": _Asked("owd 2s, no limit said", "delay 2s", {"owd": "2s"}),
    "gso": _Asked("loss 5%, packets of 40 segments", "loss 5%", {"loss": "5%"}),
}


def run(options: Options) -> Result:
    """Ask both, one after the other.

    Raises:
        KernelError: this kernel has no sch_netem.
    """
    result = Result.begin("netem", options, "veth")
    _require_netem()
    packets = 150 if options.short else 1000
    found: dict[str, dict[str, UdpResult]] = {}
    plans: dict[str, tuple[int, int, int]] = {
        "owd": (packets, 5_000_000, FRAME_BYTES),
        "jitter": (packets, 2_000_000, FRAME_BYTES),
        "loss": (4 * packets, 1_000_000, FRAME_BYTES),
        "rate": (2 * packets, 500_000, LARGE_BYTES),
    }
    for name, (count, interval_ns, size) in plans.items():
        found[name] = {}
        for way in WAYS:
            options.say(f"{ASKED[name].title}: {way}")
            with _link(way, ASKED[name]) as ends:
                found[name][way] = udp(*ends, packets=count, interval_ns=interval_ns, frame_bytes=size)
    bursts: dict[str, dict[str, Burst]] = {"room": {}, "gso": {}}
    for way in WAYS:
        options.say(f"{ASKED['room'].title}: {way}")
        with _link(way, ASKED["room"]) as ends:
            bursts["room"][way] = segmented(
                *ends, packets=ROOM_PACKETS, segments=1, segment_bytes=100, pause_s=ROOM_PAUSE_S
            )
        options.say(f"{ASKED['gso'].title}: {way}")
        with _link(way, ASKED["gso"]) as ends:
            bursts["gso"][way] = segmented(*ends, packets=packets, segments=SEGMENTS, segment_bytes=SEGMENT_BYTES)
    result.tables = [_times(found), _packets(found, bursts)]
    result.plots = [_plot(name, found[name]) for name in ("owd", "jitter")]
    result.findings = _findings(found, bursts)
    return result


def _require_netem() -> None:
    with Pair() as pair:
        tried = pair.hosts[0].run(
            "tc", "qdisc", "add", "dev", pair.interfaces[0], "root", "netem", capture_output=True, text=True
        )
    if tried.returncode != 0:
        words = (tried.stderr.strip() or "tc failed").splitlines()[0]
        raise KernelError(
            f"this kernel has no sch_netem ({words})", remedy="xskit experiment run netem --kernel 6.12 --short"
        )


@contextmanager
def _link(way: str, asked: _Asked) -> Iterator[Ends]:
    """Two hosts; what goes from the first to the second meets what was asked for."""
    if way == "sch_netem":
        with Pair() as pair:
            a, b = pair.hosts
            words = ["tc", "qdisc", "add", "dev", a.interfaces[0], "root", "netem", *asked.netem.split()]
            a.run(*words, check=True)
            yield a, b
        return
    with Lab(memory="64MiB") as lab:
        a, b = lab.host("a"), lab.host("b")
        lab.link(a, b, forward=asked.xskit)
        yield a, b


def _times(found: dict[str, dict[str, UdpResult]]) -> Table:
    columns = [Column("asked"), Column("by"), Column("p1", "ns"), Column("p50", "ns"), Column("p99", "ns"),
               Column("deviation", "ns"), Column("overtaken", "count")]  # fmt: skip
    rows: list[list[Cell]] = []
    for name in ("owd", "jitter"):
        for way, came in found[name].items():
            owd = came.owd_ns
            rows.append([ASKED[name].title, way, *(_quantile(owd, q) for q in (0.01, 0.5, 0.99)),
                         statistics.pstdev(owd), came.reordered])  # fmt: skip
    return Table("Times: owd of single packets", columns, rows, "deviation: standard deviation of the owd.")


def _packets(found: dict[str, dict[str, UdpResult]], bursts: dict[str, dict[str, Burst]]) -> Table:
    columns = [Column("asked"), Column("by"), Column("sent", "count"), Column("arrived", "count"),
               Column("lost", "percent"), Column("what else")]  # fmt: skip
    rows: list[list[Cell]] = []
    for name in ("loss", "rate"):
        for way, came in found[name].items():
            rate = f"{_rate_bps(came) / 1e6:.2f} Mbit/s" if name == "rate" else ""
            rows.append([ASKED[name].title, way, came.sent, came.received, 100 * came.lost / came.sent, rate])
    for name, ways in bursts.items():
        for way, burst in ways.items():
            runs = f"lost {burst.mean_run:.1f} in a row" if burst.runs else ""
            rows.append([ASKED[name].title, way, burst.sent, burst.arrived, 100 * burst.lost / burst.sent, runs])
    return Table("Packets: loss, rate, room, super-packets", columns, rows)


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def _rate_bps(came: UdpResult) -> float:
    """Bits a second, with Ethernet header, between the first packet and the last."""
    stamps = sorted(came.stamps_ns)
    return (len(stamps) - 1) * came.frame_bytes * 8e9 / max(stamps[-1] - stamps[0], 1)


def _plot(name: str, ways: dict[str, UdpResult]) -> Plot:
    """The distribution of the owd, as shares of packets that took at most so long."""
    curves: list[tuple[str, list[tuple[float, float]]]] = []
    for way, came in ways.items():
        count = len(came.owd_ns)
        step = max(1, count // 200)
        curves.append((way, [(owd / 1e6, (at + 1) / count) for at, owd in enumerate(came.owd_ns) if at % step == 0]))
    return Plot(f"{ASKED[name].title}: packets that took at most so long", "ms", "share", curves)


def _findings(found: dict[str, dict[str, UdpResult]], bursts: dict[str, dict[str, Burst]]) -> list[str]:
    netem, ours = WAYS
    jitter, room, gso = found["jitter"], bursts["room"], bursts["gso"]
    return [
        f"Under jitter {jitter[netem].reordered} packets were overtaken in netem, {jitter[ours].reordered} in xskit, "
        "which keeps order unless order=free is asked for.",
        f"With an owd of 2 s and no limit said, {room[netem].arrived} of {room[netem].sent} packets came through "
        f"netem (its limit is 1000), {room[ours].arrived} through xskit.",
        f"Of packets with {SEGMENTS} segments, losses came {gso[netem].mean_run:.1f} in a row in netem and "
        f"{gso[ours].mean_run:.1f} in xskit, where the sender's segmentation offload is off.",
    ]
