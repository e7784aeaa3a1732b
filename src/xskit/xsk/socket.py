"""An AF_XDP socket: one queue of one interface, with its rings mapped.

FILL  --->  kernel  --->  RX            Socket owns the fd, the maps, and the Ring records that compiled code
TX    --->  kernel  --->  COMPLETION    works on; `receive`, `send` and `flush` work on the same from Python.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Literal, get_args

from xskit._fork import not_inherited
from xskit.abi.xdp import SOL_XDP, SocketOption, Statistics
from xskit.arguments import choice, literal, seconds, whole
from xskit.bpf.redirect import RedirectProgram
from xskit.closing import Closing
from xskit.errors import Setting, UsageError
from xskit.netconf.interfaces import look
from xskit.xsk.attachment import Attachment
from xskit.xsk.errors import Call, explain
from xskit.xsk.mapping import MappedRing
from xskit.xsk.opening import HIGHEST_QUEUE, MOST_ENTRIES, BindMode, Plan, check, open_socket
from xskit.xsk.packet import Packet
from xskit.xsk.path.owner import Owner, Sighting
from xskit.xsk.traffic import Circulation, Sendable, Traffic
from xskit.xsk.umem import Umem, frame_at, require_open

__all__ = ["Socket"]

LEAST_BUDGET = 32
"""TX_BATCH_SIZE (net/xdp/xsk.c): the packets one sendto sends unless told otherwise, and the least one may ask for."""


class Socket(Closing):
    """A socket bound to one queue. The calling thread must be in the interface's network namespace.

    Args:
        interface: its name.
        queue: the queue's number.
        umem: the packet memory. Registered on this socket, unless `shared` is given.
        shared: another socket whose registration to use (XDP_SHARED_UMEM): its mode is inherited. Of the same queue,
            the two have FILL and COMPLETION in common, and this one is closed with it.
        rx, tx, fill, completion: ring sizes in entries, powers of two; rx=0 or tx=0: no such ring.
        mode: the one rung of the ladder to use, or "auto" for the best that works.
        multi_buffer: take packets longer than a frame (Linux 6.6); `self.multi_buffer` says what was got.
        need_wakeup: let the driver say when it needs a system call.
        program: "auto" attaches a redirect program of its own, a RedirectProgram is told of this socket, None leaves
            both to the caller. With a program, FILL is filled at once.

    Attributes:
        zero_copy: packets are not copied between driver and packet memory (XDP_OPTIONS).
        xdp_mode: "native" or "generic" where the socket has a program of its own, else None.
        transmit_budget: packets that one sendto sends in copy mode; None: the kernel's 32.
        why: why better modes were not to be had, a sentence each.

    Raises:
        MissingError: no such interface.
        UsageError: an impossible ring size or queue, closed packet memory, or other memory than that of `shared`.
        SocketError, PortError, PrivilegeError, AttachError: the kernel's refusal, explained.
    """

    def __init__(
        self,
        interface: str,
        queue: int = 0,
        *,
        umem: Umem,
        shared: Socket | None = None,
        rx: int = 2048,
        tx: int = 2048,
        fill: int = 2048,
        completion: int = 2048,
        mode: BindMode = "auto",
        multi_buffer: bool = True,
        need_wakeup: bool = True,
        program: Literal["auto"] | RedirectProgram | None = "auto",
    ) -> None:
        queue = whole("queue", queue, 0, HIGHEST_QUEUE)
        rx, tx = whole("rx", rx, 0, MOST_ENTRIES), whole("tx", tx, 0, MOST_ENTRIES)
        fill, completion = whole("fill", fill, 0, MOST_ENTRIES), whole("completion", completion, 0, MOST_ENTRIES)
        choice("mode", mode, get_args(BindMode))
        _check_memory(umem, shared)
        if not (program in ("auto", None) or isinstance(program, RedirectProgram)):
            raise UsageError(
                f"program must be a RedirectProgram, not {literal(program)}", remedy=Setting("program", "auto")
            )
        facts = look(interface)
        if tx and queue in range(facts.tx_queues, facts.rx_queues):
            raise UsageError(
                f"{interface} has no TX queue {queue}: what is sent there would vanish",
                remedy="tx=0, or ethtool -L for as many TX as RX queues",
            )
        self.interface, self.ifindex, self.queue, self.mtu, self.umem = interface, facts.index, queue, facts.mtu, umem
        self.multi_buffer: bool
        self._circulation: Circulation
        self.xdp_mode: str | None = None
        self.why: list[str] = []
        self._sharers: list[Socket] = []
        self._last: Statistics | None = None
        self._pid = os.getpid()
        owner = shared if shared and (shared.ifindex, shared.queue) == (self.ifindex, queue) else None
        if owner:
            fill = completion = 0
        shared_fd = shared.fd if shared else None
        if shared_fd == -1:
            raise explain(Call.BIND, errno.EBADF)
        plan = Plan(facts, queue, umem, mode, rx, tx, fill, completion, multi_buffer, need_wakeup, shared_fd)
        check(plan)
        with ExitStack() as undo:
            attachment = None
            if program == "auto" and rx:
                attachment = Attachment.make(facts.index, queue + 1, mode)
                undo.callback(attachment.close)
                self.xdp_mode = str(attachment.mode)
                self.why += attachment.why
                if mode == "auto" and self.xdp_mode == "generic":
                    plan = replace(plan, mode="generic")
            opened = open_socket(plan)
            undo.callback(opened.socket.close)
            self._socket, self._rings = opened.socket, opened.rings
            undo.callback(self._rings.close)
            self.zero_copy = opened.zero_copy
            self.multi_buffer = shared.multi_buffer if shared else opened.multi_buffer
            self.why += opened.why
            self.transmit_budget = self._set_budget(tx)
            self._circulation = owner._circulation if owner else self._new_circulation()
            self._traffic = Traffic(
                interface,
                queue,
                opened.socket,
                self._rings.rx,
                self._rings.tx,
                self._circulation,
                self.multi_buffer,
                told_late=self.told_late,
            )
            undo.callback(self._leave, owner)
            umem.adopt(self)
            if owner:
                owner._sharers.append(self)
            if attachment:
                undo.callback(attachment.close)  # detached before anything of the socket goes; closing twice is fine
            self._steps = undo.pop_all()
        not_inherited(self, lambda inherited: inherited._socket.close())
        chosen = attachment.program if attachment else program
        if isinstance(chosen, RedirectProgram):
            try:
                self._traffic.prepare()
                self.register(chosen)
            except BaseException:
                self.close()
                raise

    def _new_circulation(self) -> Circulation:
        assert self._rings.fill is not None
        assert self._rings.completion is not None
        return Circulation(self.umem, self._rings.fill, self._rings.completion)

    def _set_budget(self, entries: int) -> int | None:
        """XDP_MAX_TX_SKB_BUDGET (Linux 6.17): as many as the TX ring has."""
        if entries < LEAST_BUDGET:
            return None
        try:
            self._socket.setsockopt(SOL_XDP, SocketOption.MAX_TX_SKB_BUDGET, entries)
        except OSError as error:
            if error.errno == errno.ENOPROTOOPT:
                return None
            condition = "budget" if error.errno == errno.EACCES else ""
            raise explain(
                Call.OPTION, error, condition, option="XDP_MAX_TX_SKB_BUDGET", budget=entries, entries=entries
            ) from error
        return entries

    @property
    def told_late(self) -> bool:
        """Whether TX may still show what the kernel has taken from it.

        In copy mode before Linux 6.17 a sendto that ends with an error says nothing of what it has taken: the one that
        finds nothing more to take does (net/xdp/xsk.c, __xsk_generic_xmit). The budget came with the same Linux.
        """
        return not self.zero_copy and self.transmit_budget is None

    # --- facts, and what compiled code works on -----------------------------------------------------------------

    @property
    def fd(self) -> int:
        """The file descriptor, close-on-exec; -1 once closed."""
        return self._socket.fileno()

    def fileno(self) -> int:
        """For select and the like. Polling a socket that has packets in TX sends them, and hides what is refused."""
        return self._socket.fileno()

    @property
    def rx_ring(self) -> int | None:
        """Address of the Ring record of RX, None without one; valid until close."""
        return _record(self._rings.rx)

    @property
    def tx_ring(self) -> int | None:
        """Address of the Ring record of TX, None without one; valid until close."""
        return _record(self._rings.tx)

    @property
    def fill_ring(self) -> int | None:
        """Address of the Ring record of FILL, None where another socket of the queue has it; valid until close."""
        return _record(self._rings.fill)

    @property
    def completion_ring(self) -> int | None:
        """Address of the Ring record of COMPLETION, None where another socket of the queue has it."""
        return _record(self._rings.completion)

    @property
    def refused(self) -> int:
        """Packets given to `send` that the kernel refused: no carrier, too long, too short (EBUSY from sendto)."""
        return self._traffic.refused

    def statistics(self) -> Statistics:
        """XDP_STATISTICS of this socket; after close, as they were then. `rx_fill_ring_empty` is that of the queue's
        FILL ring. UsageError in a forked child."""
        if self._last is not None:
            return self._last
        self._require_open()
        return Statistics.unpack(self._socket.getsockopt(SOL_XDP, SocketOption.STATISTICS, Statistics.LAYOUT.size))

    def register(self, program: RedirectProgram) -> None:
        """From now on this program gives the queue's packets to this socket, until `close`.

        Raises:
            UsageError: the socket or the program is closed, or the program was loaded for fewer queues, or has another
                socket for this one.
        """
        self._require_open()
        if not isinstance(program, RedirectProgram):
            raise UsageError(f"program must be a RedirectProgram, not {literal(program)}")
        program.register(self.queue, self.fd)
        self._traffic.stamped = True
        self._steps.callback(_unregister, program, self.queue)

    # --- packets ------------------------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None, limit: int = 64) -> list[Packet]:
        """The packets that are there, at most `limit`; if there is none, the first to come.

        Args:
            timeout: seconds to wait for the first packet; None: for ever, 0: not at all.
            limit: the most packets to take.

        Returns:
            Packets that are valid until the next `receive`, unless kept. Empty when the time is over.

        Raises:
            UsageError: no RX ring, a limit below 1, or a view of an earlier packet is still in use: that packet then
                counts as kept, until `release`.
            PortError: the interface went down or away while packets were being sent.
        """
        self._require_open()
        return self._traffic.receive(seconds("timeout", timeout), whole("limit", limit, 1, MOST_ENTRIES))

    def send(self, packets: Iterable[Sendable]) -> int:
        """Put packets in TX and make the kernel take them. Bytes are copied once; a Packet of the same memory is not,
        and is gone afterwards.

        Returns:
            How many were accepted: it stops before the first for which TX or the packet memory has no room. Those
            that the kernel then refuses are counted in `refused`.

        Raises:
            UsageError: a packet that can never be sent; those before it were accepted.
            PortError: the interface is down or gone; what was accepted stays in TX.
        """
        self._require_open()
        return self._traffic.send(packets)

    def flush(self, timeout: float = 1.0) -> None:
        """Go on until TX is empty and all frames are back: everything is sent, or was refused.

        Raises:
            PortError: the interface is down or gone, or frames did not come back for `timeout` seconds.
        """
        self._require_open()
        self._traffic.flush(seconds("timeout", timeout))

    def _require_open(self) -> None:
        if self.fd < 0:
            raise UsageError(f"the socket of queue {self.queue} of {self.interface} is closed")

    # --- the end ------------------------------------------------------------------------------------------------

    def from_kernel(self) -> list[Sighting]:
        """For Umem.check: the entries of RX and COMPLETION."""
        return [*self._traffic.from_kernel(), *_places(self.umem, self._rings.completion, Owner.COMPLETION, Owner.TX)]

    def to_kernel(self) -> list[Sighting]:
        """For Umem.check: the entries of FILL and TX."""
        return [*self._traffic.to_kernel(), *_places(self.umem, self._rings.fill, Owner.FILL, Owner.FILL)]

    def _leave(self, owner: Socket | None) -> None:
        """The last packets end."""
        self._traffic.close()
        self.umem.disown(self)
        if owner is not None and self in owner._sharers:
            owner._sharers.remove(self)

    def close(self) -> None:
        """Out of the XSKMAP, detach, unmap, close: in this order; twice is fine. Then the queue is free, some 20 to
        45 ms later. In a forked child it is closed from the start, and all that is the parent's stays."""
        if os.getpid() != self._pid:
            return
        if self._last is None:
            self._last = self.statistics()
        for sharer in list(self._sharers):
            sharer.close()
        self._steps.close()
        if self._rings.fill:
            self._circulation.abandon()  # only now is the kernel done with its frames

    def __repr__(self) -> str:
        return f"<Socket of queue {self.queue} of {self.interface}, {'zero copy' if self.zero_copy else 'copy'}>"


def _check_memory(umem: Umem, shared: Socket | None) -> None:
    require_open(umem)
    if not (shared is None or isinstance(shared, Socket)):
        raise UsageError(f"shared must be a Socket, not {literal(shared)}", remedy="shared=None")
    if shared is not None and shared.umem is not umem:  # the kernel would send from the other socket's memory
        raise UsageError(
            f"umem must be the packet memory of the socket that shares it, queue {shared.queue} of {shared.interface}",
            remedy="umem=shared.umem",
        )


def _record(ring: MappedRing | None) -> int | None:
    return ring.record if ring else None


def _places(umem: Umem, ring: MappedRing | None, place: Owner, owner: Owner) -> list[Sighting]:
    return [(frame_at(umem, address), place, owner) for address in ring.addresses()] if ring else []


def _unregister(program: RedirectProgram, queue: int) -> None:
    if not program.program.closed:
        program.unregister(queue)
