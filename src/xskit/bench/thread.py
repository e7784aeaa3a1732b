"""A thread in the compiled loop: pinned, with the priority and the rights it is given."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xskit import libc
from xskit.bench.ends import End
from xskit.bench.loops.modes import run
from xskit.bench.loops.records import HALT, STOP, BenchWorker
from xskit.bench.settings import BenchMode
from xskit.engine.loop_thread import FOR_EVER, POLLIN, POLLOUT, LoopThread, fill_pollfds, pin, sleep_exactly
from xskit.errors import KernelError
from xskit.jit import store_word
from xskit.memory import Arena, array_at, layout, record_view, size_of

__all__ = ["BenchThread", "Meter", "drop_capabilities"]


@dataclass(frozen=True)
class Meter:
    """CPU time and wall time with work; CPU time of all rounds but the first of each stretch, and the work of these."""

    cpu_ns: int
    busy_ns: int
    metered_ns: int
    metered: int
    done: int


_LOOKS = 10
_STRETCH = ["idle", "busy_since_ns", "metered_ns", "stretch_cpu_ns"]
"""What stays the same for as long as there is work, or none."""
_CAPABILITY_VERSION_3 = 0x20080522


class BenchThread:
    """One worker.

    Args:
        mode: what its queues do.
        ends: whose queues it works on; for forward, two.
        cpu: to pin it to; None leaves it to the scheduler.
        poll: sleep in poll(2) where there is nothing to do.
        limit: stop by itself when so many packets were received; 0: never.
        priority: above 0 a real-time one.
        reduce_capabilities: give up all of them in this thread.
    """

    def __init__(
        self,
        mode: BenchMode,
        ends: Sequence[End],
        *,
        cpu: int | None = None,
        poll: bool = False,
        limit: int = 0,
        priority: int = 0,
        reduce_capabilities: bool = False,
    ) -> None:
        self.mode, self.ends, self.cpu = mode, list(ends), cpu
        self._priority, self._reduce = priority, reduce_capabilities
        addresses = [address for end in ends for address in end.addresses]
        if mode in ("l2fwd", "forward"):
            for end, other in zip(ends, ends if mode == "l2fwd" else reversed(ends), strict=True):
                for queue, partner in zip(end.queues, other.addresses, strict=True):
                    queue.partner = partner
        sockets = [opened for end in ends for opened in end.sockets]
        self._arena = Arena()
        record, table = self._arena.reserve(size_of(BenchWorker)), self._arena.reserve(8 * len(addresses))
        descriptors, scratch = self._arena.reserve(8 * len(sockets)), self._arena.reserve(16)
        base = self._arena.open()
        self._arena_open = True
        self.address = base + record
        worker = self.view = record_view(BenchWorker, self.address)
        worker.queues, worker.queue_count = base + table, len(addresses)
        array_at(base + table, len(addresses), np.int64)[:] = addresses
        worker.descriptors, worker.descriptor_count = base + descriptors, len(sockets)
        events = [POLLIN if end.receives else POLLOUT for end in ends for _ in end.sockets]
        fill_pollfds(base + descriptors, [opened.fd for opened in sockets], events)
        worker.scratch, worker.poll, worker.limit = base + scratch, int(poll), limit or FOR_EVER
        worker.meter = int(not poll and mode != "latency")
        self._ready, self._go = threading.Event(), threading.Event()
        self._prepared = False
        self._clock: int | None = None
        self._thread = LoopThread(f"xskit-{mode}", self._body)

    def prepare(self) -> None:
        """Start the thread, compile the loop, and wait before the first round."""
        self._thread.start()
        self._ready.wait()
        if not self._prepared:
            self._thread.wait()
            self._thread.raise_failure()

    def start(self) -> None:
        """Enter the loop."""
        if not self._thread.started:
            self.prepare()
        self._go.set()

    def turn(self, rounds: int) -> None:
        """Instead of starting: so many rounds of the loop, now, in the calling thread, which goes on at once."""
        run(self.address, rounds)

    @property
    def running(self) -> bool:
        """True until the loop is left."""
        return not self._thread.ended

    def meter(self) -> Meter:
        """What it has taken and done so far; while it runs, as exactly as looking from outside can be."""
        books = array_at(self.address, 1, layout(BenchWorker))
        for _ in range(_LOOKS):
            looked = books.copy()
            clock_ns = self._cpu_clock_ns()
            if (books[_STRETCH] == looked[_STRETCH]).all():
                break
        before = record_view(BenchWorker, int(looked.ctypes.data), looked)
        busy_ns, metered_ns, metered = before.busy_ns, before.metered_ns, before.metered
        if not before.idle and clock_ns:
            busy_ns += max(time.monotonic_ns() - before.busy_since_ns, 0)
            if before.done > before.stretch_done and before.stretch_cpu_ns:
                metered_ns += max(clock_ns - before.stretch_cpu_ns, 0)
                metered += before.done - before.stretch_done
        cpu_ns = (clock_ns or self.view.stopped_cpu_ns) - self.view.started_cpu_ns
        return Meter(cpu_ns, busy_ns, metered_ns, metered, before.done)

    def _cpu_clock_ns(self) -> int:
        """The thread's CPU clock; 0 when it has ended."""
        if self._clock is not None and not self._thread.ended:
            with contextlib.suppress(OSError):  # it has ended this very moment
                return time.clock_gettime_ns(self._clock)
        return 0

    def halt(self) -> None:
        """Let its sources send no more."""
        for end in self.ends:
            for queue in end.queues:
                if queue.source:
                    store_word(queue.source + HALT, 1)

    def stop(self) -> None:
        """Leave the loop and wait until it is left; twice is fine.

        Raises:
            XskitError: what went wrong in the thread.
        """
        store_word(self.address + STOP, 1)
        self._go.set()
        self._thread.wait()
        self._thread.raise_failure()

    def join(self, timeout: float) -> bool:
        """Wait until the loop ends by itself; False when the time is over first."""
        return self._thread.join(timeout)

    def close(self) -> None:
        """Stop, and give the memory back; twice is fine."""
        if self._arena_open:
            try:
                self.stop()
            finally:
                self._arena_open = False
                self._arena.close()

    def _body(self) -> None:
        try:
            self._prepare_thread()
            run(self.address, 0)  # compiled, or loaded, before the clock runs
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
            self._prepared = True
        finally:
            self._ready.set()
        self._go.wait()
        run(self.address, FOR_EVER)

    def _prepare_thread(self) -> None:
        sleep_exactly()
        pin(self.cpu)
        if self._priority:
            try:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(self._priority))
            except OSError as error:
                raise KernelError(
                    f"a worker cannot have real-time priority {self._priority}: {error.strerror}",
                    remedy="sysctl kernel.sched_rt_runtime_us",
                ) from error
        if self._reduce:
            drop_capabilities()


def drop_capabilities() -> None:
    """The calling thread gives up all capabilities (capset(2)); what it has opened goes on working."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if libc.shared.capset(header, nothing) != 0:
        raise KernelError(f"capabilities cannot be given up: {libc.failure().strerror}")
