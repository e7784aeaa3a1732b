"""A direction between two ports, from Python: its records filled in, its pipeline and its frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from xskit.engine.pipeline import Pipeline, Reading
from xskit.engine.receive import fill_direction
from xskit.engine.records import BATCH, EGRESS_BYTES, Direction, Egress
from xskit.engine.stage import Capacity, Stage
from xskit.engine.transmit import MESSAGE_BYTES, TAG_BYTES
from xskit.memory import Arena, array_at, record_view, size_of
from xskit.xsk.path.lines import NIL
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.receive import ARRIVAL_BYTES, RECEIVER_BYTES, Receiver
from xskit.xsk.path.rings import Ring
from xskit.xsk.path.table import FramePool, PacketTable

NO_LIMIT_NS = (1 << 63) - 1
"""As a limit of lateness: no packet is ever late."""


@dataclass(frozen=True)
class ReceiveEnd:
    """RX and FILL of one queue: addresses of Ring records and the socket."""

    rx: int
    fill: int
    fd: int
    zero_copy: bool = False


@dataclass(frozen=True)
class TransmitEnd:
    """TX and COMPLETION of one queue: addresses of Ring records and the socket."""

    tx: int
    completion: int
    fd: int
    zero_copy: bool = False
    told_late: bool = False
    tagged_fd: int = -1
    """A packet socket that sends with the outer VLAN tag beside the packet, or -1."""


@dataclass(frozen=True)
class Frames:
    """The share of the packet memory that a direction owns."""

    first: int
    count: int
    fill_reserve: int
    """Frames kept back so that FILL never starves."""

    @property
    def capacity(self) -> int:
        """Frames that packets may occupy at once."""
        return self.count - self.fill_reserve


@dataclass(frozen=True)
class EgressLimits:
    """What the egress port can send."""

    max_length: int
    max_frames: int = 18
    """Frames of one packet on TX in copy mode: MAX_SKB_FRAGS + 1; one more is an invalid descriptor."""


class Faults(NamedTuple):
    """Frames of a direction that were not where they should have been: always 0, or xskit or a driver has an error."""

    misplaced: int
    """Moves that did not start where the frame was."""
    stray_received: int
    """Entries in RX that could not be taken (xsk/path/receive.py, strays)."""
    stray_completed: int
    """Entries in COMPLETION that named no frame in TX."""


NO_FAULTS = Faults(0, 0, 0)


class LiveDirection:
    """One direction of a link as a worker runs it."""

    def __init__(
        self,
        name: str,
        stages: Sequence[Stage],
        *,
        receive: Sequence[ReceiveEnd],
        transmit: Sequence[TransmitEnd],
        table: PacketTable,
        frames: Frames,
        limits: EgressLimits,
        horizon_ns: int,
        seed: int,
        stamped: bool = True,
        finish_checksums: bool = False,
        wire_length: int | None = None,
        owd_base_ns: int = 0,
        late_limit_ns: int = NO_LIMIT_NS,
    ) -> None:
        self.name = name
        self.frames = frames
        self.stages = list(stages)
        self.pool = FramePool(table, frames.first, frames.count)
        self.pipeline = Pipeline(
            stages,
            pool=self.pool,
            capacity=Capacity(frames.count, horizon_ns, frames.capacity),
            seed=seed,
            name=name,
        )
        self._arena = Arena()
        record = self._arena.reserve(size_of(Direction))
        ingress = self._arena.reserve(RECEIVER_BYTES * len(receive))
        egress = self._arena.reserve(EGRESS_BYTES * len(transmit))
        self.records_bytes = self._arena.size
        batch = self._arena.reserve(ARRIVAL_BYTES * BATCH)
        message = self._arena.reserve(MESSAGE_BYTES)
        self.records = self._arena.open()
        self.address = self.records + record
        self._ingress, self._egress = ingress, egress
        self._queues = len(transmit)

        direction = self.view = record_view(Direction, self.address)
        direction.ingress, direction.ingress_count = self.records + ingress, len(receive)
        direction.exits, direction.exit_count = self.pipeline.block + self.pipeline.exits_offset, 1
        leaving = self.pipeline.exits[0]
        leaving.egress, leaving.egress_count = self.records + egress, len(transmit)
        direction.run, direction.block = self.pipeline.run, self.pipeline.block
        direction.counters = self.pipeline.block + self.pipeline.counters_offset
        direction.lateness, direction.owd = self.pipeline.lateness, self.pipeline.owd
        direction.table, direction.pool = table.address, self.pool.address
        direction.memory, direction.finish_checksums = table.memory, int(finish_checksums)
        direction.capacity_frames = frames.capacity
        direction.max_length, direction.max_frames = limits.max_length, limits.max_frames
        direction.tagged_length = limits.max_length + (TAG_BYTES if transmit[0].tagged_fd >= 0 else 0)
        direction.wire_length = limits.max_length if wire_length is None else wire_length
        direction.rx_batch = self.records + batch
        direction.owd_base_ns = direction.coming_base_ns = owd_base_ns
        direction.late_limit_ns = direction.earlier_limit_ns = direction.coming_limit_ns = late_limit_ns
        for number, end in enumerate(receive):
            queue = record_view(Receiver, self.records + ingress + number * RECEIVER_BYTES)
            queue.memory, queue.pool, queue.target = table.memory, self.pool.address, record_view(Ring, end.fill).size
            queue.rx, queue.fill, queue.fd, queue.obeys = end.rx, end.fill, end.fd, int(end.zero_copy)
            queue.stamped = int(stamped)
            queue.head = queue.tail = NIL
        for number, out in enumerate(transmit):
            sender = record_view(Egress, self.records + egress + number * EGRESS_BYTES)
            sender.memory = table.memory
            sender.tx, sender.completion, sender.fd = out.tx, out.completion, out.fd
            sender.zero_copy, sender.told_late = int(out.zero_copy), int(out.told_late)
            sender.tagged_fd, sender.message = out.tagged_fd, self.records + message

        self.receive_fds = [end.fd for end in receive]

    def fill_rings(self) -> None:
        """Put frames into FILL, before the worker starts and traffic comes."""
        fill_direction(self.address)

    def reading(self, block: np.ndarray[Any, Any] | None = None) -> Reading:
        """The pipeline's numbers, live or from a snapshot."""
        return self.pipeline.reading(block)

    def outstanding(self, records: np.ndarray[Any, Any] | None = None) -> int:
        """Packets in TX or waiting for completion, live or from a snapshot of the records."""
        base = self.records if records is None else int(records.ctypes.data)
        return sum(
            record_view(Egress, base + self._egress + number * EGRESS_BYTES, records).outstanding_packets
            for number in range(self._queues)
        )

    def stuck_ns(self, now_ns: int, records: np.ndarray[Any, Any] | None = None) -> int:
        """How long the kernel has completed nothing though it should, live or from a snapshot; 0 when down."""
        base = self.records if records is None else int(records.ctypes.data)
        queues = [record_view(Egress, base + self._egress + n * EGRESS_BYTES, records) for n in range(self._queues)]
        since = [q.progress_ns for q in queues if q.outstanding and q.progress_ns and not q.down]
        return max([0, *(now_ns - progress_ns for progress_ns in since)])

    def faults(self) -> Faults:
        """What was not where it should have been, until now."""
        received = sum(self.ingress(number).strays for number in range(self.view.ingress_count))
        completed = sum(self.egress(number).strays for number in range(self._queues))
        return Faults(self.pool.view.violations, received, completed)

    def ingress(self, number: int = 0) -> Receiver:
        """The live record of an ingress queue."""
        return record_view(Receiver, self.records + self._ingress + number * RECEIVER_BYTES)

    def egress(self, number: int = 0) -> Egress:
        """The live record of an egress queue."""
        return record_view(Egress, self.records + self._egress + number * EGRESS_BYTES)

    def achieved(self, records: np.ndarray[Any, Any] | None = None) -> Direction:
        """The direction's record, live or from a snapshot: since when, and from what base, things are measured."""
        base = self.records if records is None else int(records.ctypes.data)
        return record_view(Direction, base, records)

    def census(self) -> dict[str, list[int]]:
        """Every frame of this direction by where it is, found by walking; only while the worker stands still.

        Keys: free, fill, rx, held, tx, completion. What the kernel has taken from FILL or TX and not given back yet
        cannot be seen and is missing from all lists. Held is what the packet table says.
        """
        places: dict[str, list[int]] = {"free": [], "fill": [], "rx": [], "held": [], "tx": [], "completion": []}
        places["free"] = self.pool.stack().tolist()
        owners = self.pool.table.owners()[self.frames.first : self.frames.first + self.frames.count]
        places["held"] = (np.flatnonzero(owners == Owner.HELD) + self.frames.first).tolist()
        frame_of = self.pool.table.frame_of
        for number in range(self.view.ingress_count):
            queue = self.ingress(number)
            places["fill"] += map(frame_of, _between(queue.fill, 1))
            places["rx"] += map(frame_of, _between(queue.rx, 2))
        for number in range(self._queues):
            leaving = self.egress(number)
            places["tx"] += map(frame_of, _between(leaving.tx, 2))
            places["completion"] += map(frame_of, _between(leaving.completion, 1))
        return places

    def close(self) -> None:
        """Give the memory back; twice is fine. The sockets are somebody else's."""
        self.pipeline.close()
        self.pool.close()
        self._arena.close()


def _between(ring_address: int, words: int) -> list[int]:
    """The addresses in the entries between a ring's two shared indices."""
    ring = record_view(Ring, ring_address)
    first = int(array_at(ring.consumer, 1, np.uint32)[0])
    count = (int(array_at(ring.producer, 1, np.uint32)[0]) - first) & 0xFFFF_FFFF
    entries = array_at(ring.entries, ring.size * words, np.int64)
    return [int(entries[((first + n) & ring.mask) * words]) for n in range(count)]
