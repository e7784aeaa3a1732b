"""The other ends of veth pairs: what sends to the interfaces under test, takes what they send, or sends it back.

            live (BPF)                                        af-xdp
sends       live frames, 5 to 6 times as fast                 a socket with packets that lie ready
takes       a program that counts and drops                   a socket that compares every byte
echoes      a program that sends back                         a socket in l2fwd

What a program sends into a veth comes out in one queue: that of the CPU it runs on, counted modulo the queues
(veth_select_rxq, drivers/net/veth.c). So live frames for a queue are made on a CPU that leads there, and where none
does, or one would have to know where an echo is sent from, a socket takes their place.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from xskit.bench.bed import Place
from xskit.bench.ends import open_queues
from xskit.bench.programs import Counting, echo_program, sink_program
from xskit.bench.settings import LIVE_PACKET_BYTES, BenchMode, Case
from xskit.bench.thread import BenchThread
from xskit.bpf.program import ProgramSpec
from xskit.engine.loop_thread import LoopThread, pin
from xskit.errors import UsageError
from xskit.netconf.interfaces import look

__all__ = ["Far", "FarCounts", "build"]

LIVE_CHUNK = 4096
"""Packets a system call: some ms, so that a stop is soon seen."""
LIVE_BATCH = 64
TURN = 16
"""Rounds of a loop at once."""
STILL_S = 0.05
"""After no packet has come for so long, none is taken to be on its way: a NIC's interrupt may be due."""


class FarCounts(dict[str, int]):
    """What the far ends saw, by name: sent, received, corrupted, ...; sums where there are two."""

    def plus(self, **counts: int) -> None:
        """Add."""
        for name, count in counts.items():
            self[name] = self.get(name, 0) + count


class Far:
    """One thing at a far end. By default each step does nothing; a kind overrides the steps that it takes part in."""

    def start(self) -> None:
        """Begin; a program that is attached has begun."""

    def burst(self, count: int) -> int:
        """Instead of starting: a source sends so many packets, now, in the calling thread; how many that were."""
        return 0

    def turn(self) -> None:
        """Instead of starting: what has come is taken, now, in the calling thread; a program runs in the kernel."""

    def finished(self) -> bool | None:
        """Of a source: all packets that it should send have left; None: it is none."""
        return None

    def halt(self) -> None:
        """Send no more, and wait until what was sent has left."""

    def drain(self) -> None:
        """Wait until all that has come is counted."""

    def count(self, counts: FarCounts) -> None:
        """Add what it saw."""

    def close(self) -> None:
        """Stop, and give everything back."""


def build(case: Case, place: Place, stack: ExitStack, cpu: int | None) -> list[Far]:
    """What the case needs at the far ends of its place; closed with the stack. In the place's namespace.

    Raises:
        XskitError: as sockets and programs do.
    """
    if not place.far or case.drive == "none":
        return []
    live = case.drive != "af-xdp"
    made: list[Far] = []

    def add(far: Far) -> None:
        stack.callback(far.close)
        made.append(far)

    is_live = _is_live(case, place, cpu)
    if case.mode == "txonly":
        add(FarProgram(place.far[0]) if live else Socketed("loss", place.far[0], case, cpu, sends=False))
    elif case.mode == "latency":
        bounces = live and case.xdp != "generic" and (case.drive == "live" or place.wired or max(case.queues) == 0)
        add(FarProgram(place.far[0], echo_program) if bounces else Socketed("l2fwd", place.far[0], case, cpu))
    elif case.mode == "l2fwd" and not is_live:
        add(Socketed("loss", place.far[0], case, cpu))
    elif case.both_ways:
        for name in place.far:
            add(FarProgram(name) if is_live else Socketed("loss", name, case, cpu))
        if is_live:
            add(LiveSource(case, place, place.far, cpu))
    else:
        if case.mode in ("l2fwd", "forward"):
            add(FarProgram(place.far[-1]) if live else Socketed("loss", place.far[-1], case, cpu, sends=False))
        if is_live:
            add(LiveSource(case, place, place.far[:1], cpu))
        else:
            add(Socketed("txonly", place.far[0], case, cpu, receives=False))
    return made


