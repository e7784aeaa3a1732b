"""One AF_XDP socket of the kernel, bound to one queue of one interface, with its rings mapped.

FILL  --->  kernel  --->  RX            BoundSocket owns the descriptor, the maps, and the Ring records
TX    --->  kernel  --->  COMPLETION    that compiled code works on

A `Socket` is made of two of them on the same packet memory: poll() on a socket that has a TX ring sends from it and
swallows what the kernel refuses (net/xdp/xsk.c, xsk_poll), so the one that is polled has none.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, suppress

from xskit._fork import not_inherited
from xskit.abi.xdp import SOL_XDP, SocketOption, Statistics
from xskit.closing import Closing
from xskit.errors import UsageError
from xskit.netconf.interfaces import Interface
from xskit.xsk.errors import Call, explain
from xskit.xsk.mapping import MappedRing
from xskit.xsk.opening import BindMode, Plan, check, open_socket
from xskit.xsk.umem import Umem

__all__ = ["BoundSocket"]

LEAST_BUDGET = 32
"""TX_BATCH_SIZE (net/xdp/xsk.c): the packets one sendto sends unless told otherwise, and the least one may ask for."""


class BoundSocket(Closing):
    """A kernel socket bound to a queue. The calling thread must be in the interface's network namespace.

    Args:
        facts: the interface.
        queue: the queue's number.
        umem: the packet memory. Registered on this socket, unless `shared` is given.
        shared: another socket whose registration to use (XDP_SHARED_UMEM): its mode is inherited. Of the same queue,
            the two have FILL and COMPLETION in common, and this one is closed with it.
        rx, tx, fill, completion: ring sizes in entries, powers of two; 0: no such ring.
        mode: the one rung of the ladder to use, or "auto" for the best that works.
        multi_buffer: take packets longer than a frame (Linux 6.6); `self.multi_buffer` says what was got.
        need_wakeup: let the driver say when it needs a system call.

    Attributes:
        zero_copy: packets are not copied between driver and packet memory (XDP_OPTIONS).
        transmit_budget: packets that one sendto sends in copy mode; None: the kernel's 32.
        why: why better modes were not to be had, a sentence each.

    Raises:
        UsageError: an impossible ring size.
        SocketError, PortError, PrivilegeError: the kernel's refusal, explained.
    """

    def __init__(
        self,
        facts: Interface,
        queue: int,
        umem: Umem,
        *,
        shared: BoundSocket | None = None,
        rx: int,
        tx: int,
        fill: int,
        completion: int,
        mode: BindMode = "auto",
        multi_buffer: bool = True,
        need_wakeup: bool = True,
    ) -> None:
        self.interface, self.ifindex, self.queue, self.umem = facts.name, facts.index, queue, umem
        self.need_wakeup = need_wakeup
        self._sharers: list[BoundSocket] = []
        self._last: Statistics | None = None
        self._pid = os.getpid()
        owner = shared.primary if shared and (shared.ifindex, shared.queue) == (self.ifindex, queue) else None
        self._owner = owner
        if owner:
            fill = completion = 0
        shared_fd = shared.fd if shared else None
        plan = Plan(facts, queue, umem, mode, rx, tx, fill, completion, multi_buffer, need_wakeup, shared_fd)
        check(plan)
        with ExitStack() as undo:
            opened = open_socket(plan)
            undo.callback(opened.socket.close)
            self._socket, self.rings = opened.socket, opened.rings
            undo.callback(self.rings.close)
            self.zero_copy = opened.zero_copy
            self.multi_buffer: bool = shared.multi_buffer if shared else opened.multi_buffer
            self.why = list(opened.why)
            self.transmit_budget = self._set_budget(tx)
            if owner:
                owner._sharers.append(self)
            undo.pop_all()
        not_inherited(self, lambda inherited: inherited._socket.close())

    @property
    def primary(self) -> BoundSocket:
        """The socket that has FILL and COMPLETION of the queue."""
        return self._owner or self

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

    @property
    def fd(self) -> int:
        """The file descriptor, close-on-exec; -1 once closed."""
        return self._socket.fileno()

    @property
    def rx_ring(self) -> int | None:
        """Address of the Ring record of RX, None without one."""
        return _record(self.rings.rx)

    @property
    def tx_ring(self) -> int | None:
        """Address of the Ring record of TX, None without one."""
        return _record(self.rings.tx)

    @property
    def fill_ring(self) -> int | None:
        """Address of the Ring record of FILL, None where another socket of the queue has it."""
        return _record(self.rings.fill)

    @property
    def completion_ring(self) -> int | None:
        """Address of the Ring record of COMPLETION, None where another socket of the queue has it."""
        return _record(self.rings.completion)

    def statistics(self) -> Statistics:
        """XDP_STATISTICS; after close, as they were then. `rx_fill_ring_empty` is that of the queue's FILL ring.

        Raises:
            UsageError: this is a forked child.
        """
        try:
            raw = self._socket.getsockopt(SOL_XDP, SocketOption.STATISTICS, Statistics.LAYOUT.size)
        except OSError as error:
            if self.fd >= 0:
                raise
            if self._last is not None:  # closed, perhaps only now by another thread
                return self._last
            raise UsageError(f"the socket of queue {self.queue} of {self.interface} is closed") from error
        return Statistics.unpack(raw)

    def close(self) -> None:
        """Unmap and close, sockets that share the queue first; twice is fine, and ends what an exception has left
        undone. Then the queue is free, some 20 to 45 ms later. In a forked child it is closed from the start, and all
        that is the parent's stays."""
        if os.getpid() != self._pid:
            return
        if self._last is None:
            self._last = self.statistics()
        for sharer in list(self._sharers):
            sharer.close()
        self.rings.close()
        self._socket.close()
        if self._owner:
            with suppress(ValueError):
                self._owner._sharers.remove(self)


def _record(ring: MappedRing | None) -> int | None:
    return ring.record if ring else None
