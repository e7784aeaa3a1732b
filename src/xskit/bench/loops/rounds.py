"""What the loop does between two rounds: count the time in which there was work, and wait."""

from __future__ import annotations

from xskit.bench.loops.records import BenchWorker, queue_at, source_at
from xskit.engine.clock import read_any_clock, read_clock, wait
from xskit.jit import as_i64, i64, inlined
from xskit.xsk.path.receive import receiver_at
from xskit.xsk.path.rings import ring_at, unconsumed
from xskit.xsk.path.transmit import transmitter_at

THREAD_CPU = 3
"""CLOCK_THREAD_CPUTIME_ID."""

LONGEST_WAIT_NS = 10_000_000
"""So soon is a stop word seen."""
NEVER_NS = (1 << 63) - 1


@inlined
def begin(worker: BenchWorker) -> None:
    """The loop is entered."""
    worker.idle = 1
    worker.started_cpu_ns = read_any_clock(THREAD_CPU, worker.scratch)
    worker.started_ns = worker.looked_ns = read_clock(worker.scratch)


@inlined
def end(worker: BenchWorker) -> None:
    """The loop is left."""
    worker.stopped_ns = read_clock(worker.scratch)
    if worker.idle == 0:
        worker.busy_ns += worker.stopped_ns - worker.busy_since_ns
        finish_stretch(worker)
        worker.idle = 1
    worker.stopped_cpu_ns = read_any_clock(THREAD_CPU, worker.scratch)


@inlined
def finish_stretch(worker: BenchWorker) -> None:
    """There is no more work: CPU time since the end of the first round of it, and what was done since then."""
    if worker.meter and worker.done > worker.stretch_done:
        worker.metered_ns += read_any_clock(THREAD_CPU, worker.scratch) - worker.stretch_cpu_ns
        worker.metered += worker.done - worker.stretch_done


@inlined
def settle(worker: BenchWorker, work: int) -> bool:
    """A round is over; True: the limit is reached and nothing is on its way.

    The clock is read after rounds without work only. What is rare stands in functions of its own, so that this one is
    small where there is work.
    """
    if work > 0:
        worker.done += work
        if worker.idle:
            begin_stretch(worker)
    else:
        pause(worker)
    return worker.done >= worker.limit and is_enough(worker)


@inlined
def begin_stretch(worker: BenchWorker) -> None:
    """There is work again."""
    worker.busy_since_ns = worker.looked_ns
    if worker.meter:
        worker.stretch_cpu_ns = read_any_clock(THREAD_CPU, worker.scratch)
        worker.stretch_done = worker.done
    worker.idle = 0


@inlined
def pause(worker: BenchWorker) -> None:
    """There was nothing to do: note it, and sleep where that is wanted."""
    now_ns = read_clock(worker.scratch)
    if worker.idle == 0:
        worker.busy_ns += now_ns - worker.busy_since_ns
        finish_stretch(worker)
        worker.idle = 1
    worker.looked_ns = now_ns
    if worker.poll and may_sleep(worker):
        sleep_ns = min(LONGEST_WAIT_NS, max(next_due(worker) - now_ns, 0))
        if sleep_ns > 0:
            count_polls(worker)
            wait(worker.descriptors, worker.descriptor_count, sleep_ns, worker.scratch)
            worker.looked_ns = read_clock(worker.scratch)


@inlined
def next_due(worker: BenchWorker) -> int:
    """When the first source may send again; never, where that is not a matter of time."""
    queues = as_i64(worker.queues)
    earliest = i64(NEVER_NS)
    for number in range(worker.queue_count):
        queue = queue_at(queues[number])
        if queue.source != 0 and source_at(queue.source).due_ns > 0:
            earliest = min(earliest, source_at(queue.source).due_ns)
    return earliest


@inlined
def is_enough(worker: BenchWorker) -> bool:
    """As many packets as the limit says were received, and all that was sent on is completed."""
    queues = as_i64(worker.queues)
    received = i64(0)
    for number in range(worker.queue_count):
        queue = queue_at(queues[number])
        if queue.transmitter != 0 and transmitter_at(queue.transmitter).outstanding > 0:
            return False
        if queue.receiver != 0:
            received += receiver_at(queue.receiver).packets
    return received >= worker.limit


@inlined
def may_sleep(worker: BenchWorker) -> bool:
    """Nothing lies in TX: in copy mode poll(2) would send it, and swallow what is refused."""
    queues = as_i64(worker.queues)
    for number in range(worker.queue_count):
        queue = queue_at(queues[number])
        if queue.transmitter != 0 and unconsumed(ring_at(transmitter_at(queue.transmitter).tx)) > 0:
            return False
    return True


@inlined
def count_polls(worker: BenchWorker) -> None:
    """One poll(2) for all sockets."""
    queues = as_i64(worker.queues)
    for number in range(worker.queue_count):
        queue = queue_at(queues[number])
        queue.polls += 1