def _is_live(case: Case, place: Place, cpu: int | None) -> bool:
    """Whether a source is live frames: as fast as can be, so not where a pace is asked for. NICs send none without a
    program of their own."""
    if case.drive == "auto":
        may = not place.wired and case.packet.length <= LIVE_PACKET_BYTES and not case.cycle_ns
        return may and None not in cpus_for(case, place, cpu).values()
    return case.drive == "live"


def cpus_for(case: Case, place: Place, preferred: int | None) -> dict[int, int | None]:
    """On which CPU live frames for each queue are made; None: on none that this process may use."""
    allowed = sorted(os.sched_getaffinity(0), key=lambda cpu: (cpu != preferred, cpu))
    if place.wired:
        return dict.fromkeys(case.queues, preferred)
    queues = look(place.near[0]).rx_queues
    return {queue: next((cpu for cpu in allowed if cpu % queues == queue), None) for queue in case.queues}


class FarProgram(Far):
    """A program that counts, and drops or sends back."""

    def __init__(self, interface: str, make: Callable[..., ProgramSpec] = sink_program) -> None:
        self._program = Counting(make, look(interface).index)

    def drain(self) -> None:
        """Until no packet has come for a moment: over NICs, what has left need not have arrived; at most for 1 s."""
        deadline = time.monotonic() + 1.0
        seen, now = None, self._program.counts()
        while now != seen and time.monotonic() < deadline:
            time.sleep(STILL_S)
            seen, now = now, self._program.counts()

    def count(self, counts: FarCounts) -> None:
        """received, received_bytes."""
        packets, length = self._program.counts()
        counts.plus(received=packets, received_bytes=length)

    def close(self) -> None:
        """Detach."""
        self._program.close()


