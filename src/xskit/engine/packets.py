"""Packets inside the engine: why they are dropped, and what is counted of them.

A pipeline sees handles, lengths and times, and a packet's bytes by address (xsk/path/lines.py); it never sees UMEM
offsets or rings.
"""

from __future__ import annotations

from enum import IntEnum

from xskit.memory import I64, record_at
from xskit.xsk.path.books import TX_REFUSED as REFUSED_BY_KERNEL
from xskit.xsk.path.books import Books

INFINITE_NS = 1 << 62
"""Never: later than any time."""


class DropCause(IntEnum):
    """Why a packet did not come out."""

    LOSS = 1
    """The loss stage decided so."""
    QUEUE_FULL = 2
    """The bottleneck's queue was at its limit."""
    MEMORY_FULL = 3
    """The planned packet memory was used up; the report says which number to set."""
    TX_REFUSED = REFUSED_BY_KERNEL
    """The kernel refused to send it (no carrier, too long, a full qdisc): EBUSY from sendto."""
    PORT_DOWN = 5
    """The egress port was down or gone when the packet was due."""
    SUPER_PACKET = 6
    """Longer than the ingress port's own MTU: a sender's segmentation offload, or receive offload, is on."""
    TOO_MANY_FRAGMENTS = 7
    """More frames than a packet may have on TX."""
    EGRESS_MTU = 8
    """Longer than the egress port may send, though the ingress port's MTU allows it."""


class Counters(Books):
    """What happened to the packets of one direction; written by its worker only."""

    duplicated: I64
    duplicated_bytes: I64
    injected: I64
    injected_bytes: I64
    peak_frames: I64
    clamped: I64  # arrivals stamped before the watermark
    clamped_ns: I64  # by how much at most
    unstamped: I64  # arrivals without a kernel stamp
    marked: I64  # given ECN's CE
    checksums: I64  # packets whose partial checksum was finished in software
    unfinished: I64  # packets that went on with a checksum that looks partial
    updates: I64
    clock_ns: I64  # the time of the last batch


counters_at = record_at(Counters)
