"""A queue of an interface opened for a benchmark: packet memory, sockets, and the records that the loops work on."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from typing import Any

import numpy as np

from xskit.abi.xdp import AF_XDP
from xskit.bench.loops.modes import fill_frames
from xskit.bench.loops.records import WINDOW, BenchQueue, Check, Echo, Source
from xskit.bench.packet import PacketSpec
from xskit.bench.programs import SocketProgram
from xskit.bench.settings import CLOCKS, Case
from xskit.closing import Closing
from xskit.engine.histogram import BYTES
from xskit.memory import Arena, array_at, record_view, size_of
from xskit.netconf.interfaces import look
from xskit.xsk.bound import BoundSocket
from xskit.xsk.path.rings import INDEX_MASK, Ring
from xskit.xsk.umem import Umem

__all__ = ["End", "memory", "waiting"]

SO_BUSY_POLL, SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET = 46, 69, 70
"""asm-generic/socket.h."""
BUSY_POLL_US = 20
ENDLESS = 1 << 62
QUIET_S = 0.005
"""When nothing has come for so long, nothing is on its way any more."""

PATIENCE_NS = 1_000_000_000


class End(Closing):
    """One queue, with one socket or several that share it.

    Args:
        interface: in the calling thread's namespace.
        queue: its number.
        case: sizes and modes.
        receives, sends: which rings it has.
        source: packets to send by itself; without, it sends what it received.
        check: packets to expect.
        echo: measure round trips.
        program: gives packets to it; None where it only sends.
        umem, first: packet memory shared with another end, and the first of its frames that are this one's.

    Attributes:
        sockets: the first one owns FILL and COMPLETION.
        addresses: of their BenchQueue records.
        queues, sources, checks, echoes: the records, seen from Python.
    """

    def __init__(
        self,
        interface: str,
        queue: int,
        case: Case,
        *,
        receives: bool,
        sends: bool,
        source: PacketSpec | None = None,
        check: PacketSpec | None = None,
        echo: bool = False,
        program: SocketProgram | None = None,
        umem: Umem | None = None,
        first: int = 0,
    ) -> None:
        self.interface, self.queue, self.case = interface, queue, case
        self._packet, self._first = source, first
        self._program = program
        self._fill = case.frames if receives or not source else 0
        if receives and source:
            self._fill //= 2
        with ExitStack() as undo:
            self.umem = umem or undo.enter_context(memory(case, case.frames))
            self._arena = Arena()
            places = self._reserve(source, check, echo)
            base = self._arena.open()
            undo.callback(self._arena.close)
            self.sockets: list[BoundSocket] = []
            for number in range(case.sharers):
                self.sockets.append(undo.enter_context(self._open_socket(number, receives, sends)))
            self.addresses = [base + place["queue"] for place in places]
            self.queues = [record_view(BenchQueue, address) for address in self.addresses]
            self.sources = [record_view(Source, base + place["source"]) for place in places if "source" in place]
            self.checks = [record_view(Check, base + place["check"]) for place in places if "check" in place]
            self.echoes = [record_view(Echo, base + place["echo"]) for place in places if "echo" in place]
            self._histograms = [base + place["histogram"] for place in places if "echo" in place]
            for number, place in enumerate(places):
                self._set_up(number, {name: base + offset for name, offset in place.items()})
            fill_frames(self.addresses[0], first, self._fill)
            if case.busy_poll:
                for opened in self.sockets:
                    _busy_poll(opened.fd, case.batch)
            self.stack = undo.pop_all()

    def _reserve(self, source: PacketSpec | None, check: PacketSpec | None, echo: bool) -> list[dict[str, int]]:
        """Offsets of everything in the arena, a dictionary for each socket."""
        places = []
        for _ in range(self.case.sharers):
            place = {"queue": self._arena.reserve(size_of(BenchQueue))}
            place["ends"] = self._arena.reserve(self.umem.frames)
            if source:
                place["source"] = self._arena.reserve(size_of(Source))
                place["slots"] = self._arena.reserve(4 * self.case.frames)
            if check:
                place["check"] = self._arena.reserve(size_of(Check))
                place["seen"] = self._arena.reserve(WINDOW // 8)
                place["template"] = self._arena.reserve(check.length)
                self._expected = check
            if echo:
                place["echo"] = self._arena.reserve(size_of(Echo))
                place["histogram"] = self._arena.reserve(BYTES)
            places.append(place)
        return places

    def _open_socket(self, number: int, receives: bool, sends: bool) -> BoundSocket:
        case = self.case
        owner = self.sockets[0] if number else None
        generic = self._program is not None and str(self._program.mode) == "generic"
        fill = 1 << max(4, (max(self._fill, 1) - 1).bit_length())
        return BoundSocket(
            look(self.interface),
            self.queue,
            self.umem,
            shared=owner,
            rx=case.ring if receives else 0,
            tx=case.ring if sends else 0,
            fill=fill,
            completion=case.ring,
            mode="generic" if generic and case.xdp == "auto" else case.xdp,
            multi_buffer=case.multi_buffer,
            need_wakeup=case.need_wakeup,
        )

    def _set_up(self, number: int, at: dict[str, int]) -> None:
        """Fill in the records of one socket."""
        case, opened, owner = self.case, self.sockets[number], self.sockets[0]
        queue = self.queues[number]
        queue.rx, queue.tx, queue.fd = opened.rx_ring or 0, opened.tx_ring or 0, opened.fd
        queue.fill, queue.completion = owner.fill_ring or 0, owner.completion_ring or 0
        queue.base, queue.frame_bytes = self.umem.address, case.frame_size
        queue.unaligned, queue.batch = int(case.unaligned), case.batch
        queue.zero_copy, queue.wake_always = int(opened.zero_copy), int(not case.need_wakeup)
        queue.busy_poll = int(case.busy_poll)
        queue.last = at["ends"] if case.multi_buffer else 0
        if self._packet:
            queue.source = at["source"]
            self._set_up_source(self.sources[number], at["slots"], number, self._packet)
        if "check" in at:
            queue.check = at["check"]
            check, packet = self.checks[number], self._expected
            check.template, check.seen, check.length = at["template"], at["seen"], packet.length
            check.stamp_offset = packet.stamp_offset if packet.stamped else 0
            array_at(check.template, packet.length, np.uint8)[:] = np.frombuffer(packet.build(), np.uint8)
        if "echo" in at:
            queue.echo = at["echo"]
            self.echoes[number].histogram, self.echoes[number].patience_ns = at["histogram"], PATIENCE_NS

    def _set_up_source(self, source: Source, slots: int, number: int, packet: PacketSpec) -> None:
        """Cut the frames into slots, and lay a packet into each."""
        size, data = self.case.frame_size, packet.build()
        frames = -(-len(data) // size)
        first = -(-(self._first + self._fill) // frames)
        behind = (self._first + self.case.frames) // frames
        mine = range(first + number, behind, self.case.sharers)
        source.slots, source.slot_count, source.slot_frames = slots, len(mine), frames
        array_at(slots, len(mine), np.uint32)[:] = mine
        source.length, source.span, source.last_span = len(data), size, len(data) - (frames - 1) * size
        for slot in mine:
            start = slot * frames * size
            self.umem.view(start, len(data))[:] = data
        source.stamp_offset = packet.stamp_offset if packet.stamped else 0
        source.clock, source.cycle_ns = CLOCKS[self.case.clock], self.case.cycle_ns
        share, rest = divmod(self.case.count, self.case.sharers)
        source.left = share + (number < rest) if self.case.count else ENDLESS

    # --- while it runs ------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Let packets in."""
        if self._program is not None:
            for number, opened in enumerate(self.sockets):
                self._program.register(self.queue, number, opened.fd)
                self.stack.callback(self._program.unregister, self.queue, number)

    def dismiss(self) -> None:
        """Let no more in: what comes goes past, to the host."""
        if self._program is not None:
            for number in range(len(self.sockets)):
                self._program.unregister(self.queue, number)

    def histogram(self) -> np.ndarray[Any, Any]:
        """The round trips of all sockets, a copy."""
        count = BYTES // 8
        total = np.zeros(count, np.int64)
        for address in self._histograms:
            total += array_at(address, count, np.int64)
        return total

    def total(self, name: str) -> int:
        """A counter of the BenchQueue records, summed over the sockets."""
        return sum(int(getattr(queue, name)) for queue in self.queues)

    def is_drained(self) -> bool:
        """Nothing waits in RX."""
        return all(waiting(queue.rx) == 0 for queue in self.queues if queue.rx)

    def wait_until_drained(self, seconds: float) -> None:
        """Until nothing waits in RX, nor comes for a moment; at most so long."""
        deadline = time.monotonic() + seconds
        seen = -1
        while time.monotonic() < deadline:
            now = self.total("received_frames")
            if now == seen and self.is_drained():
                return
            seen = now
            time.sleep(QUIET_S)

    def wait_for_completion(self, seconds: float) -> bool:
        """Until nothing is on its way any more; False when the time is over first."""
        deadline = time.monotonic() + seconds
        while self.total("outstanding") > 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def close(self) -> None:
        """Close the sockets; twice is fine."""
        self.stack.close()


def memory(case: Case, frames: int) -> Umem:
    """Packet memory of so many frames, as the case wants it."""
    return Umem(
        frames,
        case.frame_size,
        unaligned=case.unaligned,
        hugetlb=case.hugetlb,
        huge=not case.hugetlb and not case.unaligned,
    )


def _busy_poll(fd: int, budget: int) -> None:
    """The kernel polls the driver from our own system calls (net/core/dev.c, napi_busy_loop; Linux 5.11)."""
    with socket.socket(AF_XDP, socket.SOCK_RAW, 0, fileno=os.dup(fd)) as handle:
        handle.setsockopt(socket.SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)
        handle.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL, BUSY_POLL_US)
        handle.setsockopt(socket.SOL_SOCKET, SO_BUSY_POLL_BUDGET, budget)


def waiting(ring: int) -> int:
    """Entries between the two indices of the ring whose Ring record is at an address."""
    view = record_view(Ring, ring)
    producer, consumer = (int(array_at(at, 1, np.uint32)[0]) for at in (view.producer, view.consumer))
    return (producer - consumer) & INDEX_MASK
