"""The receiving side of a socket: batches come out of RX, frames go into FILL."""

from __future__ import annotations

from math import inf

from xskit.jit import direct
from xskit.memory import record_view, size_of
from xskit.xsk.bound import BoundSocket
from xskit.xsk.errors import Call, explain
from xskit.xsk.pages import Pages
from xskit.xsk.path.calls import EAGAIN, EBUSY, ENETDOWN, EOPNOTSUPP
from xskit.xsk.path.ending import end_receiving, hand_over_filled
from xskit.xsk.path.entry import ROW_BYTES, Inbox, take_batch, wake_receiver
from xskit.xsk.path.lines import NIL
from xskit.xsk.path.receive import ARRIVAL_BYTES, RECEIVER_BYTES, Receiver
from xskit.xsk.umem import Umem
from xskit.xsk.waiting import Waiting

__all__ = ["Receiving"]

_HARMLESS = (0, EAGAIN, EBUSY, ENETDOWN, EOPNOTSUPP)
"""Errors of a call that only wakes the kernel. EOPNOTSUPP: before Linux 5.11 only poll wakes the receiving side."""

_FIRST_ROOM = 64

EPOLL_EVENT_BYTES = 16
"""struct epoll_event, where it is not packed."""

LOOK_S = 0.1
"""How often the interface is looked after while no packet comes: poll does not say that it is gone."""


class Receiving:
    """RX and FILL of one socket; one call at a time (`Turn`).

    Args:
        bound: the socket that has the RX ring.
        umem: the packet memory.
        number: of the socket, among those of this packet memory.
        share: frames that FILL should have; 0: those that another socket of the queue put there.

    Attributes:
        address, receiver_address: of the Inbox and the Receiver record.
        waiting: sleeps until packets come.
    """

    def __init__(self, bound: BoundSocket, umem: Umem, number: int, share: int) -> None:
        self._bound = bound
        self._hold = umem.hold()
        self._buffers: list[Pages] = []
        inbox_bytes = -(-size_of(Inbox) // 64) * 64
        event = inbox_bytes + -(-RECEIVER_BYTES // 64) * 64
        self._records = Pages(event + EPOLL_EVENT_BYTES, populate=True, huge=False, hugetlb=False)
        self.address = self._records.address
        self.receiver_address = self.address + inbox_bytes
        self.receiver = record_view(Receiver, self.address + inbox_bytes, self._records.view)
        self._inbox = inbox = record_view(Inbox, self.address, self._records.view)
        receiver = self.receiver
        receiver.memory, receiver.pool = umem.table.memory, umem.pool.address
        assert bound.rings.rx is not None
        self._most = bound.rings.rx.size
        assert bound.primary.fill_ring is not None
        receiver.rx, receiver.fill, receiver.fd = bound.rings.rx.record, bound.primary.fill_ring, bound.fd
        receiver.target, receiver.number, receiver.head = share, number, NIL
        inbox.receiver = self.address + inbox_bytes
        self._room = 0
        self._looked = -inf
        self._make_room(_FIRST_ROOM)
        self._take_batch, self._wake = direct(take_batch), direct(wake_receiver)
        self.waiting = Waiting(bound.fd)
        inbox.epoll, inbox.event = self.waiting.fd, self.address + event
        inbox.open = 1

    def hold(self) -> tuple[memoryview, ...]:
        """Views that keep mapped what compiled code works on."""
        return self._records.view, *self._hold

    @property
    def stamped(self) -> bool:
        """Whether the program leaves its stamp before each packet."""
        return bool(self.receiver.stamped)

    @stamped.setter
    def stamped(self, stamped: bool) -> None:
        self.receiver.stamped = int(stamped)

    def take(self, limit: int, wait_ms: int = 0) -> bytearray:
        """The packets that are there, at most `limit`, as PacketRow records; those of the last batch end.

        Empty, too, where the socket is closed. With `wait_ms`, sleeps so long at most until a packet comes; what else
        could be the matter is for the caller to see.
        """
        if limit > self._room and self._room < self._most:
            self._make_room(min(limit, self._most))
        count = self._take_batch(self.address, limit, wait_ms)
        return bytearray(self._rows[: count * ROW_BYTES]) if count > 0 else bytearray()

    def wake(self, now: float) -> None:
        """Before sleeping: call the kernel where it asks for that, and every LOOK_S in any case, for only such a call
        says that the interface is gone.

        Args:
            now: seconds, time.monotonic().

        Raises:
            PortError: the interface is gone.
        """
        look = now - self._looked > LOOK_S
        code = self._wake(self.address, look)
        if look:
            self._looked = now
        if code > 0 and code not in _HARMLESS:
            raise explain(Call.RECEIVE, code, interface=self._bound.interface)

    def _make_room(self, limit: int) -> None:
        """Room for batches of `limit` packets. The last batch ends first, so that nothing in the old room matters."""
        if self._buffers:
            take_batch(self.address, 0, 0)
        row_bytes = -(-ROW_BYTES * limit // 64) * 64
        made = Pages(row_bytes + ARRIVAL_BYTES * limit, populate=True, huge=False, hugetlb=False)
        self._buffers.append(made)  # the old ones stay until the new ones are in place
        self._room = self._inbox.room = 0
        self._inbox.rows, self._rows = made.address, made.view[: ROW_BYTES * limit]
        self._inbox.arrivals = made.address + row_bytes
        self._inbox.room = limit
        self._room = limit
        self._buffers = [made]

    def hand_over(self, other: Receiving) -> None:
        """What the kernel has to receive into counts for another socket of the queue from now on; twice is fine."""
        hand_over_filled(self.address, other.address)

    def close(self) -> None:
        """End the last batch, and take home what was not read: just before the kernel socket is closed. Twice is
        fine."""
        end_receiving(self.address)
        self.waiting.close()
