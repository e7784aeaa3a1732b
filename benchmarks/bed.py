"""What the whole-bridge parts run on: one network namespace with two veth pairs, and a direction between them.

generator              the bridge under test                 sink
xkg ---- veth ---- xka [port] ... pipeline ... [port] xkb ---- veth ---- xks [XDP program: drop]
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from twins import check_layout, function, load
from xskit.bpf.attach import XdpMode, attach
from xskit.bpf.program import Program
from xskit.bpf.redirect import drop_program
from xskit.engine.live import EgressLimits, Frames, LiveDirection, ReceiveEnd, TransmitEnd
from xskit.engine.stage import Stage
from xskit.memory import I64, Record, Region, record_view, size_of
from xskit.netconf.changes import CreateNamespace, CreateVeth, SetLinkUp, SetSysctl, VethEnd
from xskit.netconf.interfaces import look
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import inside
from xskit.xsk.bound import BoundSocket
from xskit.xsk.path.table import PacketTable
from xskit.xsk.port import Port
from xskit.xsk.umem import Umem

RING = 2048
FRAME_BYTES = 2048
PACKET_BYTES = 64
GENERATOR, INGRESS, EGRESS, SINK = "xkg", "xka", "xkb", "xks"
ETHERNET = bytes.fromhex("020000000002 020000000001 88b5")
"""To nobody, from nobody; 0x88b5 is for local experiments (IEEE 802)."""


class Sender(Record):
    """What the generator knows; generator.c's `struct sender`."""

    tx: I64
    completion: I64
    fd: I64
    frame_bytes: I64
    packet_bytes: I64
    outstanding: I64


def generator_library() -> ctypes.CDLL:
    """The C sender, checked against its record."""
    library = load("generator")
    check_layout(library, "sender_sizes", (Sender,))
    return library


class Generator:
    """Sends equal packets from an interface of a namespace, compiled: from whichever thread calls."""

    def __init__(self, interface: str, namespace: str, packet_bytes: int = PACKET_BYTES) -> None:
        library = generator_library()
        self._burst, self._pace = function(library, "burst", 2), function(library, "pace", 4)
        with ExitStack() as undo:
            umem = undo.enter_context(Umem(RING, FRAME_BYTES))
            for frame in range(RING):
                umem.view(frame * FRAME_BYTES, len(ETHERNET))[:] = ETHERNET
            with inside(namespace):
                socket = undo.enter_context(
                    BoundSocket(look(interface), 0, umem, rx=0, tx=RING, fill=RING, completion=RING)
                )
            self._record = undo.enter_context(Region(size_of(Sender)))
            sender = record_view(Sender, self._record.address)
            sender.tx, sender.completion = socket.tx_ring or 0, socket.completion_ring or 0
            sender.fd, sender.frame_bytes, sender.packet_bytes = socket.fd, FRAME_BYTES, packet_bytes
            self._stack = undo.pop_all()

    def burst(self, packets: int) -> None:
        """So many at once, at most a ring full."""
        self._check(packets, self._burst(self._record.address, packets))

    def pace(self, packets: int, interval_ns: int, group: int = 1) -> None:
        """So many, `group` of them every interval; spins meanwhile."""
        self._check(packets, self._pace(self._record.address, packets, group, interval_ns))

    def _check(self, packets: int, sent: int) -> None:
        if sent < packets:
            raise SystemExit(f"the generator could send only {sent} packets of {packets}")

    def close(self) -> None:
        """Close the socket."""
        self._stack.close()


class Bed:
    """The namespace, both pairs up, a generator, and everything that comes to the sink dropped there."""

    def __init__(self) -> None:
        self.namespace = f"xkbench{os.getpid()}"
        with ExitStack() as undo:
            journal = undo.enter_context(Journal.open())
            journal.apply(CreateNamespace(self.namespace))
            for scope in ("all", "default"):
                journal.apply(SetSysctl(f"net/ipv6/conf/{scope}/disable_ipv6", "1", namespace=self.namespace))
            for left, right in ((GENERATOR, INGRESS), (EGRESS, SINK)):
                journal.apply(CreateVeth(VethEnd(left, self.namespace), VethEnd(right, self.namespace)))
                for name in (left, right):
                    journal.apply(SetLinkUp(name, True, namespace=self.namespace))
            with inside(self.namespace):
                program = undo.enter_context(Program.load(drop_program(frags=True)))
                undo.callback(attach(program, look(SINK).index, XdpMode.NATIVE).close)
            self.generator = Generator(GENERATOR, self.namespace)
            undo.callback(self.generator.close)
            self.stack = undo.pop_all()

    def close(self) -> None:
        """Everything back."""
        self.stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Line(Bed):
    """A bed with both ports open and one direction between them.

    Args:
        stages: between the ports.
        packets: that can be in flight at once.
        horizon_ns: the longest that one may be held.
        frame_bytes: of a frame of the packet memory.
    """

    def __init__(self, stages: Sequence[Stage], *, packets: int, horizon_ns: int = 0, frame_bytes: int = 2048) -> None:
        super().__init__()
        try:
            self._open(stages, packets, horizon_ns, frame_bytes)
        except BaseException:
            self.close()
            raise

    def _open(self, stages: Sequence[Stage], packets: int, horizon_ns: int, frame_bytes: int) -> None:
        frames = (packets + RING) // 2 * 2
        self.umem = self.stack.enter_context(Umem(frames, frame_bytes, huge=True))
        self.table = PacketTable(frames, base=self.umem.address, frame_bytes=self.umem.frame_size)
        self.stack.callback(self.table.close)
        first = self.stack.enter_context(Port.open(INGRESS, self.umem, namespace=self.namespace, ring_size=RING))
        second = self.stack.enter_context(Port.open(EGRESS, self.umem, namespace=self.namespace, ring_size=RING))
        receiver, sender = first.queues[0].receiver, second.queues[0]
        assert receiver is not None
        assert sender.receiver is not None
        assert sender.transmitter is not None
        self.port = first
        self.direction = LiveDirection(
            "benchmark",
            stages,
            receive=[ReceiveEnd(rx=receiver.rx_ring or 0, fill=receiver.fill_ring or 0, fd=receiver.fd)],
            transmit=[
                TransmitEnd(
                    tx=sender.transmitter.tx_ring or 0,
                    completion=sender.receiver.completion_ring or 0,
                    fd=sender.transmitter.fd,
                )
            ],
            table=self.table,
            frames=Frames(0, frames, RING),
            limits=EgressLimits(second.max_length),
            horizon_ns=horizon_ns,
            seed=1,
        )
        self.stack.callback(self.direction.close)
        self.direction.fill_rings()
