"""A queue of an interface opened for a benchmark: packet memory, sockets, and the records that the loops work on."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np

from xskit.abi.xdp import AF_XDP
from xskit.bench.loops.modes import fill
from xskit.bench.loops.records import WINDOW, BenchQueue, Check, Echo, Source
from xskit.bench.packet import PacketSpec
from xskit.bench.programs import SocketProgram, admit_sending
from xskit.bench.settings import CLOCKS, Case
from xskit.closing import Closing
from xskit.engine.histogram import BYTES
from xskit.memory import Arena, array_at, record_view, size_of
from xskit.netconf.interfaces import look
from xskit.xsk.bound import BoundSocket
from xskit.xsk.path.lines import NIL, SET
from xskit.xsk.path.receive import ARRIVAL_BYTES, Receiver
from xskit.xsk.path.rings import INDEX_MASK, Ring
from xskit.xsk.path.table import FramePool, PacketTable
from xskit.xsk.path.transmit import Transmitter
from xskit.xsk.umem import Umem

__all__ = ["Counts", "End", "Memory", "open_queues", "total", "waiting"]

SO_BUSY_POLL, SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET = 46, 69, 70
"""asm-generic/socket.h."""
BUSY_POLL_US = 20
ENDLESS = 1 << 62
QUIET_S = 0.005
"""When nothing has come for so long, nothing is on its way any more."""

PATIENCE_NS = 1_000_000_000
POOLS = 4
"""Two ends at most share a memory, and each has frames for FILL and frames of packets that lie ready."""


class Memory(Closing):
    """Packet memory of so many frames as a case wants it, and its packet table."""

    def __init__(self, case: Case, frames: int) -> None:
        with ExitStack() as undo:
            self.umem = undo.enter_context(
                Umem(
                    frames,
                    case.frame_size,
                    unaligned=case.unaligned,
                    hugetlb=case.hugetlb,
                    huge=not case.hugetlb and not case.unaligned,
                )
            )
            self.table = undo.enter_context(
                PacketTable(
                    frames,
                    base=self.umem.address,
                    frame_bytes=case.frame_size,
                    unaligned=case.unaligned,
                    pools=POOLS,
                )
            )
            self._stack = undo.pop_all()

    def close(self) -> None:
        """Give it back; twice is fine."""
        self._stack.close()


class Counts(NamedTuple):
    """Of sockets, since they were opened; in packets where no unit is named. Calls are as xdpsock counts them."""

    received: int = 0
    received_bytes: int = 0
    received_frames: int = 0
    submitted: int = 0
    completed: int = 0
    """Those that were refused are among them."""
    refused: int = 0
    outstanding_frames: int = 0
    empty_polls: int = 0
    fill_fails: int = 0
    copy_kicks: int = 0
    wakeups: int = 0
    polls: int = 0
    strays: int = 0
    """Entries of rings that named no frame that could be there."""

    @property
    def sent(self) -> int:
        """Completed, and not refused."""
        return max(self.completed - self.refused, 0)


def total(counts: Iterable[Counts]) -> Counts:
    """The sum."""
    return Counts(*map(sum, zip(*counts, strict=True)))


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
        memory, first: memory shared with another end, and the first of its frames that are this one's.

    Attributes:
        program: gives packets to it, or None.
        memory: packet memory and packet table.
        sockets: the first one owns FILL and COMPLETION.
        addresses: of their BenchQueue records.
        queues, receivers, transmitters, sources, checks, echoes: the records, seen from Python.
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
        memory: Memory | None = None,
        first: int = 0,
    ) -> None:
        self.interface, self.queue, self.case = interface, queue, case
        self.receives, self.sends = receives, sends
        self.program = program
        self._fill = (case.frames // 2 if source else case.frames) if receives else 0
        with ExitStack() as undo:
            self.memory = memory or undo.enter_context(Memory(case, case.frames))
            self._arena = Arena()
            places = self._reserve(source, check, echo)
            base = self._arena.open()
            undo.callback(self._arena.close)
            self._pools = [undo.enter_context(FramePool(self.memory.table, first, self._fill))]
            if source:
                self._pools.append(undo.enter_context(self._packets_ready(source, first + self._fill)))
            self.sockets: list[BoundSocket] = []
            for _ in range(case.sharers):
                self.sockets.append(undo.enter_context(self._open_socket()))

            def views(kind: type[Any], name: str) -> list[Any]:
                return [record_view(kind, base + place[name]) for place in places if name in place]

            self.addresses = [base + place["queue"] for place in places]
            self.queues: list[BenchQueue] = views(BenchQueue, "queue")
            self.receivers: list[Receiver] = views(Receiver, "receiver")
            self.transmitters: list[Transmitter] = views(Transmitter, "transmitter")
            self.sources: list[Source] = views(Source, "source")
            self.checks: list[Check] = views(Check, "check")
            self.echoes: list[Echo] = views(Echo, "echo")
            self._histograms = [base + place["histogram"] for place in places if "echo" in place]
            for number, place in enumerate(places):
                at = {name: base + offset for name, offset in place.items()}
                self._set_up(number, at)
                if source:
                    self._set_up_source(number, source)
                if check:
                    self._set_up_check(self.checks[number], at, check)
                if echo:
                    self.echoes[number].histogram, self.echoes[number].patience_ns = at["histogram"], PATIENCE_NS
            if receives:
                fill(base + places[0]["receiver"])
            if case.busy_poll:
                for opened in self.sockets:
                    _busy_poll(opened.fd, case.batch)
            self.stack = undo.pop_all()

    def _reserve(self, source: PacketSpec | None, check: PacketSpec | None, echo: bool) -> list[dict[str, int]]:
        """Offsets of everything in the arena, a dictionary for each socket."""
        pieces = {"queue": size_of(BenchQueue), "arrivals": ARRIVAL_BYTES * self.case.batch}
        pieces |= {"receiver": size_of(Receiver), "transmitter": size_of(Transmitter)}
        if source:
            pieces |= {"source": size_of(Source)}
        if check:
            pieces |= {"check": size_of(Check), "seen": WINDOW // 8, "template": check.length}
        if echo:
            pieces |= {"echo": size_of(Echo), "histogram": BYTES}
        return [{name: self._arena.reserve(size) for name, size in pieces.items()} for _ in range(self.case.sharers)]

    def _packets_ready(self, packet: PacketSpec, first: int) -> FramePool:
        """A packet in each set of neighbouring frames from `first` on; the pool has their first frames."""
        memory, size, data = self.memory, self.case.frame_size, np.frombuffer(packet.build(), np.uint8)
        each = -(-len(data) // size)
        count = (self.case.frames - self._fill) // each
        pool = FramePool(memory.table, first, count * each)
        content = np.frombuffer(memory.umem.view(first * size, count * each * size), np.uint8).reshape(count, -1)
        content[:, : len(data)] = data
        frames = np.arange(first, first + count * each).reshape(count, each)
        lines = memory.table.lines[frames]
        lines["address"] = memory.umem.address + frames * size
        lines["length"], lines["frames"], lines["state"] = len(data), each, SET
        lines["span"] = np.minimum(len(data) - np.arange(each) * size, size)
        lines["fragment"], lines["next"] = np.roll(frames, -1, axis=1), frames[:, :1]
        lines["fragment"][:, -1] = NIL
        memory.table.lines[frames] = lines
        array_at(pool.view.frames, count, np.uint32)[:] = frames[::-1, 0]
        pool.view.count = count
        return pool

    # --- the only place that looks into a kernel socket -----------------------------------------------------------

    def _open_socket(self) -> BoundSocket:
        case = self.case
        generic = self.program is not None and str(self.program.mode) == "generic"
        return BoundSocket(
            look(self.interface),
            self.queue,
            self.memory.umem,
            shared=self.sockets[0] if self.sockets else None,
            rx=case.ring if self.receives else 0,
            tx=case.ring if self.sends else 0,
            fill=1 << max(4, (max(self._fill, 1) - 1).bit_length()),
            completion=case.ring,
            mode="generic" if generic and case.xdp == "auto" else case.xdp,
            multi_buffer=case.multi_buffer,
            need_wakeup=case.need_wakeup,
        )

    def _set_up(self, number: int, at: dict[str, int]) -> None:
        """Fill in the records of one socket. FILL and COMPLETION are the first one's."""
        case, opened, owner = self.case, self.sockets[number], self.sockets[0]
        queue, receiver, transmitter = self.queues[number], self.receivers[number], self.transmitters[number]
        queue.batch, queue.arrivals = case.batch, at["arrivals"]
        for name in at.keys() & {"source", "check", "echo"}:
            setattr(queue, name, at[name])
        receiver.memory = transmitter.memory = self.memory.table.memory
        receiver.fd = transmitter.fd = opened.fd
        if opened.rx_ring:
            queue.receiver, receiver.rx, receiver.fill = at["receiver"], opened.rx_ring, owner.fill_ring or 0
            receiver.pool, receiver.target = self._pools[0].address, self._fill if number == 0 else 0
            receiver.busy_poll, receiver.head = int(case.busy_poll), NIL
        if opened.tx_ring:
            queue.transmitter, transmitter.tx = at["transmitter"], opened.tx_ring
            transmitter.completion, transmitter.always = owner.completion_ring or 0, int(not case.need_wakeup)
            transmitter.zero_copy, transmitter.told_late = int(opened.zero_copy), int(opened.told_late)

    # --------------------------------------------------------------------------------------------------------------

    def _set_up_source(self, number: int, packet: PacketSpec) -> None:
        source, case, pool = self.sources[number], self.case, self._pools[1]
        source.pool, source.length, source.frames = pool.address, packet.length, -(-packet.length // case.frame_size)
        source.stamp_offset = packet.stamp_offset if packet.stamped else 0
        source.clock, source.cycle_ns = CLOCKS[case.clock], case.cycle_ns
        share, rest = divmod(case.count, case.sharers)
        source.left = share + (number < rest) if case.count else ENDLESS

    def _set_up_check(self, check: Check, at: dict[str, int], packet: PacketSpec) -> None:
        check.template, check.seen, check.length = at["template"], at["seen"], packet.length
        check.stamp_offset = packet.stamp_offset if packet.stamped else 0
        array_at(check.template, packet.length, np.uint8)[:] = np.frombuffer(packet.build(), np.uint8)

    # --- while it runs ------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Let packets in."""
        if self.program is not None:
            for number, opened in enumerate(self.sockets):
                self.program.register(self.queue, number, opened.fd)
                self.stack.callback(self.program.unregister, self.queue, number)

    def dismiss(self) -> None:
        """Let no more in: what comes goes past, to the host."""
        if self.program is not None:
            for number in range(len(self.sockets)):
                self.program.unregister(self.queue, number)

    def histogram(self) -> np.ndarray[Any, Any]:
        """The round trips of all sockets, a copy."""
        count = BYTES // 8
        summed = np.zeros(count, np.int64)
        for address in self._histograms:
            summed += array_at(address, count, np.int64)
        return summed

    def counts_of(self, number: int) -> Counts:
        """What one of its sockets has counted by now."""
        receiver, transmitter = self.receivers[number], self.transmitters[number]
        kicks = transmitter.kicks
        return Counts(
            received=receiver.packets,
            received_bytes=receiver.bytes,
            received_frames=receiver.frames,
            submitted=transmitter.packets,
            completed=transmitter.packets - transmitter.outstanding_packets,
            refused=transmitter.refused,
            outstanding_frames=transmitter.outstanding,
            empty_polls=receiver.kicks,
            fill_fails=receiver.fill_fails,
            copy_kicks=0 if transmitter.zero_copy else kicks,
            wakeups=kicks if transmitter.zero_copy else 0,
            polls=self.queues[number].polls,
            strays=receiver.strays + transmitter.strays,
        )

    def counts(self) -> Counts:
        """What all of its sockets have counted by now."""
        return total(map(self.counts_of, range(len(self.sockets))))

    @property
    def sent_bytes(self) -> int:
        """Of packets that came in, or lay ready, here and were sent here or elsewhere."""
        return sum(pool.books.sent_bytes for pool in self._pools)

    def is_drained(self) -> bool:
        """Nothing waits in RX."""
        return all(waiting(receiver.rx) == 0 for receiver in self.receivers if receiver.rx)

    def wait_until_drained(self, seconds: float) -> None:
        """Until nothing waits in RX, nor comes for a moment; at most so long."""
        deadline = time.monotonic() + seconds
        seen = -1
        while time.monotonic() < deadline:
            now = self.counts().received_frames
            if now == seen and self.is_drained():
                return
            seen = now
            time.sleep(QUIET_S)

    def wait_for_completion(self, seconds: float) -> bool:
        """Until nothing is on its way any more; False when the time is over first."""
        deadline = time.monotonic() + seconds
        while self.counts().outstanding_frames > 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def close(self) -> None:
        """Close the sockets; twice is fine."""
        self.stack.close()


def open_queues(
    interface: str,
    case: Case,
    stack: ExitStack,
    *,
    receives: bool,
    memories: Sequence[Memory] | None = None,
    **options: Any,
) -> list[End]:
    """An end for each queue of a case on one interface, under one program, closed with the stack. `memories`: one for
    each of them; `options` are those of End.

    Raises:
        XskitError: a socket or a program cannot be had.
    """
    program = SocketProgram(look(interface).index, case.xdp, case.sharers) if receives else None
    if attached := program or admit_sending(interface, case.xdp):
        stack.enter_context(attached)
    ends = []
    for number, queue in enumerate(case.queues):
        memory = memories[number] if memories else None
        part = case.of_queue(number)
        ends.append(End(interface, queue, part, receives=receives, program=program, memory=memory, **options))
        stack.enter_context(ends[-1])
    return ends


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
