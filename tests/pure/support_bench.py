"""A worker of the benchmarks and its queues in ordinary memory; the test is the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.pure.support_kernel import PlainRing
from xskit.bench.loops.records import WINDOW, BenchQueue, BenchWorker, Check, Echo, Source
from xskit.bench.packet import PacketSpec
from xskit.engine.histogram import BYTES
from xskit.memory import Arena, Region, array_at, record_view, size_of
from xskit.xsk.path.rings import PACKET_CONTINUES

FRAME_BYTES = 2048
HEADROOM_BYTES = 256
FRAMES = 64
ENDLESS = 1 << 62


class Queue:
    """One socket; frames 0 to 31 lie in FILL, frames 32 to 63 are for sending."""

    def __init__(
        self, *, source: PacketSpec | None = None, check: PacketSpec | None = None, echo: bool = False
    ) -> None:
        self.memory = Region(FRAMES * FRAME_BYTES)
        self.rx, self.fill, self.tx, self.completion = (PlainRing(64, words) for words in (2, 1, 2, 1))
        self.tx.need_wakeup(True)
        arena = Arena()
        places = [arena.reserve(size_of(kind)) for kind in (BenchQueue, Source, Check, Echo)]
        slots, seen, template, histogram, last = (
            arena.reserve(size) for size in (4 * FRAMES, WINDOW // 8, 65536, BYTES, FRAMES)
        )
        self._arena = arena
        base = arena.open()
        self.address = base + places[0]
        self.view = record_view(BenchQueue, self.address)
        self.source = record_view(Source, base + places[1])
        self.check = record_view(Check, base + places[2])
        self.echo = record_view(Echo, base + places[3])
        queue = self.view
        queue.rx, queue.fill, queue.tx, queue.completion = (
            ring.record for ring in (self.rx, self.fill, self.tx, self.completion)
        )
        queue.fd, queue.base, queue.frame_bytes, queue.batch = -1, self.memory.address, FRAME_BYTES, 8
        queue.last = base + last
        if source:
            queue.source = base + places[1]
            self._lay_out(source, base + slots)
        if check:
            queue.check = base + places[2]
            self.check.template, self.check.length, self.check.seen = base + template, check.length, base + seen
            self.check.stamp_offset = check.stamp_offset if check.stamped else 0
            array_at(base + template, check.length, np.uint8)[:] = np.frombuffer(check.build(), np.uint8)
        if echo:
            queue.echo = base + places[3]
            self.echo.histogram, self.echo.patience_ns = base + histogram, 10**12
        self.free = [number * FRAME_BYTES for number in range(FRAMES // 2)]
        """Frames that the kernel has taken from FILL to receive into."""

    def _lay_out(self, packet: PacketSpec, slots: int) -> None:
        data = packet.build()
        frames = -(-len(data) // FRAME_BYTES)
        numbers = range(FRAMES // 2 // frames, FRAMES // frames)
        source = self.source
        source.slots, source.slot_count, source.slot_frames = slots, len(numbers), frames
        array_at(slots, len(numbers), np.uint32)[:] = numbers
        source.length, source.span, source.left, source.clock = len(data), FRAME_BYTES, ENDLESS, 1
        source.last_span = len(data) - (frames - 1) * FRAME_BYTES
        source.stamp_offset = packet.stamp_offset if packet.stamped else 0
        for slot in numbers:
            self.write(slot * frames * FRAME_BYTES, data)

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
