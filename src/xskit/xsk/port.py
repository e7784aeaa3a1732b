"""A port: one interface opened through AF_XDP, all of its queues.

    for each queue     receiver      RX, FILL and COMPLETION
                       transmitter   TX, on the same memory

Two sockets, because in copy mode poll() on a socket that has a TX ring sends from it and swallows what the kernel
refuses (net/xdp/xsk.c, xsk_poll): the worker that sleeps on the receivers must not poll TX.
The packet memory is registered on the first receiver; the other queues share that registration (XDP_SHARED_UMEM).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

from xskit.abi.xdp import Statistics
from xskit.arguments import choice, literal, whole
from xskit.bpf.redirect import Outcome
from xskit.closing import Closing
from xskit.errors import UsageError
from xskit.netconf.interfaces import Glance, LinkState, Watch, look
from xskit.netconf.namespaces import Namespace, inside
from xskit.netconf.netdev import device_features
from xskit.xsk.attachment import Attachment
from xskit.xsk.errors import PortError
from xskit.xsk.opening import FRAMING_BYTES, HIGHEST_QUEUE, MOST_ENTRIES, BindMode
from xskit.xsk.socket import Socket
from xskit.xsk.traffic import MOST_FRAMES
from xskit.xsk.umem import Umem, require_open

__all__ = ["Port", "PortQueue"]

CARRIER_SECONDS = 10.0
"""How long a carrier that was there is waited for: some drivers reset the NIC when a program or a socket comes, and the
link then takes a few seconds to be up again. Before that packets would be lost."""

LEAST_MAP_ENTRIES = 64
"""The XSKMAP is sized by queue number, with room for twice as many queues: some drivers make more of them when a
program is attached."""


@dataclass(frozen=True, slots=True)
class PortQueue:
    """One queue of a port."""

    number: int
    receiver: Socket
    transmitter: Socket | None
    """None where the interface has fewer TX than RX queues: what is sent there would vanish."""


class Port(Closing):
    """An interface opened through AF_XDP. Made by `Port.open`.

    Attributes:
        name, ifindex, mtu: of the interface, when it was opened.
        queues: those that were opened.
        xdp_mode: "native" or "generic": where the program runs.
        zero_copy, multi_buffer: what was got.
        why: why better modes were not to be had, a sentence each.
    """

    def __init__(
        self,
        name: str,
        umem: Umem,
        attachment: Attachment,
        queues: list[PortQueue],
        zero_copy_frames: int,
        watch: Watch,
        stack: ExitStack,
    ) -> None:
        first = queues[0].receiver
        self.name = name
        self.umem = umem
        self.ifindex = first.ifindex
        self.mtu = first.mtu
        self.queues = queues
        self.xdp_mode = str(attachment.mode)
        self.zero_copy = first.zero_copy
        self.multi_buffer = first.multi_buffer
        self.why = [*attachment.why, *first.why]
        self._attachment = attachment
        self._watch = watch
        self._stack = stack
        self._zero_copy_frames = zero_copy_frames
        self._last: tuple[Statistics, dict[Outcome, int]] | None = None
        self._pid = os.getpid()

    @classmethod
    def open(
        cls,
        name: str,
        umem: Umem,
        *,
        namespace: Namespace | str | Path | int | None = None,
        queues: Iterable[int] | None = None,
        ring_size: int = 2048,
        fill_size: int | None = None,
        mode: BindMode = "auto",
        multi_buffer: bool = True,
        drop_chatter: bool = False,
    ) -> Port:
        """Attach the redirect program, open every queue and let the packets in.

        Args:
            name: the interface.
            umem: the packet memory; the caller puts frames into FILL, through `queues[i].receiver.fill_ring`.
            namespace: where the interface is; None: in the calling thread's network namespace.
            queues: which RX queues; None: all. Packets of other queues go on to the kernel.
            ring_size: entries of each ring.
            fill_size: entries of FILL, where it is to be larger than the others.
            mode: the one rung of the ladder to use, or "auto": native zero-copy, else native, else generic.
            multi_buffer: take packets longer than a frame.
            drop_chatter: drop MLD reports, router solicitations and DAD probes that the kernel at the other end of a
                veth sends unasked, and count them as Outcome.CHATTER.

        Raises:
            MissingError: no such interface or namespace.
            PortError: it cannot be opened, or is in use.
            AttachError, BpfError, SocketError, PrivilegeError, UsageError: as Socket says. Nothing is left behind.
        """
        require_open(umem)
        numbers = None if queues is None else _numbers(queues)
        choice("mode", mode, get_args(BindMode))
        ring_size = whole("ring_size", ring_size, 1, MOST_ENTRIES)
        fill_size = ring_size if fill_size is None else whole("fill_size", fill_size, 1, MOST_ENTRIES)
        with inside(namespace), ExitStack() as undo:
            facts = look(name)
            if facts.loopback:
                raise PortError(
                    f"{name} is a loopback interface, which gives no packets to AF_XDP",
                    errno.EOPNOTSUPP,
                    remedy="ip link add xk0 type veth peer name xk1",
                )
            watch = undo.enter_context(Watch())
            had_carrier = facts.carrier
            attachment = Attachment.make(
                facts.index, max(LEAST_MAP_ENTRIES, 2 * facts.rx_queues), mode, drop_chatter=drop_chatter
            )
            undo.callback(attachment.close)
            facts = look(name)  # attaching may have changed the number of queues
            if numbers is None:
                numbers = list(range(facts.rx_queues))
            wanted: BindMode = "generic" if str(attachment.mode) == "generic" else mode
            opened: list[PortQueue] = []
            for number in numbers:
                first = opened[0].receiver if opened else None
                queue = _open_queue(
                    name, number, umem, first, ring_size, fill_size, wanted, multi_buffer, facts.tx_queues
                )
                undo.callback(queue.receiver.close)  # and with it the transmitter
                opened.append(queue)
            undo.callback(attachment.close)  # detached before the sockets go; closing twice is fine
            for queue in opened:
                queue.receiver.register(attachment.program)
                undo.callback(attachment.program.unregister, queue.number)
            if had_carrier:
                watch.wait(name, timeout_s=CARRIER_SECONDS)
            features = device_features(name)
            segments = features.zero_copy_segments if features else 1
            return cls(name, umem, attachment, opened, max(1, segments), watch, undo.pop_all())

    @property
    def max_length(self) -> int:
        """The longest packet that it sends, in bytes with Ethernet header: MTU + 14 + 4 for a VLAN tag."""
        return self.mtu + FRAMING_BYTES

    @property
    def max_frames(self) -> int:
        """The most frames that a packet may take on TX."""
        if not self.multi_buffer:
            return 1
        return self._zero_copy_frames if self.zero_copy else MOST_FRAMES

    def glance(self) -> Glance | None:
        """What the interface is called now, its state and its MTU, from any thread; None when it is gone."""
        return None if self.closed else self._watch.glance(self.ifindex)

    def state(self) -> LinkState:
        """UP, DOWN or GONE, from any thread; an interface that was renamed is still the same."""
        seen = self.glance()
        return LinkState.GONE if seen is None else seen.state

    @property
    def attached(self) -> bool:
        """Whether its XDP program is on the interface still, so that packets come."""
        return self._attachment.link.attached

    def statistics(self) -> Statistics:
        """XDP_STATISTICS summed over the queues; after close, as they were then."""
        return self._last[0] if self._last else _sum(self.queues)

    def outcomes(self) -> dict[Outcome, int]:
        """What the program did with the packets that it saw; after close, as it was then."""
        return self._last[1] if self._last else self._attachment.outcomes()

    @property
    def closed(self) -> bool:
        """True once closed."""
        return self._last is not None

    def close(self) -> None:
        """Out of the XSKMAP, detach, then unmap and close each transmitter and receiver; twice is fine.

        It works the same when the interface is gone. A forked child closes nothing of its parent's.
        """
        if self._last is None and os.getpid() == self._pid:
            self._last = (self.statistics(), self.outcomes())
            self._stack.close()

    def __repr__(self) -> str:
        copies = "zero copy" if self.zero_copy else "copy"
        return f"<Port {self.name}, {len(self.queues)} queues, {self.xdp_mode}, {copies}>"


def _numbers(queues: Iterable[int]) -> list[int]:
    """The numbers of queues, each once. Raises UsageError."""
    if isinstance(queues, (str, bytes)) or not isinstance(queues, Iterable):
        raise UsageError(f"queues must be a list of numbers, not {literal(queues)}", remedy="queues=[0]")
    numbers = sorted({whole("queues", number, 0, HIGHEST_QUEUE, remedy="queues=[0]") for number in queues})
    if not numbers:
        raise UsageError("a port has at least one queue", remedy="queues=None, for all of them")
    return numbers


def _open_queue(
    name: str,
    number: int,
    umem: Umem,
    first: Socket | None,
    ring_size: int,
    fill_size: int,
    mode: BindMode,
    multi_buffer: bool,
    tx_queues: int,
) -> PortQueue:
    receiver = Socket(
        name,
        number,
        umem=umem,
        shared=first,
        rx=ring_size,
        tx=0,
        fill=fill_size,
        completion=ring_size,
        mode=mode,
        multi_buffer=multi_buffer,
        program=None,
    )
    if number >= tx_queues:
        return PortQueue(number, receiver, None)
    try:
        transmitter = Socket(name, number, umem=umem, shared=receiver, rx=0, tx=ring_size, program=None)
    except BaseException:
        receiver.close()
        raise
    return PortQueue(number, receiver, transmitter)


def _sum(queues: list[PortQueue]) -> Statistics:
    """The receiver knows of RX and FILL, the transmitter of TX; FILL's counter shows in both and counts once."""
    total = dict.fromkeys((field.name for field in fields(Statistics)), 0)
    for queue in queues:
        received = queue.receiver.statistics()
        for name in total:
            total[name] += getattr(received, name)
        if queue.transmitter:
            sent = queue.transmitter.statistics()
            total["tx_invalid_descriptors"] += sent.tx_invalid_descriptors
            total["tx_ring_empty"] += sent.tx_ring_empty
    return Statistics(**total)
