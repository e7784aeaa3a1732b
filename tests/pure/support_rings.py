"""The four rings of a socket on plain memory, the kernel's side played by hand, and the classes that users have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xskit.abi.xdp import PageOffset, RingOffsets
from xskit.closing import Closing
from xskit.jit import compiled
from xskit.memory import RecordBlock, array_at, layout, record_view, size_of
from xskit.xsk import frames
from xskit.xsk.direct import CompletionRing, FillRing, RxRing, TxRing
from xskit.xsk.mapping import DESCRIPTOR, MappedRing
from xskit.xsk.path.books import Books
from xskit.xsk.path.lines import NIL
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.pool import give_packet, memory_at
from xskit.xsk.path.receive import Arrival, Receiver, receive, receiver_at, refill
from xskit.xsk.path.rings import Ring
from xskit.xsk.path.table import FramePool, PacketTable
from xskit.xsk.path.transmit import Transmitter, mark_refused, reap, transmitter_at
from xskit.xsk.turn import Inside, Turn
from xskit.xsk.umem import Umem

OFFSETS = RingOffsets(producer=0, consumer=64, flags=128, descriptors=192)
WRAP = 1 << 32
CONTINUES, METADATA = 1, 2


@compiled("int64(int64, int64, int64)")
def receive_batch(address, batch, limit):
    """As the batch level does."""
    return receive(receiver_at(address), batch, 0, limit)


@compiled("int64(int64)")
def refill_once(address):
    """As the batch level does."""
    refill(receiver_at(address))
    return 0


@compiled("int64(int64)")
def reap_once(address):
    """As the batch level does."""
    return reap(transmitter_at(address))


@compiled("int64(int64)")
def refuse_last(address):
    """As a sendto that ends with EBUSY."""
    mark_refused(transmitter_at(address))
    return 0


@compiled("int64(int64, int64)")
def release_packet(address, handle):
    """As the batch level does."""
    return give_packet(memory_at(address), handle)


class KernelEnd:
    """The other end of a ring, and our mapped one."""

    def __init__(self, page: PageOffset, size: int, before_wrap: int) -> None:
        self.memory, self.record = RecordBlock(OFFSETS.descriptors + 16 * size), RecordBlock(size_of(Ring))
        self.producer = np.frombuffer(self.memory.view, "u4", 1, OFFSETS.producer)
        self.consumer = np.frombuffer(self.memory.view, "u4", 1, OFFSETS.consumer)
        self.flags = np.frombuffer(self.memory.view, "u4", 1, OFFSETS.flags)
        kind: Any = DESCRIPTOR if page in (PageOffset.RX_RING, PageOffset.TX_RING) else np.uint64
        self.entries = np.frombuffer(self.memory.view, kind, size, OFFSETS.descriptors)
        self.producer[0] = self.consumer[0] = (WRAP - before_wrap) % WRAP
        self.size = size
        self.mapped = MappedRing(self.memory.view, page, OFFSETS, size, self.record.view)

    def put(self, entries: Sequence[Any]) -> None:
        """The kernel produces."""
        for entry in entries:
            self.entries[int(self.producer[0]) % self.size] = entry
            self.producer[0] = (int(self.producer[0]) + 1) % WRAP

    def take(self, count: int) -> list[Any]:
        """The kernel consumes."""
        taken = []
        for _ in range(min(count, self.mapped.pending())):
            taken.append(self.entries[int(self.consumer[0]) % self.size].item())
            self.consumer[0] = (int(self.consumer[0]) + 1) % WRAP
        return taken

    def addresses(self) -> list[int]:
        """Of what lies in it."""
        first, step = int(self.consumer[0]), self.entries.itemsize // 8
        words = self.entries.view(np.uint64)
        return [int(words[step * ((first + number) % self.size)]) for number in range(self.mapped.pending())]

    def image(self) -> bytes:
        """All that the kernel can see of it."""
        return bytes(self.memory.view)


class PlainSocket(Closing):
    """What a Socket has, without a kernel."""

    def __init__(
        self, frames: int = 16, size: int = 8, *, before_wrap: int = 3, most_frames: int = 4, **umem: Any
    ) -> None:
        self.umem = Umem(frames=frames, **{"frame_size": 2048, "populate": False, **umem})
        self.table = PacketTable(
            frames,
            base=self.umem.address,
            frame_bytes=self.umem.frame_size,
            unaligned=self.umem.unaligned,
            shared=True,
            populate=False,
        )
        self.pool = FramePool(self.table, 0, frames)
        rings = [KernelEnd(page, size, before_wrap) for page in sorted(PageOffset)]
        self.kernel_rx, self.kernel_tx, self.kernel_fill, self.kernel_completion = rings
        self._records = RecordBlock(size_of(Receiver)), RecordBlock(size_of(Transmitter))
        receiver, transmitter = (block.address for block in self._records)
        self.receiver = record_view(Receiver, receiver, self._records)
        self.transmitter = record_view(Transmitter, transmitter, self._records)
        self.receiver.memory = self.transmitter.memory = self.table.memory
        self.receiver.pool, self.receiver.head, self.receiver.target = self.pool.address, NIL, 4
        self.receiver.number, self.transmitter.number = 7, 8
        self.receiver.rx, self.receiver.fill = self.kernel_rx.mapped.record, self.kernel_fill.mapped.record
        self.transmitter.tx = self.kernel_tx.mapped.record
        self.transmitter.completion = self.kernel_completion.mapped.record
        self.turn = Turn("at work", "a plain socket")
        self.rx = RxRing(receiver, (), self.kernel_rx.mapped, self.umem, self.turn)
        self.fill = FillRing(receiver, (), self.kernel_fill.mapped, self.umem, self.turn)
        self.tx = TxRing(transmitter, (), self.kernel_tx.mapped, self.umem, self.turn, most_frames)
        self.completion = CompletionRing(transmitter, (), self.kernel_completion.mapped, self.umem, self.turn)
        self.addresses = receiver, transmitter
        self.batch = np.zeros(64, layout(Arrival))

    def close(self) -> None:
        self.umem.close()

    def inside(self) -> Inside:
        """A call is at work."""
        return Inside(self.turn, lambda: None)

    @property
    def frame_size(self) -> int:
        return self.umem.frame_size

    def take(self, count: int) -> list[int]:
        return frames.take(self.table.memory, self.pool.address, count).tolist()  # type: ignore[no-any-return]

    def give(self, addresses: Any) -> None:
        frames.give(self.table.memory, addresses)

    def put(self, ring: FillRing | TxRing, entries: Sequence[Any]) -> int | None:
        """Reserve, write and submit; as many as there are entries."""
        array = ring.reserve(len(entries))
        assert len(array) == len(entries)
        array[:] = entries
        return ring.submit(len(entries))

    def arrive(self, entries: Sequence[tuple[int, int, int]]) -> None:
        """The kernel takes what is in FILL, and packets come."""
        self.kernel_fill.take(self.kernel_fill.size)
        self.kernel_rx.put(entries)

    def complete(self, addresses: Sequence[int]) -> None:
        """The kernel takes what is in TX, and completes it."""
        self.kernel_tx.take(self.kernel_tx.size)
        self.kernel_completion.put(addresses)

    def receive(self, limit: int) -> list[tuple[int, int, int]]:
        """Packets as the batch level has them: (time, handle, length)."""
        count = receive_batch(self.addresses[0], self.batch.ctypes.data, limit)
        return self.batch[:count].tolist()  # type: ignore[no-any-return]

    def refill(self) -> None:
        refill_once(self.addresses[0])

    def release_packet(self, handle: int) -> int:
        return release_packet(self.table.memory, handle)

    def reap(self) -> int:
        return reap_once(self.addresses[1])

    def refuse_last(self) -> None:
        refuse_last(self.addresses[1])

    def owners(self) -> list[Owner]:
        return [Owner(owner) for owner in self.table.owners().tolist()]

    def held(self) -> int:
        return self.check()[Owner.HELD]

    def check(self) -> dict[Owner, int]:
        """As Umem.check."""
        ends = {
            self.kernel_fill: (Owner.FILL, Owner.FILL),
            self.kernel_rx: (Owner.RX, Owner.FILL),
            self.kernel_tx: (Owner.TX, Owner.TX),
            self.kernel_completion: (Owner.COMPLETION, Owner.TX),
        }
        return self.pool.check(
            (self.table.frame_of(address), *places) for end, places in ends.items() for address in end.addresses()
        )

    def state(self) -> list[Any]:
        """All that a refusal must not touch."""
        lines = self.table.lines.tobytes()
        books = array_at(self.pool.view.books, size_of(Books) // 8, np.int64).tolist()
        records = [bytes(block.view) for block in self._records]
        ends = [self.kernel_rx, self.kernel_tx, self.kernel_fill, self.kernel_completion]
        locals_ = [record_view(Ring, end.mapped.record).local for end in ends]
        return [lines, records, locals_, [end.image() for end in ends], self.pool.stack().tolist(), books]
