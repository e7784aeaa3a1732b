"""AF_XDP queues in ordinary memory, with the test in the kernel's place on the other side of all four rings."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from xskit.engine.live import EgressLimits, Frames, LiveDirection, ReceiveEnd, TransmitEnd
from xskit.engine.packets import Counters, DropCause
from xskit.engine.stage import Stage
from xskit.engine.thread import WorkerThread
from xskit.memory import Arena, Region, array_at, record_view, size_of
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.delay import Delay
from xskit.stages.loss import Loss
from xskit.xsk.path.lines import NIL, PacketLine
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import OFFSET_SHIFT
from xskit.xsk.path.receive import RECEIVER_BYTES, Receiver
from xskit.xsk.path.rings import NEED_WAKEUP, PACKET_CONTINUES, Ring
from xskit.xsk.path.sizes import LINE_SHIFT
from xskit.xsk.path.table import PacketTable

FRAME_SHIFT = 11
FRAME_BYTES = 1 << FRAME_SHIFT
HEADROOM_BYTES = 256
FRAME_CAPACITY = FRAME_BYTES - HEADROOM_BYTES
START = 0xFFFF_FFF0
"""Where all indices begin: soon they wrap."""


class PlainRing:
    """One ring; `record` is the address of our end, the methods are the kernel's end."""

    def __init__(self, size: int, words: int) -> None:
        self._arena = Arena()
        record, producer, consumer, flags, entries = (
            self._arena.reserve(n) for n in (size_of(Ring), 4, 4, 4, size * words * 8)
        )
        base = self._arena.open()
        self.size, self.record = size, base + record
        self._producer, self._consumer, self._flags = (
            array_at(base + o, 1, np.uint32) for o in (producer, consumer, flags)
        )
        self._entries = array_at(base + entries, size * words, np.int64).reshape(size, words)
        view = record_view(Ring, self.record)
        view.producer, view.consumer, view.flags = base + producer, base + consumer, base + flags
        view.entries, view.size, view.mask = base + entries, size, size - 1
        view.local = view.remote = START
        self._producer[0] = self._consumer[0] = START
        self.position = START

    @property
    def filled(self) -> int:
        """Entries between what the kernel has come to and what we have published (FILL, TX)."""
        return (int(self._producer[0]) - self.position) & 0xFFFF_FFFF

    def take(self) -> list[int]:
        """The next entry; `publish_taken` says so to the other side."""
        entry = self._entries[self.position & (self.size - 1)].tolist()
        self.position = (self.position + 1) & 0xFFFF_FFFF
        return entry

    def publish_taken(self) -> None:
        self._consumer[0] = self.position

    @property
    def room(self) -> int:
        """Entries that the kernel may still produce (RX, COMPLETION)."""
        return self.size - ((self.position - int(self._consumer[0])) & 0xFFFF_FFFF)

    def put(self, *entry: int) -> None:
        """Produce an entry and publish it."""
        assert self.room > 0
        self._entries[self.position & (self.size - 1)] = entry
        self.position = (self.position + 1) & 0xFFFF_FFFF
        self.publish_produced()

    def publish_produced(self) -> None:
        self._producer[0] = self.position

    def shown(self) -> list[int]:
        """The addresses in the entries between the two shared indices."""
        first, count = int(self._consumer[0]), (int(self._producer[0]) - int(self._consumer[0])) & 0xFFFF_FFFF
        return [int(self._entries[(first + n) & (self.size - 1)][0]) for n in range(count)]

    def need_wakeup(self, needed: bool) -> None:
        self._flags[0] = NEED_WAKEUP if needed else 0

    def close(self) -> None:
        self._arena.close()


