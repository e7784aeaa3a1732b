"""The records of the loop: what a worker knows of its directions, and a direction of its queues.

    Worker --> Direction --> Receiver: RX and FILL of each queue of the port the packets come from
                         \\-> Exit --> Egress: what is due; TX and COMPLETION of each queue of a port

A worker owns ring ends, never whole ports. Each direction has frames of its own, which go round

    FILL -> RX -> pipeline -> TX -> COMPLETION -> pool -> FILL

under one worker, so no lock and no hand-over between workers is needed, however directions are spread over them.
"""

from __future__ import annotations

from xskit.engine.fifo import Fifo
from xskit.memory import I64, Record, record_at, size_of
from xskit.xsk.path.transmit import Transmitter


class Egress(Transmitter):
    """One transmit queue, with a way out for packets that only fit with their outer VLAN tag beside them."""

    tagged_fd: I64  # a packet socket for them, or -1
    message: I64  # address of a struct msghdr for it, and of its iovecs behind that


class Exit(Fifo):
    """One port that packets of a direction leave by: a FIFO of what is due, and the port's transmit queues.

    Everything leaves by the first queue: the queues of a device may overtake one another, and order must be kept.
    """

    egress: I64  # address of Egress records
    egress_count: I64


class Direction(Record):
    """One direction of a link."""

    ingress: I64  # address of Receiver records
    ingress_count: I64
    exits: I64  # address of Exit records
    exit_count: I64
    run: I64  # address of the pipeline's function
    block: I64  # address of the pipeline's block
    counters: I64
    lateness: I64  # address of a histogram
    owd: I64  # address of a histogram
    table: I64  # address of the packet table
    pool: I64
    memory: I64  # address of the PacketMemory
    finish_checksums: I64  # 1: partial checksums may come in
    capacity_frames: I64  # frames that may be inside; the others are for FILL
    max_length: I64  # the longest packet that the egress port sends
    max_frames: I64  # the most frames that a packet may have on TX
    tagged_length: I64  # the longest packet sent with its outer VLAN tag beside it; else max_length
    wire_length: I64  # the longest packet that the ingress port's MTU allows: what is longer was merged, or not cut yet
    next_ns: I64  # the pipeline's next event
    rx_batch: I64  # address of BATCH Arrival records
    rotate: I64  # ingress queue that is read first
    updates: I64  # updates seen: each begins the measurement of what was achieved anew
    owd_base_ns: I64  # what the owd histogram counts from
    coming_base_ns: I64  # the same after the next update
    since_ns: I64  # only packets that arrived from here on are in the owd histogram
    since_offered: I64  # packets offered to the stages when that began
    since_lost: I64
    late_limit_ns: I64  # a packet whose lateness is above is late
    earlier_limit_ns: I64  # the same for packets that arrived before since_ns
    coming_limit_ns: I64  # the same after the next update
    late: I64  # packets that left late, since the start
    moved_late: I64  # packets whose arrival was moved by more than the limit, since the start


class Worker(Record):
    """A thread in the loop."""

    directions: I64  # address of addresses of Direction records
    direction_count: I64
    stop: I64  # set by anyone: leave the loop
    control: I64  # bits set by anyone: PIPELINES, SNAPSHOT; cleared when done
    spin: I64  # 1: never sleep
    descriptors: I64  # address of pollfd entries: a wake-up eventfd, then the receive sockets
    descriptor_count: I64
    scratch: I64  # address of 16 bytes for timespec
    copies: I64  # address of (from, to, bytes) triples: what a snapshot copies
    copy_count: I64
    loops: I64
    busy: I64  # loops that found something to do
    sleeps: I64
    host_stalls: I64  # gaps in which the loop did not run though it wanted to
    stall_ns: I64  # their total
    longest_stall_ns: I64
    busy_ns: I64
    started_ns: I64
    stopped_ns: I64
    last_busy_ns: I64


egress_at = record_at(Egress)
exit_at = record_at(Exit)
direction_at = record_at(Direction)
worker_at = record_at(Worker)

EGRESS_BYTES = size_of(Egress)
EXIT_BYTES = size_of(Exit)

PIPELINES = 1
"""Control bit: run every pipeline, so that an update on an idle link takes force."""
SNAPSHOT = 2
"""Control bit: copy a reading for a reader."""

BATCH = 64
"""Packets received, and sent, in one go."""

STALL_NS = 1_000_000
"""A gap of more than this between two looks at the clock, without sleeping, is the host's doing."""

SPIN_BEFORE_NS = 150_000
"""Sleep ends this long before the next departure: a sleep overshoots by some 40 us, rarely by 100."""
SPIN_AFTER_NS = 50_000
"""Do not sleep until nothing happened for this long."""
LONGEST_SLEEP_NS = 1_000_000_000
