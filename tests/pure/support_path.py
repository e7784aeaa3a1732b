"""The data path on ordinary memory, without an engine: the test is the kernel, on the other side of every ring.

Functions of xsk/path have no entry point of their own; `call` dispatches on a number, so that one compilation serves
all tests. Under NUMBA_DISABLE_JIT=1 it is a plain function.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from tests.pure.support_kernel import PlainQueue, PlainRing
from xskit.jit import compiled, i64
from xskit.memory import Region, array_at, record_view
from xskit.xsk.path.books import TX_REFUSED, Books
from xskit.xsk.path.lines import NIL, PacketLine, packet_line
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import give_frame, give_packet, memory_at, move, pool_at, pool_of, take_frame
from xskit.xsk.path.receive import (
    ARRIVAL_BYTES,
    RECEIVER_BYTES,
    Arrival,
    Receiver,
    receive,
    receiver_at,
    recycle,
    refill,
    wake,
)
from xskit.xsk.path.rings import ring_at
from xskit.xsk.path.sizes import LINE_BYTES
from xskit.xsk.path.table import FramePool, PacketTable
from xskit.xsk.path.transmit import (
    TRANSMITTER_BYTES,
    Transmitter,
    collect,
    kick,
    kick_by_hand,
    mark_refused,
    reap,
    submit,
    transmitter_at,
    write_packet,
)

(
    RECEIVE, REFILL, WAKE, WRITE, SUBMIT, MARK_REFUSED, KICK, REAP, COLLECT, TAKE, MOVE, GIVE, GIVE_PACKET, RECYCLE,
    KICK_BY_HAND,
) = range(15)  # fmt: skip
BATCH = 64
DISCARDED = 1
"""The drop cause of packets that a test gives home."""


@compiled("int64(int64, int64, int64, int64, int64)")
def call(what: int, address: int, a: int, b: int, c: int) -> int:
    if what == 0:
        return receive(receiver_at(address), a, b, c)
    if what == 1:
        refill(receiver_at(address))
    elif what == 2:
        return wake(receiver_at(address), a)
    elif what == 3:
        return write_packet(transmitter_at(address), ring_at(transmitter_at(address).tx), a, b, c)
    elif what == 4:
        submit(transmitter_at(address), ring_at(transmitter_at(address).tx), a, b)
    elif what == 5:
        mark_refused(transmitter_at(address))
    elif what == 6:
        kick(transmitter_at(address))
    elif what == 7:
        return reap(transmitter_at(address))
    elif what == 8:
        return collect(transmitter_at(address), a)
    elif what == 9:
        return take_frame(pool_at(address))
    elif what == 10:
        memory = memory_at(pool_at(address).memory)
        line = packet_line(memory.table, a)
        return i64(move(pool_of(memory, line), line, a, b, c))
    elif what == 11:
        give_frame(pool_at(address), a)
    elif what == 12:
        return give_packet(memory_at(address), a)
    elif what == 13:
        return recycle(receiver_at(address), a)
    elif what == 14:
        kick_by_hand(transmitter_at(address))
    return 0


class Received(NamedTuple):
    """An entry of a batch."""

    handle: int
    length: int
    time_ns: int


class PlainPath:
    """Queues on ordinary memory: each has a receiver with frames of its own; all send by the first one's TX.

    Args:
        frames: in all; queues have equal shares.
        entries: of each ring.
        queues: of them.
        frame_bytes, unaligned: of the packet memory.
    """

    def __init__(
        self,
        *,
        frames: int = 16,
        entries: int = 16,
        queues: int = 1,
        frame_bytes: int = 2048,
        unaligned: bool = False,
    ) -> None:
        self.frame_bytes = frame_bytes
        self.memory = Region(frames * frame_bytes)
        self.table = PacketTable(
            frames, base=self.memory.address, frame_bytes=frame_bytes, unaligned=unaligned, pools=queues
        )
        share = frames // queues
        self.pools = [FramePool(self.table, number * share, share) for number in range(queues)]
        self.queues = [
            PlainQueue(self.memory, entries, frame_bytes=frame_bytes, unaligned=unaligned) for _ in range(queues)
        ]
        self.no_socket = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._records = Region(RECEIVER_BYTES * queues + TRANSMITTER_BYTES + ARRIVAL_BYTES * BATCH)
        self._sender = self._records.address + RECEIVER_BYTES * queues
        self._batch = self._sender + TRANSMITTER_BYTES
        for number, (pool, queue) in enumerate(zip(self.pools, self.queues, strict=True)):
            receiver = self.receiver(number)
            receiver.memory, receiver.pool, receiver.number = self.table.memory, pool.address, 10 + number
            receiver.rx, receiver.fill, receiver.fd = queue.rx.record, queue.fill.record, self.no_socket
            receiver.stamped, receiver.target, receiver.head, receiver.tail = 1, entries, NIL, NIL
        transmitter = self.transmitter
        transmitter.memory, transmitter.number, transmitter.fd = self.table.memory, 99, self.no_socket
        transmitter.tx, transmitter.completion = self.queues[0].tx.record, self.queues[0].completion.record

    def receiver(self, number: int = 0) -> Receiver:
        return record_view(Receiver, self._records.address + number * RECEIVER_BYTES)

    @property
    def transmitter(self) -> Transmitter:
        return record_view(Transmitter, self._sender)

    def line(self, frame: int) -> PacketLine:
        return record_view(PacketLine, self.table.address + frame * LINE_BYTES)

    def owner(self, frame: int) -> Owner:
        return Owner(self.line(frame).owner)

    def books(self, frame: int) -> Books:
        """Of the frame's home."""
        return self.pools[self.line(frame).home].books

    def frames_of(self, handle: int) -> list[int]:
        """The frames of a packet."""
        frames = []
        while handle != NIL:
            frames.append(handle)
            handle = self.line(handle).fragment
        return frames

    def data(self, handle: int) -> bytes:
        """The bytes of a packet."""
        lines = [self.line(frame) for frame in self.frames_of(handle)]
        return b"".join(array_at(line.address, line.span, np.uint8).tobytes() for line in lines)

    # -- what the process does -------------------------------------------------------------------------------------

    def refill(self, number: int = 0) -> None:
        call(REFILL, self._records.address + number * RECEIVER_BYTES, 0, 0, 0)

    def wake(self, always: int = 0) -> int:
        return call(WAKE, self._records.address, always, 0, 0)

    def receive(self, most: int = BATCH, number: int = 0, count: int = 0) -> list[Received]:
        """What comes from a queue, counted in the books as the engine does; the batch has `count` entries already."""
        receiver = self._records.address + number * RECEIVER_BYTES
        found = call(RECEIVE, receiver, self._batch, count, most)
        arrivals = [record_view(Arrival, self._batch + n * ARRIVAL_BYTES) for n in range(count, found)]
        packets = [Received(one.handle, one.length, one.time_ns) for one in arrivals]
        for packet in packets:
            books = self.books(packet.handle)
            books.received += 1
            books.received_bytes += packet.length
            books.in_flight += 1
            books.in_flight_bytes += packet.length
            books.in_flight_frames += self.line(packet.handle).frames
        return packets

    def give(self, handle: int) -> int:
        """A packet goes home, counted as dropped; returns its frames."""
        books, length = self.books(handle), self.line(handle).length
        frames = call(GIVE_PACKET, self.table.memory, handle, 0, 0)
        drops = self.drops(books)
        drops[DISCARDED] += (1, length)
        books.in_flight -= 1
        books.in_flight_bytes -= length
        books.in_flight_frames -= frames
        return frames

    def drops(self, books: Books) -> np.ndarray:
        """Pairs (packets, bytes), by cause."""
        return array_at(books.drops, 32, np.int64).reshape(16, 2)

    def refused(self, number: int = 0) -> int:
        """Packets that the kernel refused, of a queue's frames."""
        return int(self.drops(self.pools[number].books)[TX_REFUSED][0])

    def recycle(self, most: int = BATCH) -> int:
        """What lies in the first RX goes back into FILL."""
        return call(RECYCLE, self._records.address, most, 0, 0)

    def write(self, handle: int, descriptors: int = 0, origin: Owner = Owner.HELD) -> int:
        return call(WRITE, self._sender, descriptors, handle, origin)

    def submit(self, descriptors: int, packets: int) -> None:
        call(SUBMIT, self._sender, descriptors, packets, 0)

    def send(self, *handles: int, origin: Owner = Owner.HELD) -> None:
        """Packets into TX, where there must be room."""
        descriptors = 0
        for handle in handles:
            descriptors = self.write(handle, descriptors, origin)
        self.submit(descriptors, len(handles))

    def mark_refused(self) -> None:
        call(MARK_REFUSED, self._sender, 0, 0, 0)

    def kick(self) -> None:
        call(KICK, self._sender, 0, 0, 0)

    def kick_by_hand(self) -> None:
        call(KICK_BY_HAND, self._sender, 0, 0, 0)

    def reap(self) -> int:
        return call(REAP, self._sender, 0, 0, 0)

    def collect(self, now_ns: int) -> int:
        return call(COLLECT, self._sender, now_ns, 0, 0)

    def take(self, number: int = 0) -> int:
        """A free frame, still FREE."""
        return call(TAKE, self.pools[number].address, 0, 0, 0)

    def move(self, frame: int, origin: Owner, target: Owner) -> bool:
        return bool(call(MOVE, self.pools[0].address, frame, origin, target))

    # -- what must always hold -------------------------------------------------------------------------------------

    def check(self, lost: int = 0) -> None:
        """Every frame is in exactly one place, which its owner explains, and what is counted is so.

        Args:
            lost: frames that the kernel took from FILL or TX and never gave back.
        """
        owners = self.table.owners()
        places: list[tuple[int, Owner]] = []
        for pool in self.pools:
            places += [(frame, Owner.FREE) for frame in pool.stack().tolist()]
        for queue in self.queues:
            places += [(frame, Owner.FILL) for frame in self._between(queue.fill) + self._numbers(queue.spare)]
            places += [(frame, Owner.FILL) for frame in self._between(queue.rx) if owners[frame] == Owner.FILL]
            places += [(frame, Owner.TX) for frame in self._between(queue.tx) + self._numbers(queue.in_kernel())]
            places += [(frame, Owner.TX) for frame in self._between(queue.completion) if owners[frame] == Owner.TX]
        places += [(frame, Owner.HELD) for frame in np.flatnonzero(owners == Owner.HELD).tolist()]
        assert len({frame for frame, _ in places}) == len(places), "no frame is in two places"
        assert len(places) + lost == self.table.frames, "no frame is lost"
        assert all(owners[frame] == owner for frame, owner in places)
        next_ = self.table.lines["next"]
        for number in range(len(self.queues)):
            receiver = self.receiver(number)
            assert receiver.filled == np.count_nonzero((owners == Owner.FILL) & (next_ == receiver.number))
        assert self.transmitter.outstanding == np.count_nonzero(owners == Owner.TX)

    def check_books(self) -> None:
        """Packets and bytes are conserved, and what is in flight is what the process and the kernel have."""
        owners, lines = self.table.owners(), self.table.lines
        open_frames = [f for n in range(len(self.queues)) for f in self.frames_of(self.receiver(n).head)]
        for pool in self.pools:
            books, drops = pool.books, self.drops(pool.books)
            assert books.received == books.sent + drops[:, 0].sum() + books.in_flight
            assert books.received_bytes == books.sent_bytes + drops[:, 1].sum() + books.in_flight_bytes
            ours = lines["home"] == pool.number
            away = np.count_nonzero(ours & ((owners == Owner.HELD) | (owners == Owner.TX)))
            assert books.in_flight_frames == away - sum(lines["home"][frame] == pool.number for frame in open_frames)

    def _between(self, ring: PlainRing) -> list[int]:
        return self._numbers(ring.shown())

    def _numbers(self, addresses) -> list[int]:
        """The frames of addresses; strays have none."""
        return [frame for frame in map(self.table.frame_of, addresses) if frame >= 0]

    def close(self) -> None:
        for queue in self.queues:
            queue.close()
        for pool in self.pools:
            pool.close()
        self.table.close()
        self.memory.close()
        self._records.close()
        os.close(self.no_socket)


@contextmanager
def path(**options) -> Iterator[PlainPath]:
    """A path whose FILL rings are full."""
    made = PlainPath(**options)
    try:
        for number in range(len(made.queues)):
            made.refill(number)
        yield made
    finally:
        made.close()
