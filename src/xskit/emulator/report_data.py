"""What a report consists of: the run, its links, directions, ports and workers. Each prints as the report shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SCHEMA = "xskit.report/1"


@dataclass
class DirectionReport:
    """One direction. `packets` and `bytes` balance: received + duplicated + injected = sent + dropped + in flight.

    `asked` and `achieved` count from the last update that took force, `since_update_ns` after the start, or from the
    start if that is None. Everything else counts from the start. `update_waiting` is an update whose time has not
    come: when that is, `at_ns` after the start, and what will be `asked` then.
    """

    name: str
    asked: dict[str, Any]
    achieved: dict[str, Any]
    stages: list[dict[str, Any]]
    packets: dict[str, Any]
    bytes: dict[str, Any]
    lateness_ns: dict[str, Any]
    since_update_ns: int | None = None
    update_waiting: dict[str, Any] | None = None
    checksums: dict[str, int] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)
    """How often a frame was not where it should have been: misplaced, stray_received, stray_completed."""

    def __str__(self) -> str:
        from xskit.emulator.report_text import direction_text

        return direction_text(self)


@dataclass
class LinkReport:
    """Both directions of a link."""

    name: str
    directions: list[DirectionReport]

    def __str__(self) -> str:
        from xskit.emulator.report_text import link_text

        return link_text(self)


@dataclass
class PortReport:
    """How a port was opened, and what the kernel counted there; `chatter`: packets that the XDP program dropped."""

    name: str
    xdp_mode: str
    zero_copy: bool
    queues: int
    kernel: dict[str, int]
    chatter: int = 0
    interface: dict[str, int] = field(default_factory=dict)
    """What the interface counts of packets sent by anybody: tx_packets, tx_errors, tx_dropped."""
    egress_refused: int | None = 0
    """Packets that its driver dropped after it had taken them; None: they could not be counted."""
    egress_uncounted: int = 0
    """Packets given to its driver that are in none of its counters."""
    why: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        from xskit.emulator.report_text import port_text

        return port_text(self)


@dataclass
class WorkerReport:
    """What a worker did: loops, the part of them that found work, and how often the host did not let it run."""

    cpu: int | None
    mode: str
    loops: int
    busy: int
    host_stalls: int
    host_stall_ns: int
    sleeps: int

    def __str__(self) -> str:
        from xskit.emulator.report_text import worker_text

        return worker_text(self)


@dataclass
class RunRecord:
    """One run, as data. `Report` adds the forms that it is shown in."""

    links: list[LinkReport]
    ports: list[PortReport]
    workers: list[WorkerReport]
    memory: dict[str, Any]
    duration_ns: int
    valid: bool = True
    invalid_because: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    schema: str = SCHEMA
