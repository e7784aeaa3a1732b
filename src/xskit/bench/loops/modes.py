"""The loop itself. What a queue does in its turn follows from what it has:

partner        sends what it received out of that one; out of itself, with the MAC addresses swapped
source         sends what lies ready
check          compares what it received
echo, source   sends one packet and waits for it
nothing        drops what it received
"""

from __future__ import annotations

from xskit.bench.loops.echo import ping
from xskit.bench.loops.receive import drop, hand_over, verify
from xskit.bench.loops.records import STOP, BenchQueue, BenchWorker, echo_at, queue_at, source_at, worker_at
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


@inlined
def turn(queue: BenchQueue, address: int, scratch: int) -> int:
    """A queue's turn; returns how many packets it sent or frames it received."""
    if queue.partner != 0:
        return hand_over(queue, queue_at(queue.partner), queue.partner == address)
    if queue.echo != 0:
        return ping(queue, scratch)
    if queue.source == 0 and queue.check == 0:
        return drop(queue)
    work = i64(0)
    if queue.source != 0:
        work += send(queue, scratch)
    if queue.check != 0:
        work += verify(queue)
    return work


@inlined
def is_over(worker: BenchWorker) -> bool:
    """There are only sources, all of them have sent what they should, all frames are back, and no echo is awaited."""
    queues = as_i64(worker.queues)
    for number in range(worker.queue_count):
        queue = queue_at(queues[number])
        if queue.source == 0 or queue.check != 0 or source_at(queue.source).left > 0:
            return False
        if transmitter_at(queue.transmitter).outstanding > 0:
            return False
        if queue.echo != 0 and echo_at(queue.echo).waiting:
            return False
    return True


@compiled("int64(int64, int64)")
def run(address: int, rounds: int) -> int:
    """The loop of the BenchWorker at an address: at most so many rounds over its queues, until the stop word is set,
    the limit is reached, or its sources are through. Returns how many rounds it were."""
    worker = worker_at(address)
    queues = as_i64(worker.queues)
    begin(worker)
    done = 0
    while done < rounds and load_acquire64(address + STOP) == 0:
        done += 1
        work = i64(0)
        for number in range(worker.queue_count):
            work += turn(queue_at(queues[number]), queues[number], worker.scratch)
        if settle(worker, work) or (work == 0 and is_over(worker)):
            break
    end(worker)
    return done
