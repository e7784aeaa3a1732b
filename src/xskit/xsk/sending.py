"""The sending side of a socket: packets go into TX, frames come home by COMPLETION."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from xskit.arguments import literal
from xskit.errors import UsageError
from xskit.jit import direct
from xskit.memory import record_view, size_of
from xskit.xsk.bound import BoundSocket
from xskit.xsk.errors import Call, explain
from xskit.xsk.opening import MOST_FRAMES
from xskit.xsk.packet import ROW, Packet, Sendable, gone
from xskit.xsk.pages import Pages
from xskit.xsk.path.ending import end_sending, hand_over_sent
from xskit.xsk.path.entry import (
    GONE,
    ROW_BYTES,
    Outbox,
    draft_rows,
    drive,
    kick_once,
    prepare,
    submit_rows,
)
from xskit.xsk.path.lines import NIL
from xskit.xsk.path.transmit import TRANSMITTER_BYTES, Transmitter
from xskit.xsk.scratch import borrow, give_back
from xskit.xsk.umem import Umem

__all__ = ["Sending"]

CHUNK = 64
"""Packets of bytes that are written and handed over at once."""

Bytes = bytes | memoryview
Drawn = tuple[Packet | Bytes, int, int]
"""A packet of this packet memory, or the bytes of another one; its length, and how many frames it takes."""


class Sending:
    """TX and COMPLETION of one socket; one call at a time (`Turn`).

    Args:
        bound: the socket that has the TX ring.
        umem: the packet memory.
        number: of the socket, among those of this packet memory.

    Attributes:
        address, transmitter_address: of the Outbox and the Transmitter record.
        most_frames: that a packet may have.
    """

    def __init__(self, bound: BoundSocket, umem: Umem, number: int) -> None:
        self._bound, self._umem = bound, umem
        self.most_frames = MOST_FRAMES if bound.multi_buffer else 1
        self._hold = umem.hold()
        self._stopped = False
        outbox_bytes = -(-size_of(Outbox) // 64) * 64
        drafts = outbox_bytes + -(-TRANSMITTER_BYTES // 64) * 64
        self._records = Pages(drafts + 8 * CHUNK, populate=True, huge=False, hugetlb=False)
        self.address = self._records.address
        self.transmitter_address = self.address + outbox_bytes
        self.transmitter = sender = record_view(Transmitter, self.address + outbox_bytes, self._records.view)
        outbox = record_view(Outbox, self.address, self._records.view)
        assert bound.tx_ring is not None
        assert bound.primary.completion_ring is not None
        sender.memory, sender.tx, sender.completion = umem.table.memory, bound.tx_ring, bound.primary.completion_ring
        sender.fd, sender.number, sender.always = bound.fd, number, int(not bound.need_wakeup)
        sender.zero_copy, sender.told_late = int(bound.zero_copy), int(bound.told_late)
        outbox.transmitter, outbox.pool = self.address + outbox_bytes, umem.pool.address
        outbox.offset, outbox.capacity = umem.packet_offset, umem.capacity
        outbox.drafts, outbox.room = self.address + drafts, CHUNK
        self._submit_rows = direct(submit_rows)
        outbox.open = 1

    def hold(self) -> tuple[memoryview, ...]:
        """Views that keep mapped what compiled code works on."""
        return self._records.view, *self._hold

    @property
    def refused(self) -> int:
        """Packets that the kernel refused to send."""
        return int(self.transmitter.refused)

    @property
    def outstanding(self) -> int:
        """Frames that the kernel has not completed."""
        return int(self.transmitter.outstanding)

    def send(self, packets: Iterable[Sendable]) -> int:
        """See Socket.send."""
        left, accepted = iter(packets), 0
        try:
            while not self._stopped and (room := self._room()):
                chunk, trouble = self._draw(left, room)
                if not chunk and trouble is None:
                    break
                while chunk and (taken := self._send_chunk(chunk)):
                    accepted += taken
                    del chunk[:taken]
                    if chunk:
                        self._room()
                if chunk:
                    break
                if trouble is not None:
                    raise trouble
        finally:
            prepare(self.address)  # drafts that found no place go home
        self._raise_failure()
        return accepted

    def send_rows(self, rows: bytes | bytearray) -> int:
        """PacketRow records; see Socket.send_batch."""
        return self._submit(rows)

    def drive(self) -> int:
        """Go on with what is being sent; returns the frames that the kernel still has.

        Raises:
            PortError: the interface is down or gone.
        """
        left = drive(self.address)
        self._raise_failure()
        return max(left, 0)

    def kick(self) -> None:
        """One sendto, where the kernel asks for it.

        Raises:
            PortError: the interface is down or gone.
        """
        kick_once(self.address)
        self._raise_failure()

    def _room(self) -> int:
        """Go on with what is being sent; returns the entries that are free in TX then."""
        room = prepare(self.address)
        self._raise_failure()
        return max(room, 0)

    def _draw(self, packets: Iterator[Sendable], room: int) -> tuple[list[Drawn], Exception | None]:
        """The next packets, CHUNK at most, up to the first that may find no room; and what is wrong with the one behind
        them."""
        chunk: list[Drawn] = []
        free = self._umem.pool.free
        try:
            for packet in islice(packets, CHUNK):
                drawn = self._look(packet)
                chunk.append(drawn)
                room -= drawn[2]
                free -= 0 if isinstance(drawn[0], Packet) else drawn[2]
                if room < 0 or free < 0 or self._stopped:
                    break
        except Exception as error:
            return chunk, error
        return chunk, None

    def _look(self, packet: Sendable) -> Drawn:
        """What is to be sent. Raises UsageError where it cannot be sent at all."""
        what: Packet | Bytes
        if isinstance(packet, Packet) and packet.umem is self._umem:
            packet.require()
            packet.let_go()
            what, length, frames = packet, packet.length, packet.frames
        else:
            what = bytes(packet) if isinstance(packet, (bytes, Packet)) else _flat(packet)
            length = len(what)
            frames = -(-length // self._umem.capacity)
        if frames == 0:
            raise UsageError("a packet of no bytes cannot be sent")
        if frames > 1 and self.most_frames == 1:
            raise UsageError(
                f"a packet of {length} bytes needs {frames} frames, and this socket has no multi-buffer",
                remedy="multi_buffer=True on Linux 6.6 or later",
            )
        if frames > self.most_frames:
            raise UsageError(
                f"a packet of {length} bytes needs {frames} frames, and the kernel sends at most {MOST_FRAMES} at once"
            )
        return what, length, frames

    def _send_chunk(self, chunk: list[Drawn]) -> int:
        """At most CHUNK packets; returns how many were accepted."""
        rows = np.zeros(len(chunk), ROW)
        rows["length"], rows["handle"] = [length for _, length, _ in chunk], NIL
        for place, (what, _, _) in enumerate(chunk):
            if isinstance(what, Packet):
                rows[place] = what.row
        drafted = rows[: max(0, draft_rows(self.address, rows.ctypes.data, len(rows)))]
        for (address, _, length, frames, _, _), (what, _, _) in zip(drafted.tolist(), chunk, strict=False):
            if not isinstance(what, Packet):
                self._write(address, length, frames, what)
        return self._submit(drafted.tobytes(), "this packet")

    def _write(self, address: int, length: int, frames: int, data: Bytes) -> None:
        """A packet's bytes go into the frames of its draft, which are not always neighbours."""
        if frames == 1:
            self._umem.view(address, length)[:] = data
            return
        at = 0
        for offset, span in self._umem.parts(address // self._umem.frame_size):
            self._umem.view(offset, span)[:] = data[at : at + span]
            at += span

    def _submit(self, rows: bytes | bytearray, what: str = "") -> int:
        """Hand packets over; returns how many. `what` has gone, if one has: by default its number says which."""
        space = borrow(len(rows))
        space.view[: len(rows)] = rows
        count = self._submit_rows(self.address, space.address, len(rows) // ROW_BYTES, self.most_frames)
        give_back(space)
        self._raise_failure()
        if count <= GONE:
            raise gone(self._umem, what or f"packet {GONE - count} of the batch")
        return max(count, 0)

    def _raise_failure(self) -> None:
        code = self.transmitter.down or self.transmitter.failure
        if code:
            self.transmitter.failure = 0
            raise explain(Call.SEND, errno.ENXIO if code == errno.ENODEV else code, interface=self._bound.interface)

    def stop(self) -> None:
        """The socket is about to be closed: a call that is inside takes no more packets."""
        self._stopped = True

    def hand_over(self, other: Sending) -> None:
        """What the kernel has to send counts for another socket of the queue from now on; twice is fine."""
        hand_over_sent(self.address, other.address)

    def close(self) -> None:
        """Take home what can be had: just before the kernel socket is closed. Twice is fine."""
        end_sending(self.address)


def _flat(packet: Any) -> Bytes:
    """Its bytes in one piece. A bytearray keeps its length for as long as they are referred to.

    Raises:
        UsageError: it has none.
    """
    if isinstance(packet, (bytearray, memoryview)):
        with suppress(TypeError, ValueError):  # it was released, has gaps, or items of an odd format
            view = memoryview(packet)
            return view.cast("B") if view.nbytes else b""
    raise UsageError(f"a packet must be bytes or a Packet, not {literal(packet)}", remedy="send([bytes(packet)])")