class LiveSource(Far):
    """Makes packets in the kernel, in a thread of its own.

    Attributes:
        cpus: that it runs on, in turns.

    Raises:
        UsageError: live frames made on none of the CPUs reach a queue.
    """

    def __init__(self, case: Case, place: Place, interfaces: Sequence[str], cpu: int | None) -> None:
        packet = case.packet
        self._data, self._place = packet.build(), place
        of_queue = cpus_for(case, place, cpu)
        for queue, found in of_queue.items():
            if found is None:
                raise UsageError(
                    f"live frames come to the queue of the CPU that makes them, and none leads to queue {queue}",
                    remedy="--drive af-xdp",
                )
        self.cpus = {found for found in of_queue.values() if found is not None}
        self._steers = max(case.queues) > 0
        self._cycle_ns, self._counted = case.cycle_ns, case.count > 0
        self._chunk = case.batch if case.cycle_ns else LIVE_CHUNK
        # ways to send, in turns: every queue of every interface
        self._ways = [(look(name).index, queue, of_queue[queue]) for queue in case.queues for name in interfaces]
        shares = [case.of_queue(number).count for number in range(len(case.queues))]
        self._left = [share for share in shares for _ in interfaces]
        offset = packet.stamp_offset + 4 if packet.stamped else 0
        self._program = Counting.live(offset)
        self._stop = threading.Event()
        self._thread = LoopThread("xskit-live", self._body)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _body(self) -> None:
        pin(self._ways[0][2])
        with self._place.inside():
            self._work()

    def _work(self) -> None:
        due_ns = time.monotonic_ns()
        for way in itertools.cycle(range(len(self._ways))):
            if self._stop.is_set() or (self._counted and not any(self._left)):
                return
            chunk = min(self._chunk, self._left[way]) if self._counted else self._chunk
            if chunk == 0:
                continue
            if self._cycle_ns:
                due_ns += self._cycle_ns
                time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)
            self._send(self._ways[way], chunk)
            self._left[way] -= chunk

    def burst(self, count: int) -> int:
        """To all queues in equal parts."""
        share = -(-count // len(self._ways))
        allowed = os.sched_getaffinity(0)
        try:
            for way in self._ways if share else ():
                self._send(way, share)
        finally:
            os.sched_setaffinity(0, allowed)
        return share * len(self._ways)

    def _send(self, way: tuple[int, int, int | None], count: int) -> None:
        ifindex, queue, cpu = way
        if self._steers:
            pin(cpu)
        self._program.program.run_live(
            self._data, ifindex=ifindex, queue=queue, repeat=count, batch=min(LIVE_BATCH, count)
        )

    def finished(self) -> bool | None:
        """Its thread has ended."""
        return self._thread.ended

    def halt(self) -> None:
        """Raises what went wrong in the thread."""
        self._stop.set()
        self._thread.wait()
        self._thread.raise_failure()

    def count(self, counts: FarCounts) -> None:
        """made: of these, those for which the way was full are lost."""
        counts.plus(made=self._program.counts()[0])

    def close(self) -> None:
        """Stop."""
        try:
            self.halt()
        finally:
            self._program.close()


class Socketed(Far):
    """A socket at the far end, in a loop of its own."""

    def __init__(
        self,
        loop: BenchMode,
        interface: str,
        case: Case,
        cpu: int | None,
        *,
        sends: bool = True,
        receives: bool = True,
    ) -> None:
        self._loop = loop
        quiet = replace(case, drive="none", xdp="auto", poll=False, busy_poll=False, sharers=1)
        packet = case.packet
        source = packet if loop == "txonly" or (loop == "loss" and sends) else None
        checked = packet if loop == "loss" else None
        self._sends = source is not None
        with ExitStack() as undo:
            self._ends = open_queues(
                interface, quiet, undo, receives=receives, sends=sends, source=source, check=checked
            )
            self._thread = BenchThread(loop, self._ends, cpu=cpu, poll=receives)
            undo.callback(self._thread.close)
            for end in self._ends:
                end.admit()
            self._thread.prepare()
            self._stack = undo.pop_all()

    def start(self) -> None:
        """Enter the loop."""
        self._thread.start()

    def burst(self, count: int) -> int:
        """Of a source: to all queues in equal parts."""
        self._thread.view.poll = 0
        if not self._sends:
            return 0
        share = -(-count // len(self._ends))
        for end in self._ends:
            for source in end.sources:
                source.left = share
        self._thread.turn(share // self._ends[0].case.batch + 1)
        return share * len(self._ends)

    def turn(self) -> None:
        """Some rounds of the loop."""
        self._thread.turn(TURN)

    def finished(self) -> bool | None:
        """Of a source: nothing is left to send, and all frames are back."""
        if not self._sends:
            return None
        left = any(source.left for end in self._ends for source in end.sources)
        return not left and not any(end.counts().outstanding_frames for end in self._ends)

    def halt(self) -> None:
        """Of a source: until all frames are back."""
        if self._sends:
            self._thread.halt()
            for end in self._ends:
                end.wait_for_completion(1.0)

    def drain(self) -> None:
        """Until RX is empty."""
        for end in self._ends:
            end.wait_until_drained(1.0)

    def count(self, counts: FarCounts) -> None:
        """sent and refused of a source; received, received_bytes, corrupted and the like of what takes."""
        for end in self._ends:
            sockets = end.counts()
            if self._sends:
                counts.plus(sent=sockets.sent, refused=sockets.refused)
            if self._loop != "txonly":
                counts.plus(received=sockets.received, received_bytes=sockets.received_bytes)
            for check in end.checks:
                counts.plus(corrupted=check.corrupted, unique=check.unique, duplicates=check.duplicates)

    def close(self) -> None:
        """Stop and close."""
        self._stack.close()
