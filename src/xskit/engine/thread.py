"""A worker from Python: a thread that sits in the compiled loop without the GIL, and how others talk to it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xskit.engine.clock import monotonic_ns
from xskit.engine.live import NO_LIMIT_NS, LiveDirection
from xskit.engine.loop_thread import FOR_EVER, POLLIN, LoopThread, fill_pollfds, pin, sleep_exactly
from xskit.engine.pipeline import Reading
from xskit.engine.records import PIPELINES, SNAPSHOT, Direction, Worker
from xskit.engine.stage import Stage
from xskit.engine.worker import CONTROL, STOP, run_worker
from xskit.errors import KernelError, UsageError
from xskit.jit import load_word, store_word
from xskit.memory import Arena, Region, array_at, record_view, size_of

_NICE = -19
_ANSWER_SECONDS = 2.0


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker did so far."""

    cpu: int | None
    spin: bool
    loops: int
    busy: int
    sleeps: int
    host_stalls: int
    stall_ns: int
    longest_stall_ns: int
    busy_ns: int
    elapsed_ns: int


@dataclass(frozen=True)
class Snapshot:
    """The numbers of all directions of one worker at one moment."""

    worker: WorkerFacts
    readings: list[Reading]
    outstanding: list[int]
    stuck_ns: list[int]
    achieved: list[Direction]
    whole: bool
    """False: the worker did not answer in time, so the numbers are of several moments and need not balance."""