class PlainQueue:
    """One queue of one port.

    Args:
        memory: the packet memory.
        entries: of each ring.
        batch: frames that the kernel takes from FILL at once, never fewer; it says so when it has used them all up.
        frame_bytes: of each frame.
        unaligned: RX has the offset in the frame in the top bits of its addresses.
    """

    def __init__(
        self,
        memory: Region,
        entries: int,
        batch: int = 1,
        *,
        frame_bytes: int = FRAME_BYTES,
        unaligned: bool = False,
    ) -> None:
        self._bytes = memory.array(memory.size, np.uint8)
        self._batch = batch
        self._capacity = frame_bytes - HEADROOM_BYTES
        self._aligned = 1 if unaligned else frame_bytes  # FILL: xp_check_aligned (net/xdp/xsk_buff_pool.c)
        self._headroom = HEADROOM_BYTES << OFFSET_SHIFT if unaligned else HEADROOM_BYTES
        self.fill, self.completion = PlainRing(entries, 1), PlainRing(entries, 1)
        self.rx, self.tx = PlainRing(entries, 2), PlainRing(entries, 2)
        self.spare: deque[int] = deque()
        self.unsent: list[tuple[int, int, int]] = []
        self.sending: list[int] = []
        self.starved = 0

    def receive(self, data: bytes, *, stamp_ns: int = 0, spans: Sequence[int] = ()) -> bool:
        """A packet comes in, in frames of these spans, the rest as full as they get; False: no frame, it is lost."""
        pieces, rest = [], data
        for span in spans:
            pieces.append(rest[:span])
            rest = rest[span:]
        pieces += [rest[n : n + self._capacity] for n in range(0, len(rest), self._capacity)]
        if self.rx.room < len(pieces):
            return False
        frames = self._free_frames(len(pieces))
        if not frames:
            self.starved += 1
            return False
        for number, (frame, piece) in enumerate(zip(frames, pieces, strict=True)):
            start = frame + HEADROOM_BYTES
            self._bytes[start - 8 : start].view(np.int64)[0] = stamp_ns
            self._bytes[start : start + len(piece)] = np.frombuffer(piece, np.uint8)
            last = number == len(pieces) - 1
            self.rx.put(frame + self._headroom, len(piece) | (0 if last else PACKET_CONTINUES) << 32)
        return True

    def take_frame(self) -> int:
        """The address of a frame from FILL, which the kernel has from now on."""
        (frame,) = self._free_frames(1)
        return frame

    def _free_frames(self, count: int) -> list[int]:
        """So many frames from FILL; none when there are fewer."""
        if self._batch == 1:
            if self.fill.filled < count:
                return []
            frames = [self.fill.take()[0] for _ in range(count)]
            self.fill.publish_taken()
            return [address - address % self._aligned for address in frames]
        assert count == 1, "in batches, packets of one frame only"
        if not self.spare:
            self.fill.publish_taken()
            if self.fill.filled >= self._batch:
                self.spare.extend(self.fill.take()[0] for _ in range(self._batch))
        return [self.spare.popleft()] if self.spare else []

    def send(self, most: int = 1 << 30) -> list[bytes]:
        """Take up to so many descriptors from TX; returns the packets that are whole by now."""
        packets = []
        for _ in range(min(most, self.tx.filled)):
            address, tail = self.tx.take()
            self.unsent.append((address, tail & 0xFFFF_FFFF, tail >> 32))
            if not tail >> 32 & PACKET_CONTINUES:
                packets.append(b"".join(self._bytes[a : a + n].tobytes() for a, n, _ in self.unsent))
                self.sending += [address for address, _, _ in self.unsent]
                self.unsent.clear()
        self.tx.publish_taken()
        return packets

    def complete(self, most: int = 1 << 30) -> None:
        """Give up to so many sent frames back."""
        for _ in range(min(most, len(self.sending), self.completion.room)):
            self.completion.put(self.sending.pop(0))

    def in_kernel(self) -> list[int]:
        """Addresses of frames that the kernel has and that no ring shows."""
        return [*self.sending, *(address for address, _, _ in self.unsent)]

    def close(self) -> None:
        for ring in (self.fill, self.rx, self.tx, self.completion):
            ring.close()


