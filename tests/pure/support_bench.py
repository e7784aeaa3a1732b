"""A worker of the benchmarks and its queues in ordinary memory; the test is the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.pure.support_kernel import PlainRing
from xskit.bench.loops.modes import fill
from xskit.bench.loops.records import WINDOW, BenchQueue, BenchWorker, Check, Echo, Source
from xskit.bench.packet import PacketSpec
from xskit.engine.histogram import BYTES
from xskit.memory import Arena, Region, array_at, record_view, size_of
from xskit.xsk.path.lines import NIL, SET, PacketLine
from xskit.xsk.path.receive import ARRIVAL_BYTES, Receiver
from xskit.xsk.path.rings import PACKET_CONTINUES
from xskit.xsk.path.sizes import LINE_SHIFT
from xskit.xsk.path.table import FramePool, PacketTable
from xskit.xsk.path.transmit import Transmitter

FRAME_BYTES = 2048
HEADROOM_BYTES = 256
FRAMES = 64
BATCH = 8
ENDLESS = 1 << 62


class Queue:
    """One socket; 32 frames, from number `first` on, lie in FILL; frames 32 to 63 are for sending."""

    def __init__(
        self,
        *,
        source: PacketSpec | None = None,
        check: PacketSpec | None = None,
        echo: bool = False,
        memory: Region | None = None,
        table: PacketTable | None = None,
        first: int = 0,
    ) -> None:
        self.memory = memory or Region(FRAMES * FRAME_BYTES)
        self.table = table or PacketTable(FRAMES, base=self.memory.address, frame_bytes=FRAME_BYTES, pools=2)
        self.pool = FramePool(self.table, first, FRAMES // 2)
        self.rx, self.fill, self.tx, self.completion = (PlainRing(64, words) for words in (2, 1, 2, 1))
        self.tx.need_wakeup(True)
        arena = Arena()
        kinds = (BenchQueue, Receiver, Transmitter, Source, Check, Echo)
        places = [arena.reserve(size_of(kind)) for kind in kinds]
        seen, template, histogram, arrivals = (
            arena.reserve(size) for size in (WINDOW // 8, 65536, BYTES, ARRIVAL_BYTES * BATCH)
        )
        self._arena = arena
        base = arena.open()
        self.address = base + places[0]
        self.view, self.receiver, self.transmitter, self.source, self.check, self.echo = (
            record_view(kind, base + place) for kind, place in zip(kinds, places, strict=True)
        )
        queue, receiver, transmitter = self.view, self.receiver, self.transmitter
        queue.receiver, queue.transmitter, queue.batch = base + places[1], base + places[2], BATCH
        queue.arrivals = base + arrivals
        receiver.memory = transmitter.memory = self.table.memory
        receiver.rx, receiver.fill, receiver.pool = self.rx.record, self.fill.record, self.pool.address
        receiver.target, receiver.head = FRAMES // 2, NIL
        transmitter.tx, transmitter.completion = self.tx.record, self.completion.record
        receiver.fd = transmitter.fd = -1
        fill(queue.receiver)
        if source:
            self.ready = FramePool(self.table, FRAMES // 2, FRAMES // 2)
            queue.source = base + places[3]
            self._lay_out(source)
        if check:
            queue.check = base + places[4]
            self.check.template, self.check.length, self.check.seen = base + template, check.length, base + seen
            self.check.stamp_offset = check.stamp_offset if check.stamped else 0
            array_at(base + template, check.length, np.uint8)[:] = np.frombuffer(check.build(), np.uint8)
        if echo:
            queue.echo = base + places[5]
            self.echo.histogram, self.echo.patience_ns = base + histogram, 10**12
        self.free: list[int] = []
        """Frames that the kernel has taken from FILL to receive into."""
        self.refill()

    def _lay_out(self, packet: PacketSpec) -> None:
        data = packet.build()
        frames = -(-len(data) // FRAME_BYTES)
        source = self.source
        source.pool, source.frames, source.length = self.ready.address, frames, len(data)
        source.left, source.clock = ENDLESS, 1
        source.stamp_offset = packet.stamp_offset if packet.stamped else 0
        heads = range(FRAMES // 2, FRAMES - frames + 1, frames)
        for head in heads:
            self.write(head * FRAME_BYTES, data)
            for number in range(frames):
                frame, last = head + number, number == frames - 1
                line = record_view(PacketLine, self.table.address + (frame << LINE_SHIFT))
                line.address = self.memory.address + frame * FRAME_BYTES
                line.length, line.frames, line.state, line.next = len(data), frames, SET, head
                line.span = len(data) - number * FRAME_BYTES if last else FRAME_BYTES
                line.fragment = NIL if last else frame + 1
        self.ready.view.count = len(heads)
        array_at(self.ready.view.frames, len(heads), np.uint32)[:] = heads

    def write(self, offset: int, data: bytes) -> None:
        self.memory.array(len(data), np.uint8, offset)[:] = np.frombuffer(data, np.uint8)

    def read(self, offset: int, length: int) -> bytes:
        return self.memory.array(length, np.uint8, offset).tobytes()

    def receive(self, fragments: Sequence[bytes]) -> None:
        """A packet comes, of one or several fragments."""
        for number, fragment in enumerate(fragments):
            if not self.free:
                self.refill()
            address = self.free.pop(0) + HEADROOM_BYTES
            self.write(address, fragment)
            options = PACKET_CONTINUES if number < len(fragments) - 1 else 0
            self.rx.put(address, len(fragment) | options << 32)

    def refill(self) -> list[int]:
        """Take all from FILL; the addresses of the frames, as they were written."""
        taken = [self.fill.take()[0] for _ in range(self.fill.filled)]
        self.fill.publish_taken()
        self.free += [address & ~(FRAME_BYTES - 1) for address in taken]
        return taken

    def send(self, *, complete: bool = True) -> list[bytes]:
        """Take all from TX; the packets. Their frames are completed."""
        packets, parts = [], b""
        addresses = []
        for _ in range(self.tx.filled):
            address, tail = self.tx.take()
            addresses.append(address)
            parts += self.read(address, tail & 0xFFFF_FFFF)
            if not tail >> 32:
                packets.append(parts)
                parts = b""
        self.tx.publish_taken()
        if complete:
            self.complete(addresses)
        return packets

    def complete(self, addresses: Sequence[int]) -> None:
        for address in addresses:
            self.completion.put(address)

    def close(self) -> None:
        self.pool.close()
        self.table.close()
        self.memory.close()
        for ring in (self.rx, self.fill, self.tx, self.completion):
            ring.close()
        self._arena.close()


class Worker:
    """The record of a worker with these queues."""

    def __init__(self, *queues: Queue) -> None:
        self._arena = Arena()
        record, table, scratch = (self._arena.reserve(size) for size in (size_of(BenchWorker), 8 * len(queues), 16))
        base = self._arena.open()
        self.address = base + record
        self.view = record_view(BenchWorker, self.address)
        self.view.limit = ENDLESS
        self.view.queues, self.view.queue_count, self.view.scratch = base + table, len(queues), base + scratch
        array_at(base + table, len(queues), np.int64)[:] = [queue.address for queue in queues]

    def close(self) -> None:
        self._arena.close()
