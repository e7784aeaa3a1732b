"""The loops themselves, one a mode: rounds over the worker's queues until the stop word is set or the limit reached.

Each takes the address of a BenchWorker and the most rounds to do, and returns the rounds done.
"""

from __future__ import annotations

from xskit.bench.loops.echo import ping
from xskit.bench.loops.receive import drop, hand_over, verify
from xskit.bench.loops.records import STOP, BenchWorker, echo_at, queue_at, source_at, worker_at
from xskit.bench.loops.rounds import begin, end, settle
from xskit.bench.loops.transmit import send
from xskit.jit import as_i64, compiled, i64, inlined, load_acquire64
from xskit.xsk.path.receive import receiver_at, refill
from xskit.xsk.path.transmit import transmitter_at


@compiled("int64(int64)")
def fill(address: int) -> int:
    """Fill FILL of the Receiver at an address, from Python; returns how many frames it has now."""
    receiver = receiver_at(address)
    refill(receiver)
    return receiver.filled


@compiled("int64(int64, int64)")
def run_rxdrop(address: int, rounds: int) -> int:
    """Receive, count, give the frames back."""
    worker = worker_at(address)
    queues = as_i64(worker.queues)
    begin(worker)
    done = 0
    while done < rounds and load_acquire64(address + STOP) == 0:
        done += 1
        work = i64(0)
        for number in range(worker.queue_count):
            work += drop(queue_at(queues[number]))
        if settle(worker, work, 0):
            break
    end(worker)
    return done


@inlined
def next_due(worker: BenchWorker) -> int:
    """When the first source may send again; 0 where that is not a matter of time."""
    queues = as_i64(worker.queues)
    earliest = i64(0)
    for number in range(worker.queue_count):
        queue = queue_at(queues[number])
        if queue.source != 0:
            due_ns = i64(source_at(queue.source).due_ns)
            earliest = due_ns if earliest == 0 else min(earliest, due_ns)
    return earliest


@inlined
def is_sent(worker: BenchWorker) -> bool:
    """Every source has sent what it should, all frames are back, and no echo is waited for."""
    queues = as_i64(worker.queues)
    for number in range(worker.queue_count):
        queue = queue_at(queues[number])
        if queue.source == 0 or source_at(queue.source).left > 0:
            return False
        if transmitter_at(queue.transmitter).outstanding > 0:
            return False
        if queue.echo != 0 and echo_at(queue.echo).waiting:
            return False
    return True


@compiled("int64(int64, int64)")
def run_txonly(address: int, rounds: int) -> int:
    """Send what lies ready; what was completed can be sent again."""
    worker = worker_at(address)
    queues = as_i64(worker.queues)
    begin(worker)
    done = 0
    while done < rounds and load_acquire64(address + STOP) == 0:
        done += 1
        work = i64(0)
        for number in range(worker.queue_count):
            work += send(queue_at(queues[number]), worker.scratch)
        settle(worker, work, next_due(worker))
        if work == 0 and is_sent(worker):
            break
    end(worker)
    return done


@compiled("int64(int64, int64)")
def run_l2fwd(address: int, rounds: int) -> int:
    """Receive, swap the MAC addresses, send out of the same port."""
    worker = worker_at(address)
    queues = as_i64(worker.queues)
    begin(worker)
    done = 0
    while done < rounds and load_acquire64(address + STOP) == 0:
        done += 1
        work = i64(0)
        for number in range(worker.queue_count):
            queue = queue_at(queues[number])
            work += hand_over(queue, queue, 1)
        if settle(worker, work, 0):
            break
    end(worker)
    return done


@compiled("int64(int64, int64)")
def run_forward(address: int, rounds: int) -> int:
    """Queues come in pairs: what one receives the other one sends, unchanged, and the other way round."""
    worker = worker_at(address)
    queues = as_i64(worker.queues)
    begin(worker)
    done = 0
    while done < rounds and load_acquire64(address + STOP) == 0:
        done += 1
        work = i64(0)
        for pair in range(worker.queue_count // 2):
            first, second = queue_at(queues[2 * pair]), queue_at(queues[2 * pair + 1])
            work += hand_over(first, second, 0)
            work += hand_over(second, first, 0)
        if settle(worker, work, 0):
            break
    end(worker)
    return done


@compiled("int64(int64, int64)")
def run_latency(address: int, rounds: int) -> int:
    """One packet there and back at a time, for each queue."""
    worker = worker_at(address)
    queues = as_i64(worker.queues)
    begin(worker)
    done = 0
    while done < rounds and load_acquire64(address + STOP) == 0:
        done += 1
        work = i64(0)
        for number in range(worker.queue_count):
            work += ping(queue_at(queues[number]), worker.scratch)
        settle(worker, work, next_due(worker))
        if is_sent(worker):
            break
    end(worker)
    return done


@compiled("int64(int64, int64)")
def run_loss(address: int, rounds: int) -> int:
    """Queues with a source send numbered packets; those with a check look at what comes."""
    worker = worker_at(address)
    queues = as_i64(worker.queues)
    begin(worker)
    done = 0
    while done < rounds and load_acquire64(address + STOP) == 0:
        done += 1
        work = i64(0)
        for number in range(worker.queue_count):
            queue = queue_at(queues[number])
            if queue.source != 0:
                work += send(queue, worker.scratch)
            if queue.check != 0:
                work += verify(queue)
        if settle(worker, work, next_due(worker)):
            break
    end(worker)
    return done