class PlainEngine:
    """One direction between two ports in ordinary memory, and a worker that runs as many rounds as it is told."""

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        frames: int = 64,
        fill_reserve: int = 16,
        entries: int = 32,
        queues: int = 1,
        batch: int = 1,
        limits: EgressLimits | None = None,
        spin: bool = True,
        finish_checksums: bool = False,
        wire_length: int | None = None,
        tagged_fd: int = -1,
        zero_copy: bool = False,
        first: int = 0,
    ) -> None:
        self.memory = Region((first + frames) << FRAME_SHIFT)
        self.table = PacketTable(first + frames, base=self.memory.address, frame_bytes=FRAME_BYTES)
        self.ingress = [PlainQueue(self.memory, entries, batch) for _ in range(queues)]
        self.egress = [PlainQueue(self.memory, entries) for _ in range(queues)]
        self.no_socket = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.direction = LiveDirection(
            "plain",
            stages,
            receive=[ReceiveEnd(q.rx.record, q.fill.record, self.no_socket, zero_copy) for q in self.ingress],
            transmit=[
                TransmitEnd(q.tx.record, q.completion.record, self.no_socket, zero_copy, tagged_fd=tagged_fd)
                for q in self.egress
            ],
            table=self.table,
            frames=Frames(first, frames, fill_reserve),
            limits=limits or EgressLimits(max_length=9014),
            horizon_ns=1_000_000,
            seed=1,
            finish_checksums=finish_checksums,
            wire_length=wire_length,
        )
        self.worker = WorkerThread([self.direction], spin=spin)
        self.direction.fill_rings()
        self._visible = batch == 1  # what is taken in batches stays in FILL for everybody else to see

    def run(self, rounds: int = 1) -> None:
        assert self.worker.run_rounds(rounds) == rounds
        self.check()

    def through(self, rounds: int = 3) -> list[bytes]:
        """Run, send and complete everything there is; returns what came out of all queues."""
        found = []
        for _ in range(rounds):
            self.run()
            found += [packet for queue in self.egress for packet in queue.send()]
            for queue in self.egress:
                queue.complete()
        self.run()
        return found

    @property
    def counters(self) -> Counters:
        return self.direction.reading().counters

    def dropped(self, cause: DropCause) -> int:
        return self.direction.reading().dropped()[cause][0]

    def line(self, frame: int) -> PacketLine:
        return record_view(PacketLine, self.table.address + (frame << LINE_SHIFT))

    def check(self) -> None:
        """Conservation, and every frame in exactly one place."""
        reading = self.direction.reading()
        counters, drops = reading.counters, reading.dropped()
        assert counters.received == counters.sent + sum(packets for packets, _ in drops) + counters.in_flight
        assert counters.received_bytes == counters.sent_bytes + sum(n for _, n in drops) + counters.in_flight_bytes
        assert counters.in_flight == reading.held() + self.direction.outstanding()
        assert self.direction.pool.view.violations == 0
        if self._visible:
            self._take_census()

    def _take_census(self) -> None:
        places = self.direction.census()
        kernel = [a >> FRAME_SHIFT for queue in (*self.ingress, *self.egress) for a in queue.in_kernel()]
        everywhere = sorted(frame for frames in places.values() for frame in frames) + kernel
        first, count = self.direction.frames.first, self.direction.frames.count
        assert sorted(everywhere) == list(range(first, first + count))
        counters, owners = self.counters, self.table.owners()
        for place, owner in _OWNERS.items():
            assert {int(owners[frame]) for frame in places[place]} <= {owner}, place
        open_frames = sum(self._open_frames(number) for number in range(len(self.ingress)))
        outside = len(places["held"]) - open_frames + len(places["tx"]) + len(places["completion"])
        assert counters.in_flight_frames == outside + sum(
            len(queue.sending) + len(queue.unsent) for queue in self.egress
        )

    def _open_frames(self, number: int) -> int:
        """Frames of a packet whose last frame has not come yet."""
        head = record_view(Receiver, self.direction.view.ingress + number * RECEIVER_BYTES).head
        return 0 if head == NIL else self.line(head).frames

    def close(self) -> None:
        self.worker.close()
        self.direction.close()
        for queue in (*self.ingress, *self.egress):
            queue.close()
        self.table.close()
        self.memory.close()
        os.close(self.no_socket)


_OWNERS = {
    "free": Owner.FREE,
    "fill": Owner.FILL,
    "rx": Owner.FILL,
    "held": Owner.HELD,
    "tx": Owner.TX,
    "completion": Owner.TX,
}


def stages(owd_ns: int = 0) -> list[Stage]:
    """The default chain, impairing nothing."""
    return [Loss(), Bottleneck(), Delay(owd_ns)]


@contextmanager
def engine(chain: Sequence[Stage] | None = None, **options) -> Iterator[PlainEngine]:
    made = PlainEngine(stages() if chain is None else chain, **options)
    try:
        yield made
    finally:
        made.close()
