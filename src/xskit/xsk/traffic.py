"""Receiving and sending from Python: frames go round between the pool and the four rings, packets come and go.

In copy mode the kernel sends only inside sendto, 32 packets a call unless XDP_MAX_TX_SKB_BUDGET says more
(net/xdp/xsk.c, __xsk_generic_xmit; measured on Linux 6.18):

    0         sent, or an invalid descriptor was met and thrown out: look whether TX is empty, call again if not
    EAGAIN    the budget is used up, or COMPLETION is full, or too much is on its way: reap, call again
    EBUSY     exactly one packet, the last one consumed, was refused; its frames are completed all the same
    ENETDOWN  the interface is down: what lies in TX stays there until it is up
    ENXIO     the interface is gone

poll() would send as well, and swallow an EBUSY: so it is used only while TX is empty.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Iterable

from xskit.abi.xdp import MAX_SKB_FRAGS, DescriptorOption
from xskit.arguments import literal
from xskit.bpf.redirect import STAMP_BYTES
from xskit.errors import UsageError
from xskit.xsk.errors import Call, PortError, explain
from xskit.xsk.mapping import MappedRing
from xskit.xsk.packet import Packet
from xskit.xsk.path.owner import Owner, Sighting
from xskit.xsk.path.rings import LEAST_TAKEN
from xskit.xsk.umem import Umem, frame_at, offset_at

__all__ = ["MOST_FRAMES", "Circulation", "Traffic"]

Sendable = bytes | bytearray | memoryview | Packet
_SENDABLE = (bytes, bytearray, memoryview, Packet)
Descriptor = tuple[int, int, int]

MOST_FRAMES = MAX_SKB_FRAGS + 1
"""A packet's frames in copy mode: the first goes into the linear part of an skb (xsk_build_skb). A packet of more is
thrown out as invalid, all of it."""

LONGEST_WAIT_S = 1.0
"""Without packets, the socket is looked after this often."""

_STAMP = struct.Struct("=Q")
_NO_STAMP = bytes(STAMP_BYTES)
_CONTINUES = int(DescriptorOption.PKT_CONTD)


def _is_readable(view: memoryview) -> bool:
    """Whether its bytes can be copied in one go."""
    try:
        return view.c_contiguous
    except ValueError:  # it was released
        return False


class Circulation:
    """The FILL and COMPLETION ring of a queue, which all sockets of that queue share, and what is on its way there."""

    def __init__(self, umem: Umem, fill: MappedRing, completion: MappedRing) -> None:
        self.umem = umem
        self.fill = fill
        self.completion = completion
        self.filled: set[int] = set()
        """Frames that the kernel has to receive into."""
        self.sending: set[int] = set()
        """Frames that the kernel has to send from."""
        self._target: int | None = None
        umem.to_fill += 1

    def refill(self) -> None:
        """Keep FILL as full as at first: then it gets its share of the free frames, and as many are left to send."""
        pool = self.umem.pool
        if self._target is None:
            self._target = min(self.fill.size, max(1, pool.free // (self.umem.to_fill + 1)))
            self.umem.to_fill -= 1
        wanted = min(self._target - len(self.filled), self.fill.room())
        if wanted > 0:
            self._put(pool.take(wanted, Owner.FILL))

    def recycle(self, frames: list[int]) -> None:
        """Held frames go straight back to FILL, as far as there is room."""
        pool, room = self.umem.pool, self.fill.room()
        for number, frame in enumerate(frames):
            pool.move(frame, Owner.HELD, Owner.FILL if number < room else Owner.FREE)
        self._put(frames[:room])

    def _put(self, frames: list[int]) -> None:
        size = self.umem.frame_size
        self.filled.update(frames)
        self.fill.put_addresses([frame * size for frame in frames])

    def reap(self) -> int:
        """Take completed frames home; returns how many."""
        frames = [frame_at(self.umem, address) for address in self.completion.take_addresses(self.completion.size)]
        for frame in frames:
            self.umem.pool.move(frame, Owner.TX, Owner.FREE)
        self.sending.difference_update(frames)
        return len(frames)

    def abandon(self) -> None:
        """The sockets are closed: what the kernel had is free."""
        if self._target is None:
            self._target = 0
            self.umem.to_fill -= 1
        for frames, owner in ((self.filled, Owner.FILL), (self.sending, Owner.TX)):
            for frame in frames:
                self.umem.pool.move(frame, owner, Owner.FREE)
            frames.clear()


class Traffic:
    """What a socket's `receive`, `send` and `flush` do. One thread at a time.

    `told_late`: as of Socket.
    """

    def __init__(
        self,
        interface: str,
        queue: int,
        handle: socket.socket,
        rx: MappedRing | None,
        tx: MappedRing | None,
        circulation: Circulation,
        multi_buffer: bool,
        *,
        told_late: bool,
    ) -> None:
        self.refused = 0
        self.stamped = False
        self._interface = interface
        self._queue = queue
        self._handle = handle
        self._rx = rx
        self._tx = tx
        self._circulation = circulation
        self._umem = circulation.umem
        self._multi_buffer = multi_buffer
        self._told_late = told_late
        self._batch: list[Packet] = []
        self._unfinished: list[tuple[int, int]] = []
        self._poll = select.poll()
        self._poll.register(handle, select.POLLIN)

    # --- receiving ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Fill FILL."""
        self._circulation.refill()
        if self._circulation.fill.needs_wakeup():
            self._wake_receive()

    def receive(self, timeout: float | None, limit: int) -> list[Packet]:
        """See Socket.receive."""
        if self._rx is None:
            raise UsageError("this socket has no RX ring: it only sends", remedy="rx=2048")
        self._expire()
        self.prepare()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (packets := self._take(self._rx, limit)):
            self._drive()
            self._wake_receive()  # poll would never tell that the interface is gone; this does
            left_s = LONGEST_WAIT_S if deadline is None else min(deadline - time.monotonic(), LONGEST_WAIT_S)
            if left_s <= 0:
                break
            if self._tx is not None and self._tx.pending():
                time.sleep(min(0.001, left_s))
            else:
                self._poll.poll(max(1, int(left_s * 1000)))
        self._batch = packets
        self._audit()
        return packets

    def _expire(self) -> None:
        """The last batch ends: what was neither kept nor sent goes back to FILL."""
        frames, trouble = self._end_batch()
        self._circulation.recycle(frames)
        if trouble is not None:
            raise trouble

    def _end_batch(self) -> tuple[list[int], UsageError | None]:
        """The frames of packets that nobody has any more; and what was said of one whose views are still in use."""
        batch, self._batch = self._batch, []
        frames: list[int] = []
        trouble = None
        for packet in batch:
            if not (packet.kept or packet.gone):
                try:
                    frames += packet.take_frames()
                except UsageError as error:
                    trouble = error
        return frames, trouble

    def _take(self, rx: MappedRing, limit: int) -> list[Packet]:
        packets: list[Packet] = []
        umem, pool, filled = self._umem, self._umem.pool, self._circulation.filled
        parts = self._unfinished
        while len(packets) < limit:
            taken = rx.take_descriptors(limit - len(packets))
            if not taken:
                break
            for address, length, options in taken:
                frame = frame_at(umem, address)
                pool.move(frame, Owner.FILL, Owner.HELD)
                filled.discard(frame)
                parts.append((offset_at(umem, address), length))
                if not options & _CONTINUES:
                    packets.append(Packet(umem, parts, self._queue, self._stamp(parts[0][0])))
                    parts = self._unfinished = []
        return packets

    def _stamp(self, offset: int) -> int | None:
        """The arrival stamp before a packet; cleared, so that the frame's next packet cannot be taken for this one."""
        if not self.stamped:
            return None
        view = self._umem.view(offset - STAMP_BYTES, STAMP_BYTES)
        (stamp,) = _STAMP.unpack(view)
        view[:] = _NO_STAMP
        return stamp or None

    def _wake_receive(self) -> None:
        try:
            self._handle.recv(1, socket.MSG_DONTWAIT)
        except OSError as error:
            # EOPNOTSUPP: before Linux 5.11 only poll wakes the receiving side
            if error.errno not in (errno.EAGAIN, errno.EBUSY, errno.ENETDOWN, errno.EOPNOTSUPP):
                raise explain(Call.RECEIVE, error, interface=self._interface) from error

    # --- sending ------------------------------------------------------------------------------------------------

    def send(self, packets: Iterable[Sendable]) -> int:
        """See Socket.send."""
        if isinstance(packets, (str, *_SENDABLE)) or not isinstance(packets, Iterable):
            raise UsageError(f"send takes a list of packets, not {literal(packets)}", remedy="send([packet])")
        tx = self._ring()
        self._circulation.reap()
        accepted = 0
        batch: list[Descriptor] = []
        room = tx.room()
        try:
            for packet in packets:
                needed = self._frames_for(packet)
                if len(batch) + needed > room or not self._frames_left(packet, needed):
                    self._submit(tx, batch)
                    batch = []
                    room = self._make_room(tx, packet, needed)
                    if room < needed:
                        break
                batch += self._describe(packet)
                accepted += 1
        finally:
            self._submit(tx, batch)
        self._audit()
        return accepted

    def flush(self, timeout: float | None) -> None:
        """See Socket.flush."""
        tx = self._ring()
        deadline = None if timeout is None else time.monotonic() + timeout
        sending = self._circulation.sending
        while True:
            self._drive()
            if not (tx.pending() or sending):
                break
            if deadline is not None and time.monotonic() > deadline:
                raise PortError(
                    f"{len(sending)} frames sent on queue {self._queue} of {self._interface} did not come back within "
                    f"{timeout:g} s",
                    errno.ETIME,
                    remedy=f"ip -details link show {self._interface}",
                )
            time.sleep(50e-6)
        self._audit()

    def _ring(self) -> MappedRing:
        if self._tx is None:
            raise UsageError("this socket has no TX ring: it only receives", remedy="tx=2048")
        return self._tx

    def _frames_for(self, packet: Sendable) -> int:
        """How many frames a packet takes in TX. Raises UsageError where it cannot be sent at all."""
        if not isinstance(packet, _SENDABLE) or (isinstance(packet, memoryview) and not _is_readable(packet)):
            raise UsageError(
                f"a packet must be bytes or a Packet, not {literal(packet)}", remedy="send([bytes(packet)])"
            )
        length = packet.nbytes if isinstance(packet, memoryview) else len(packet)
        if isinstance(packet, Packet) and packet.lies_in(self._umem):
            frames = len(packet.parts)
        else:
            frames = -(-length // self._umem.capacity)
        if frames == 0:
            raise UsageError("a packet of no bytes cannot be sent")
        if frames > 1 and not self._multi_buffer:
            raise UsageError(
                f"a packet of {length} bytes needs {frames} frames, and this socket has no multi-buffer",
                remedy="multi_buffer=True on Linux 6.6 or later",
            )
        if frames > MOST_FRAMES:
            raise UsageError(
                f"a packet of {length} bytes needs {frames} frames, and the kernel sends at most {MOST_FRAMES} at once"
            )
        return frames

    def _frames_left(self, packet: Sendable, needed: int) -> bool:
        in_place = isinstance(packet, Packet) and packet.lies_in(self._umem)
        return in_place or self._umem.pool.free >= needed

    def _describe(self, packet: Sendable) -> list[Descriptor]:
        """A packet's descriptors; bytes are copied into free frames."""
        if isinstance(packet, Packet) and packet.lies_in(self._umem):
            parts = packet.parts
            frames = packet.take_frames()
            for frame in frames:
                self._umem.pool.move(frame, Owner.HELD, Owner.TX)
        else:
            data = memoryview(bytes(packet) if isinstance(packet, Packet) else packet).cast("B")
            capacity = self._umem.capacity
            frames = self._umem.pool.take(-(-len(data) // capacity), Owner.TX)
            parts = []
            for number, frame in enumerate(frames):
                share = data[number * capacity : (number + 1) * capacity]
                offset = frame * self._umem.frame_size + self._umem.packet_offset
                self._umem.view(offset, len(share))[:] = share
                parts.append((offset, len(share)))
        self._circulation.sending.update(frames)
        last = len(parts) - 1
        return [(offset, length, _CONTINUES if at < last else 0) for at, (offset, length) in enumerate(parts)]

    def _submit(self, tx: MappedRing, batch: list[Descriptor]) -> None:
        if batch:
            tx.put_descriptors(batch)
        self._kick(tx)

    def _make_room(self, tx: MappedRing, packet: Sendable, needed: int) -> int:
        """Entries free in TX after some work, 0 where the frames are still missing."""
        self._circulation.reap()
        return tx.room() if self._frames_left(packet, needed) else 0

    def _drive(self) -> None:
        """Go on with what is being sent."""
        if self._tx is not None:
            self._kick(self._tx)
        if self._circulation.sending:
            self._circulation.reap()

    def _kick(self, tx: MappedRing) -> None:
        """Call sendto until TX is empty or the kernel makes no progress."""
        idle = 0
        while (left := tx.pending()) and tx.needs_wakeup():
            reaped = 0
            try:
                self._handle.send(b"", socket.MSG_DONTWAIT)
            except OSError as error:
                if error.errno == errno.EBUSY:
                    self.refused += 1
                    reaped = int(self._told_late)  # one was taken, whatever TX shows
                elif error.errno in (errno.EAGAIN, errno.ENOBUFS):
                    reaped = self._circulation.reap()
                else:
                    raise explain(Call.SEND, error, interface=self._interface) from error
            if tx.pending() == left and not reaped:
                idle += LEAST_TAKEN
                if not self._told_late or idle > left:
                    return

    # --- for the packet memory ----------------------------------------------------------------------------------

    def from_kernel(self) -> Iterable[Sighting]:
        """The entries of RX."""
        return self._places(self._rx, Owner.RX, Owner.FILL)

    def to_kernel(self) -> Iterable[Sighting]:
        """The entries of TX; none where they say nothing of where the frames are."""
        return [] if self._told_late else self._places(self._tx, Owner.TX, Owner.TX)

    def _places(self, ring: MappedRing | None, place: Owner, owner: Owner) -> Iterable[Sighting]:
        return [(frame_at(self._umem, address), place, owner) for address in ring.addresses()] if ring else []

    def _audit(self) -> None:
        if self._umem.debug:
            self._umem.check()

    def close(self) -> None:
        """The packets of the last batch end; kept ones stay valid, and those with views that are still in use."""
        frames, _ = self._end_batch()
        frames += [offset // self._umem.frame_size for offset, _ in self._unfinished]
        self._unfinished = []
        for frame in frames:
            self._umem.pool.move(frame, Owner.HELD, Owner.FREE)
