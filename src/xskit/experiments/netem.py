"""The same link asked of sch_netem and of xskit: what packets get of it, measured by the same senders."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from xskit.bench.document import Cell, Plot, Table, Unit
from xskit.emulator.intervals import binomial_interval
from xskit.experiments.bursts import Burst, segmented
from xskit.experiments.experiment import ExperimentResult, Options
from xskit.experiments.netem_links import WAYS, Impairments, joined, require_netem
from xskit.lab.traffic import UdpResult, udp

__all__ = ["run"]

CONFIDENCE = 0.95
LOSS = 0.05
FRAME_BYTES = 142
LARGE_BYTES = 1442
ROOM_PACKETS, ROOM_PAUSE_S, ROOM_OWD_S = 1500, 0.001, 6.0
"""All are in flight at once: they are sent within the owd. There are fewer than RX has entries, so that what is
measured is the room that a link has, and not how soon somebody takes packets out of a ring."""
SEGMENTS, SEGMENT_BYTES = 40, 1000

ASKED = {
    "owd": Impairments("owd 20ms", "delay 20ms", {"owd": "20ms"}),
    "jitter": Impairments(
        "owd 20ms, jitter 5ms uniform",
        "delay 20ms 5ms",
        {"owd": "20ms", "jitter": "5ms", "jitter_distribution": "uniform"},
    ),
    "loss": Impairments(f"loss {LOSS:.0%}", f"loss {LOSS:.0%}", {"loss": LOSS}),
    "rate": Impairments("rate 10Mbit", "rate 10mbit", {"rate": "10Mbit", "queue": "2s"}),
    "room": Impairments(f"owd {ROOM_OWD_S:g}s, no limit said", f"delay {ROOM_OWD_S:g}s", {"owd": f"{ROOM_OWD_S:g}s"}),
    "gso": Impairments(f"loss {LOSS:.0%}, packets of {SEGMENTS} segments", f"loss {LOSS:.0%}", {"loss": LOSS}),
}

Streams = dict[str, dict[str, UdpResult]]
"""What came, by question and by way."""
Bursts = dict[str, dict[str, Burst]]
Losses = dict[tuple[str, str], dict[str, int]]
"""Where packets got lost, by question and way."""


def run(options: Options) -> ExperimentResult:
    """Ask both, one after the other.

    Raises:
        KernelError: this kernel has no sch_netem.
    """
    result = ExperimentResult.begin("netem", options, "veth")
    require_netem()
    packets = 150 if options.short else 2000
    streams: Streams = {}
    losses: Losses = {}
    plans: dict[str, tuple[int, int, int]] = {
        "owd": (packets, 2_000_000, FRAME_BYTES),
        "jitter": (packets, 2_000_000, FRAME_BYTES),
        "loss": (4 * packets, 1_000_000, FRAME_BYTES),
        "rate": (300 if options.short else 1200, 500_000, LARGE_BYTES),
    }
    for name, (count, interval_ns, size) in plans.items():
        streams[name] = {}
        for way in WAYS:
            options.say(f"{ASKED[name].title}: {way}")
            with joined(way, ASKED[name]) as link:
                streams[name][way] = udp(*link.ends, packets=count, interval_ns=interval_ns, frame_bytes=size)
                losses[name, way] = link.lost()
    bursts: Bursts = {"room": {}, "gso": {}}
    for way in WAYS:
        options.say(f"{ASKED['room'].title}: {way}")
        with joined(way, ASKED["room"]) as link:
            bursts["room"][way] = segmented(
                *link.ends,
                packets=ROOM_PACKETS,
                segments=1,
                segment_bytes=100,
                pause_s=ROOM_PAUSE_S,
                owd_s=ROOM_OWD_S,
            )
            losses["room", way] = link.lost()
        options.say(f"{ASKED['gso'].title}: {way}")
        with joined(way, ASKED["gso"]) as link:
            count = 150 if options.short else 1000
            bursts["gso"][way] = segmented(*link.ends, packets=count, segments=SEGMENTS, segment_bytes=SEGMENT_BYTES)
            losses["gso", way] = link.lost()
    result.tables = [_times(streams), _packets(streams, bursts, losses)]
    result.plots = [_plot(name, streams[name]) for name in ("owd", "jitter")]
    result.findings = _findings(streams, bursts)
    return result


TIMES = ("p1", "p50", "p99", "deviation")


def _times(streams: Streams) -> Table:
    columns: dict[str, Unit] = {"asked": "text", "by": "text", "packets": "count", **dict.fromkeys(TIMES, "ns")}
    rows: list[list[Cell]] = []
    for name in ("owd", "jitter"):
        for way, came in streams[name].items():
            owd = came.owd_ns
            rows.append([ASKED[name].title, way, came.received, *(_quantile(owd, q) for q in (0.01, 0.5, 0.99)),
                         statistics.pstdev(owd), came.reordered])  # fmt: skip
    columns["overtaken"] = "count"
    return Table.of("Times: owd of single packets", columns, rows, "deviation: standard deviation of the owd.")


def _packets(streams: Streams, bursts: Bursts, losses: Losses) -> Table:
    columns: dict[str, Unit] = {"asked": "text", "by": "text", "sent": "count", "arrived": "count", "lost": "percent"}
    columns |= {"95 % interval": "text", "what else": "text"}
    rows: list[list[Cell]] = []
    for name in ("loss", "rate"):
        for way, came in streams[name].items():
            what = f"{_rate_bps(came) / 1e6:.2f} Mbit/s" if name == "rate" else _where(losses[name, way])
            interval = _interval(came.lost, came.sent) if name == "loss" else ""
            rows.append([ASKED[name].title, way, came.sent, came.received, _percent(came), interval, what])
    for name, ways in bursts.items():
        for way, burst in ways.items():
            words = [f"sent in {burst.seconds:.1f} s"] if name == "room" else [_runs(burst)]
            words.append(_where(losses[name, way]))
            what = "; ".join(word for word in words if word)
            rows.append([ASKED[name].title, way, burst.sent, burst.arrived, _percent(burst), "", what])
    note = "Intervals (Clopper-Pearson) where each packet's loss is its own; netem does not say where it lost what."
    return Table.of("Packets: loss, rate, room, super-packets", columns, rows, note)


def _percent(came: UdpResult | Burst) -> float:
    return 100 * came.lost / came.sent


def _interval(lost: int, sent: int) -> str:
    low, high = binomial_interval(lost, sent, CONFIDENCE)
    return f"{low * 100:.1f} to {high * 100:.1f} %"


def _where(losses: dict[str, int]) -> str:
    return ", ".join(f"{where} {count}" for where, count in losses.items())


def _runs(burst: Burst) -> str:
    """`lost 40 in a row`, on average."""
    return f"lost {_number(burst.mean_run)} in a row" if burst.runs else ""


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


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


def _findings(streams: Streams, bursts: Bursts) -> list[str]:
    netem, ours = WAYS
    jitter, room, gso = streams["jitter"], bursts["room"], bursts["gso"]
    found = [
        f"Under jitter {jitter[netem].reordered} packets were overtaken in netem, {jitter[ours].reordered} in xskit, "
        "which keeps order unless order=free is asked for.",
        f"With an owd of {ROOM_OWD_S:g} s and no limit said, {room[netem].arrived} of {room[netem].sent} packets came "
        f"through netem (its limit is 1000), {room[ours].arrived} through xskit.",
    ]
    for way in WAYS:
        came = streams["loss"][way]
        low, high = binomial_interval(came.lost, came.sent, CONFIDENCE)
        inside = "contains" if low <= LOSS <= high else "misses"
        found.append(f"The interval of the loss {inside} the {LOSS:.0%} that {way} was asked for.")
    slow = [way for way in WAYS if room[way].seconds >= ROOM_OWD_S]
    if slow:
        found.append(
            f"Sending these took longer than the owd ({', '.join(slow)}): they were not all in flight at once, and the "
            "row of the room says too little. The machine was too busy."
        )
    lost = [f"{_number(gso[way].mean_run)} in a row in {'netem' if way == netem else 'xskit'}" for way in WAYS]
    found.append(
        f"Of packets with {SEGMENTS} segments, losses came {' and '.join(lost)}, where the sender's segmentation "
        "offload is off."
    )
    return found
