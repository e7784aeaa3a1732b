"""A port: one interface opened through AF_XDP, all of its queues.

    for each queue     a Socket      RX, FILL and COMPLETION; TX where the interface has a TX queue of that number

The packet memory is registered on the first socket; the other queues share that registration (XDP_SHARED_UMEM).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import get_args

from xskit.abi.xdp import Statistics
from xskit.arguments import choice, literal, seconds, whole
from xskit.bpf.redirect import Outcome
from xskit.closing import Closing, forgotten
from xskit.errors import UsageError
from xskit.netconf.interfaces import Glance, LinkState, Watch, look
from xskit.netconf.namespaces import Namespace, inside
from xskit.netconf.netdev import device_features
from xskit.xsk.attachment import Attachment
from xskit.xsk.batch import Batch
from xskit.xsk.errors import PortError
from xskit.xsk.opening import FRAMING_BYTES, HIGHEST_QUEUE, MOST_ENTRIES, MOST_FRAMES, BindMode
from xskit.xsk.packet import Packet, Sendable
from xskit.xsk.socket import LONGEST_WAIT_S, TX_STEP_S, Socket, TakesBatches
from xskit.xsk.turn import Turn, new_token
from xskit.xsk.umem import Umem, require_open
from xskit.xsk.waiting import Waiting

__all__ = ["Port"]

CARRIER_SECONDS = 10.0
"""How long a carrier that was there is waited for: some drivers reset the NIC when a program or a socket comes, and the
link then takes a few seconds to be up again. Before that packets would be lost."""

LEAST_MAP_ENTRIES = 64
"""The XSKMAP is sized by queue number, with room for twice as many queues: some drivers make more of them when a
program is attached."""


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
        queues: list[Socket],
        zero_copy_frames: int,
        watch: Watch,
    ) -> None:
        first = queues[0]
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
        self._zero_copy_frames = zero_copy_frames
        self._last: tuple[Statistics, dict[Outcome, int]] | None = None
        self._closed = False
        self._pid = os.getpid()
        self._senders = [queue for queue in queues if queue.transmitter]
        self._by_number = {sender.queue: sender for sender in self._senders}
        self._receive_turn = Turn("receiving", name)
        self._waits: Waiting | None = None
        self._next = self._turn = 0

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
            umem: the packet memory. FILL gets frames with the first call that receives.
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
            opened: list[Socket] = []
            for number in numbers:
                queue = Socket(
                    name,
                    number,
                    umem=umem,
                    shared=opened[0] if opened else None,
                    rx=ring_size,
                    tx=ring_size if number < facts.tx_queues else 0,
                    fill=fill_size,
                    completion=ring_size,
                    mode=wanted,
                    multi_buffer=multi_buffer,
                    program=None,
                )
                undo.callback(queue.close)
                opened.append(queue)
            for queue in opened:
                queue.register(attachment.program)
            if had_carrier:
                watch.wait(name, timeout_s=CARRIER_SECONDS)
            features = device_features(name)
            segments = features.zero_copy_segments if features else 1
            port = cls(name, umem, attachment, opened, max(1, segments), watch)
            undo.pop_all()
            return port

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

    # --- packets ------------------------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None, limit: int = 64) -> list[Packet]:
        """The packets of the next queue that has some, at most `limit`; each queue has its turn.

        Args, returns and raises as Socket.receive: packets are valid until the next call that receives.
        """
        return list(self.receive_batch(limit, timeout))

    def receive_batch(self, limit: int = 64, timeout: float | None = None) -> Batch:
        """The same as one array: see Batch."""
        timeout, limit = seconds("timeout", timeout), whole("limit", limit, 1, MOST_ENTRIES)
        self._require_open()
        if len(self.queues) == 1:
            return self.queues[0].receive_batch(limit, timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        token = new_token()
        try:
            self._receive_turn.take(token)
            while True:
                batch = self._look(limit)
                left_s = self._longest_wait_s
                if deadline is not None:
                    left_s = min(left_s, deadline - time.monotonic())
                if len(batch) or left_s <= 0 or self.closed:
                    return batch
                self._waiting.wait(left_s)
        finally:
            self._receive_turn.give(token)
            if self.closed:
                self._close_waiting()

    def _look(self, limit: int) -> Batch:
        """The first packets found; the queue that comes next is the first to be asked next time."""
        for _ in self.queues:
            queue = self.queues[self._next % len(self.queues)]
            self._next += 1
            try:
                batch = queue.receive_batch(limit, timeout=0)
            except UsageError:
                if not self.closed:
                    raise
                break  # closed meanwhile
            if len(batch):
                return batch
        return self.queues[0].no_packets()

    def _until_closed(self, timeout: float | None, limit: int) -> Batch | None:
        """What comes; None once the port is closed."""
        try:
            return None if self.closed else self.receive_batch(limit, timeout)
        except UsageError:
            if self.closed:
                return None
            raise

    def __iter__(self) -> Iterator[Packet]:
        """Every packet that comes, until the port is closed."""
        while (batch := self._until_closed(None, 64)) is not None:
            yield from batch

    async def batches(self, limit: int = 64) -> AsyncIterator[Batch]:
        """Every batch that comes, until the port is closed: for asyncio and trio, without a thread of its own."""
        while (batch := self._until_closed(0, limit)) is not None:
            if len(batch):
                yield batch
            elif not await self._waiting.readable(self._longest_wait_s):
                raise self._receive_turn.refusal()

    def send(self, packets: Sendable | Batch | Iterable[Sendable], queue: int | None = None) -> int:
        """Put packets into the TX of a queue and make the kernel take them: one, or many.

        Args:
            packets: as of Socket.send. Those of one call leave in order.
            queue: number of the queue; None: each queue has its turn, or for a Batch the queue of the number by which
                it came, so that its flows stay in order.

        Returns and raises as Socket.send; UsageError where there is no such queue.
        """
        self._require_open()
        if isinstance(packets, Batch):
            return self.send_batch(packets, queue)
        return self._outgoing(queue).send(packets)

    def send_batch(self, batch: Batch, queue: int | None = None) -> int:
        """As Socket.send_batch, by `queue`, or by the one of the number by which the batch came. Where the port has no
        such queue, another one stands in for it, always the same."""
        self._require_open()
        if not isinstance(batch, Batch):
            raise UsageError(f"batch must be a Batch, not {literal(batch)}", remedy="send(packets)")
        if queue is None and self._senders:
            sender = self._by_number.get(batch.queue) or self._senders[batch.queue % len(self._senders)]
        else:
            sender = self._outgoing(queue)
        return sender.send_batch(batch)

    def new_batch(self, lengths: int | Iterable[int], count: int = 1) -> Batch:
        """Packets to be written and then sent with `send_batch`: see Socket.new_batch."""
        self._require_open()
        return self.queues[0].new_batch(lengths, count)

    def forward(self, batch: Batch, to: TakesBatches) -> int:
        """Send a batch out of another socket or port on the same packet memory: see Socket.forward."""
        if not isinstance(to, TakesBatches):
            raise UsageError(f"to must be a Socket or a Port, not {literal(to)}")
        return to.send_batch(batch)

    def release(self, batch: Batch) -> None:
        """Give back the frames of a batch now, instead of with the next call that receives from its queue."""
        self.queues[0].release(batch)

    def flush(self, timeout: float | None = 1.0) -> None:
        """Go on until the TX rings of all queues are empty and all frames are back: see Socket.flush."""
        self._require_open()
        for queue in self._senders:
            queue.flush(timeout)

    def _outgoing(self, queue: int | None) -> Socket:
        if not self._senders:
            raise UsageError(f"{self.name} has no open TX queue: its open queues only receive", remedy="queues=[0]")
        if queue is None:
            self._turn += 1
            return self._senders[self._turn % len(self._senders)]
        for sender in self._senders:
            if sender.queue == queue:
                return sender
        raise UsageError(f"{self.name} has no open TX queue {literal(queue)}", remedy=f"queue={self._senders[0].queue}")

    @property
    def _waiting(self) -> Waiting:
        """Made at first use: the engine waits by itself."""
        if self._waits is None:
            self._waits = Waiting(*(queue.fd for queue in self.queues))
            if self.closed:
                self._waits.wake()
        return self._waits

    @property
    def _longest_wait_s(self) -> float:
        return TX_STEP_S if any(queue.sending for queue in self.queues) else LONGEST_WAIT_S

    def _require_open(self) -> None:
        if self.closed:
            raise UsageError(f"the port of {self.name} is closed")

    # --- the end ------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True once closed, and in a forked child."""
        return self._last is not None or self.queues[0].closed

    def close(self) -> None:
        """Detach, then unmap and close each transmitter and receiver; twice is fine, and ends what an exception has
        left undone. Calls that are inside are woken; a queue is closed when they return.

        It works the same when the interface is gone. A forked child closes nothing of its parent's.
        """
        if self._closed or os.getpid() != self._pid:
            return
        if self._last is None:
            self._last = (self.statistics(), self.outcomes())
        if self._waits:
            self._waits.wake()
        self._attachment.close()
        for queue in reversed(self.queues):  # the first one has the registration of the packet memory
            queue.close()
        self._close_waiting()
        self._watch.close()
        self._closed = True

    def _close_waiting(self) -> None:
        """Unless a call is inside, which does it."""
        while self._waits and not self._receive_turn.taken:
            token = new_token()
            try:
                if self._receive_turn.try_take(token):
                    self._waits.close()
                    return
            finally:
                self._receive_turn.give(token)

    def __del__(self) -> None:
        if getattr(self, "_closed", True) is False and os.getpid() == self._pid:
            forgotten(self)

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


def _sum(queues: list[Socket]) -> Statistics:
    total = dict.fromkeys((field.name for field in fields(Statistics)), 0)
    for queue in queues:
        found = queue.statistics()
        for name in total:
            total[name] += getattr(found, name)
    return Statistics(**total)
