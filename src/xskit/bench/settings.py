"""What is asked of a benchmark: a Case is one combination of all that can be swept, Conditions hold for all of them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from xskit.arguments import choice, literal, seconds, whole
from xskit.bench.inference import PAIRS
from xskit.bench.packet import DESTINATION_MAC, PATTERN, SOURCE_MAC, PacketSpec
from xskit.errors import UsageError
from xskit.netconf.names import check_interface_name
from xskit.xsk.opening import MOST_FRAMES, BindMode
from xskit.xsk.umem import SMALLEST_FRAME_BYTES

__all__ = ["MODES", "QUEUES", "BenchMode", "Case", "Conditions", "DriveKind", "sweep"]

BenchMode = Literal["rxdrop", "txonly", "l2fwd", "forward", "latency", "loss"]
MODES: tuple[BenchMode, ...] = get_args(BenchMode)

DriveKind = Literal["auto", "live", "af-xdp", "none"]
"""What works at the other end of a veth pair made for the benchmark: BPF programs and live frames, or AF_XDP."""

CLOCKS = {
    "MONOTONIC": time.CLOCK_MONOTONIC,
    "REALTIME": time.CLOCK_REALTIME,
    "TAI": time.CLOCK_TAI,
    "BOOTTIME": time.CLOCK_BOOTTIME,
}

QUEUES = 64
"""The highest queue number that packets are taken from, and one more."""

LIVE_PACKET_BYTES = 3300
"""A live frame must fit a page with what the kernel keeps there (net/bpf/test_run.c)."""


@dataclass(frozen=True)
class Case:
    """One thing to measure. Sizes in bytes, `packet_size` with the NIC's checksum, rings in entries.

    Raises:
        UsageError: an impossible value.
    """

    mode: BenchMode
    interfaces: tuple[str, ...] = ()
    """One, or two for forward and loss; none: a veth pair each is made."""
    queues: tuple[int, ...] = (0,)
    xdp: BindMode = "auto"
    packet_size: int = 64
    frame_size: int = 4096
    frames: int = 4096
    ring: int = 2048
    batch: int = 64
    poll: bool = False
    busy_poll: bool = False
    need_wakeup: bool = True
    unaligned: bool = False
    hugetlb: bool = False
    multi_buffer: bool = False
    sharers: int = 1
    """Sockets on each queue, which get its packets in turn."""
    count: int = 0
    """Packets to send, or to receive, in each direction; 0: until the time is over."""
    cycle_ns: int = 0
    vlan: int | None = None
    vlan_priority: int = 0
    destination_mac: str = DESTINATION_MAC
    source_mac: str = SOURCE_MAC
    pattern: int = PATTERN
    stamped: bool = False
    clock: str = "MONOTONIC"
    drive: DriveKind = "auto"
    both_ways: bool = False
    """Packets come from both ends; forward only."""
    kernel: str = ""
    """Of the guest that it ran in; "": on this machine itself."""
    nic: str = ""
    """The guest's NIC model, where it ran on such; "": on veth pairs, or on this machine's interfaces."""

    def __post_init__(self) -> None:
        choice("mode", self.mode, MODES)
        choice("--mode", self.xdp, get_args(BindMode))
        choice("--drive", self.drive, get_args(DriveKind))
        for name, option in (("interfaces", "--interface"), ("queues", "--queue")):
            if not isinstance(getattr(self, name), tuple):
                raise UsageError(f"{option} must be a tuple, not {literal(getattr(self, name))}")
        for interface in self.interfaces:
            check_interface_name(interface)
        most = 2 if self.mode in ("forward", "loss") else 1
        if len(self.interfaces) > most or (self.mode == "forward" and len(self.interfaces) == 1):
            raise UsageError(
                f"{self.mode} takes {'two interfaces' if self.mode == 'forward' else 'one interface'}, "
                f"not {len(self.interfaces)}",
                remedy=f"xskit bench {self.mode} --interface {'eth0,eth1' if self.mode == 'forward' else 'eth0'}",
            )
        for name, option, least, largest in _LIMITS:
            value = whole(option, getattr(self, name), least, largest, remedy=f"{option} {{}}{_UNITS.get(name, '')}")
            object.__setattr__(self, name, value)  # frozen
        for queue in self.queues:
            whole("--queue", queue, 0, QUEUES - 1, remedy="--queue 0")
        if not self.queues or len(set(self.queues)) < len(self.queues):
            raise UsageError("--queue takes each number once", remedy="--queue 0,1")
        if 0 < self.count < len(self.queues):
            raise UsageError(
                f"{self.count} packets are too few for {len(self.queues)} queues", remedy=f"--count {len(self.queues)}"
            )
        if self.mode == "latency" and (len(self.queues) > 1 or self.sharers > 1):
            raise UsageError(
                "latency knows one queue with one socket: what comes back may come to another one",
                remedy="--queue 0 --sockets 1",
            )
        if len(set(self.interfaces)) < len(self.interfaces):
            raise UsageError(f"{self.interfaces[0]} is named twice", remedy="--interface eth0,eth1")
        choice("--clock", self.clock, CLOCKS)
        if self.both_ways and self.mode != "forward":
            raise UsageError(
                f"{self.mode} has one way: packets come from both ends in forward only",
                remedy="xskit bench forward --both-ways",
            )
        self._check_packet()

    def _check_packet(self) -> None:
        needed = -(-self.packet.length // self.frame_size)
        if needed > 1 and not self.multi_buffer:
            raise UsageError(
                f"a packet of {self.packet_size} bytes needs {needed} frames of {self.frame_size}",
                remedy="--frags, which takes several frames for a packet (Linux 6.6), or a larger --frame-size",
            )
        if needed > MOST_FRAMES:
            raise UsageError(
                f"a packet of {self.packet_size} bytes needs {needed} frames of {self.frame_size}, and the kernel "
                f"sends at most {MOST_FRAMES} at once",
                remedy="a larger --frame-size, or a smaller --packet-size",
            )
        if self.drive == "live" and self.mode == "latency" and self.xdp == "generic":
            raise UsageError(
                "what a BPF program sends back over veth waits where there is no native program",
                remedy="--drive af-xdp",
            )
        if self.drive == "live" and self.packet.length > LIVE_PACKET_BYTES:
            raise UsageError(
                f"live frames have at most {LIVE_PACKET_BYTES} bytes, not {self.packet.length}",
                remedy="--drive af-xdp",
            )

    @property
    def packet(self) -> PacketSpec:
        """The packet that is sent; numbered where the mode needs it."""
        return PacketSpec(
            self.packet_size,
            self.vlan,
            self.vlan_priority,
            self.destination_mac,
            self.source_mac,
            self.pattern,
            self.stamped or self.mode in ("latency", "loss"),
        )

    @property
    def ports(self) -> int:
        """How many interfaces it needs."""
        return len(self.interfaces) or (2 if self.mode == "forward" else 1)

    def of_queue(self, number: int) -> Case:
        """The case of one of its queues, the `number`th: it has its share of the packets."""
        share, rest = divmod(self.count, len(self.queues))
        return replace(self, count=share + (number < rest), queues=(self.queues[number],))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Case:
        """What as_dict gave; fields that this version does not know are left out."""
        known = {one.name for one in fields(cls)}
        pairs = ((name, tuple(value) if isinstance(value, list) else value) for name, value in values.items())
        arguments: dict[str, Any] = {name: value for name, value in pairs if name in known}
        return cls(**arguments)


_LIMITS = (
    ("frame_size", "--frame-size", SMALLEST_FRAME_BYTES, 1 << 16),
    ("frames", "--frames", 16, 1 << 24),
    ("ring", "--ring", 16, 1 << 20),
    ("batch", "--batch", 1, 4096),
    ("sharers", "--sockets", 1, 16),
    ("count", "--count", 0, 1 << 62),
    ("cycle_ns", "--tx-cycle", 0, 1 << 40),
)
_UNITS = {"cycle_ns": "ns"}
_HIGHEST_CPU = 8191
"""CONFIG_NR_CPUS at most (arch/x86/Kconfig)."""


@dataclass(frozen=True)
class Conditions:
    """How it is measured: times in seconds.

    Attributes:
        duration: of one run.
        repeat: runs of each case; the cases take turns.
        until: go on until either end of the 95 % interval of the median is within this fraction of it; None: `repeat`
            decides.
        most: runs of each case at most, when `until` decides; `repeat` where that is more.
        cpus: for the workers, one a queue, in order; empty: the last of those allowed.
        drive_cpu: for what drives the other end; None: the first of those allowed.
        priority: above 0 a real-time one (SCHED_FIFO).
        reduce_capabilities: the workers give up CAP_NET_ADMIN, CAP_BPF and the like before the first packet.
        retries: seconds to wait at the end for packets that are still on their way.
        interval: between two looks at the counters at most; short runs are looked at 40 times.
        interrupts: count those of the first line of /proc/interrupts that contains this.
    """

    duration: float = 1.0
    repeat: int = PAIRS
    until: float | None = None
    most: int = 100
    cpus: tuple[int, ...] = ()
    drive_cpu: int | None = None
    priority: int = 0
    reduce_capabilities: bool = False
    retries: int = 3
    interval: float = 1.0
    interrupts: str | None = None

    def __post_init__(self) -> None:
        _span("--duration", self.duration, 0.01, 1e6)
        _span("--interval", self.interval, 0.001, 3600)
        whole("--repeat", self.repeat, 1, 1_000_000, remedy="--repeat {}")
        if self.until is not None and not 0 < self.until < 1:
            raise UsageError(f"--until must be between 0% and 100%, not {self.until:.0%}", remedy="--until 1%")
        whole("--schpri", self.priority, 0, 99, remedy="--schpri {}")
        whole("--retries", self.retries, 0, 86_400, remedy="--retries {}")
        if not isinstance(self.cpus, tuple):
            raise UsageError(f"--cpu must be a tuple, not {literal(self.cpus)}")
        for cpu in self.cpus:
            whole("--cpu", cpu, 0, _HIGHEST_CPU, remedy="--cpu {}")
        if self.interrupts is not None and not self.interrupts.strip():
            raise UsageError("an empty --irq-string matches every interrupt", remedy="cat /proc/interrupts")
        if self.drive_cpu is not None:
            whole("--drive-cpu", self.drive_cpu, 0, _HIGHEST_CPU, remedy="--drive-cpu {}")

    @property
    def limit(self) -> int:
        """Runs of each case at most."""
        return self.repeat if self.until is None else max(self.most, self.repeat)

    @property
    def step(self) -> float:
        """Seconds between two looks at the counters."""
        return min(self.duration / LOOKS, self.interval)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def _span(option: str, value: Any, least: float, most: float) -> None:
    """Seconds in a range. Raises UsageError."""
    found = seconds(option, value)
    if found is None or not least <= found <= most:
        raise UsageError(
            f"{option} must be between {least:g} s and {most:g} s, not {literal(value)}", remedy=f"{option} 1s"
        )


LOOKS = 40


def sweep(base: Case, lists: Mapping[str, Sequence[Any]]) -> list[Case]:
    """All combinations of the values given for fields, the first field changing slowest.

    Raises:
        UsageError: as Case does.
    """
    names = list(lists)
    return [
        replace(base, **dict(zip(names, values, strict=True)))
        for values in itertools.product(*(_once(lists[name]) for name in names))
    ]


def _once(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def labelled(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """What tells the cases apart, a dictionary each: the mode, and every field in which they differ."""
    names = dict.fromkeys(("mode", *distinguishing(cases)))
    return [{name: getattr(case, name) for name in names} for case in cases]


def distinguishing(cases: Sequence[Case]) -> list[str]:
    """The names of the fields in which cases differ: what a table shows of each."""
    return [one.name for one in fields(Case) if len({getattr(case, one.name) for case in cases}) > 1]