class WorkerThread:
    """Runs directions until stopped.

    Args:
        directions: their ring ends belong to this worker alone.
        cpu: to pin the thread to; None leaves it to the scheduler.
        spin: never sleep, at the price of a whole CPU.
    """

    def __init__(self, directions: Sequence[LiveDirection], *, cpu: int | None = None, spin: bool = False) -> None:
        self.directions = list(directions)
        self.cpu = cpu
        self.spin = spin
        self._lock = threading.Lock()
        self._thread = LoopThread("xskit-worker", self._run)
        self.failure: str | None = None
        """Why it could not enter the loop."""
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        sockets = [end for direction in self.directions for end in direction.receive_fds]
        self._arena = Arena()
        record = self._arena.reserve(size_of(Worker))
        addresses = self._arena.reserve(8 * len(self.directions))
        descriptors = self._arena.reserve(8 * (1 + len(sockets)))
        scratch = self._arena.reserve(16)
        spans = [
            span
            for direction in self.directions
            for span in (
                (direction.pipeline.block, direction.pipeline.reading_bytes),
                (direction.records, direction.records_bytes),
            )
        ]
        copies = self._arena.reserve(24 * (len(spans) + 1))
        base = self._arena.open()
        self.address = base + record
        spans.append((self.address, size_of(Worker)))
        self._shadow = Region(sum(size for _, size in spans))

        worker = self.view = record_view(Worker, self.address)
        worker.directions, worker.direction_count = base + addresses, len(self.directions)
        array_at(base + addresses, max(len(self.directions), 1), np.int64)[: len(self.directions)] = [
            direction.address for direction in self.directions
        ]
        worker.descriptors, worker.descriptor_count = base + descriptors, 1 + len(sockets)
        fill_pollfds(base + descriptors, [self._eventfd, *sockets], [POLLIN] * (1 + len(sockets)))
        worker.scratch = base + scratch
        worker.spin = int(spin)
        worker.copies, worker.copy_count = base + copies, len(spans)
        triples = array_at(base + copies, 3 * len(spans), np.int64).reshape(-1, 3)
        self._copies: list[np.ndarray[Any, Any]] = []
        offset = 0
        for row, (origin, size) in enumerate(spans):
            triples[row] = (origin, self._shadow.address + offset, size)
            self._copies.append(array_at(self._shadow.address + offset, size, np.uint8))
            offset += size

    # -- life ------------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True while the thread is in the loop."""
        return self._thread.running

    def start(self) -> None:
        """Enter the loop in a thread of its own."""
        assert not self._thread.started, "a worker starts once"
        run_worker(self.address, 0)
        for direction in self.directions:
            direction.fill_rings()
        self._thread.start()

    def _run(self) -> None:
        try:
            pin(self.cpu)
        except KernelError as error:  # the CPU went offline, or was taken from this process
            self.failure = error.cause
            return
        sleep_exactly()
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            run_worker(self.address, FOR_EVER)
        except Exception as error:
            self.failure = f"a worker stopped unexpectedly: {error!r}"

    def run_rounds(self, rounds: int) -> int:
        """Run the loop here and now, for tests and benchmarks; returns the rounds run."""
        assert not self.running
        return int(run_worker(self.address, rounds))

    def stop(self) -> None:
        """Leave the loop and wait until the thread has; twice is fine."""
        with self._lock:
            if self.running:
                store_word(self.address + STOP, 1)
                self._wake()
                self._thread.wait()

    def close(self) -> None:
        """Stop, and give the worker's own memory back; the directions are somebody else's."""
        self.stop()
        if self._eventfd >= 0:
            os.close(self._eventfd)
            self._eventfd = -1
        self._arena.close()
        self._shadow.close()

    # -- talking to it ---------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._eventfd, 1)

    def _ask(self, bits: int) -> bool:
        """Set control bits and wait until the worker has obeyed; False when it does not run."""
        if not self.running:
            return False
        store_word(self.address + CONTROL, bits)
        self._wake()
        try:
            deadline = time.monotonic() + _ANSWER_SECONDS
            while load_word(self.address + CONTROL) != 0:
                if not self.running or time.monotonic() > deadline:
                    store_word(self.address + CONTROL, 0)
                    return False
                time.sleep(0.0001)
        finally:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._eventfd)
        return True

    @contextlib.contextmanager
    def _free_for_update(self, direction: LiveDirection) -> Iterator[None]:
        """Hold the lock at a moment when no update of this direction waits; snapshots are taken meanwhile."""
        while True:
            with self._lock:
                if self._thread.started and not self.running:
                    raise UsageError(f"{direction.name}: the link is not running")
                if not direction.pipeline.pending:
                    yield
                    return
            time.sleep(0.0005)

    def snapshot(self) -> Snapshot:
        """The numbers of all directions at one moment between two turns of the loop."""
        with self._lock:
            asked_ns = monotonic_ns()  # not later: a stall of this thread is none of the driver's
            whole = self._ask(SNAPSHOT)
            if not whole:
                whole = not self.running
                triples = array_at(self.view.copies, 3 * self.view.copy_count, np.int64).reshape(-1, 3)
                for origin, target, size in triples.tolist():
                    ctypes.memmove(target, origin, size)
            copies = [copy.copy() for copy in self._copies]
        worker = record_view(Worker, int(copies[-1].ctypes.data), copies[-1])
        return Snapshot(
            worker=self._facts(worker),
            readings=[d.reading(copies[2 * n]) for n, d in enumerate(self.directions)],
            outstanding=[d.outstanding(copies[2 * n + 1]) for n, d in enumerate(self.directions)],
            stuck_ns=[d.stuck_ns(asked_ns, copies[2 * n + 1]) for n, d in enumerate(self.directions)],
            achieved=[d.achieved(copies[2 * n + 1]) for n, d in enumerate(self.directions)],
            whole=whole,
        )

    def _facts(self, worker: Worker) -> WorkerFacts:
        ended = worker.stopped_ns or time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return WorkerFacts(
            cpu=self.cpu,
            spin=self.spin,
            loops=worker.loops,
            busy=worker.busy,
            sleeps=worker.sleeps,
            host_stalls=worker.host_stalls,
            stall_ns=worker.stall_ns,
            longest_stall_ns=worker.longest_stall_ns,
            busy_ns=worker.busy_ns,
            elapsed_ns=ended - worker.started_ns if worker.started_ns else 0,
        )

    def update(
        self,
        direction: LiveDirection,
        stages: Sequence[Stage],
        effective_ns: int,
        *,
        owd_base_ns: int = 0,
        late_limit_ns: int = NO_LIMIT_NS,
    ) -> None:
        """New parameters for a direction from a logical time on; returns when they are in force, or wait for it.

        One update may wait for its time; another one waits until that has come.

        Raises:
            UsageError: the worker has been stopped, before or while this waited.
        """
        with self._free_for_update(direction):
            direction.view.coming_base_ns = owd_base_ns
            direction.view.coming_limit_ns = late_limit_ns
            direction.pipeline.stage_update(stages, effective_ns)
            direction.stages = list(stages)
            self._ask(PIPELINES)
