"""The loop: receive, pipeline, release what is due, kick, reap, refill. Compiled once, for every pipeline.

    for each direction:   RX -> batch -> run(pipeline) -> exit FIFO -> TX -> kick -> COMPLETION -> FILL
    then                  control bits, conservation, and wait: spin, or sleep until shortly before the next departure

It allocates nothing, takes no lock and touches no Python object. Others set the stop word or control bits, and wake
it by the eventfd that it polls.
"""

from __future__ import annotations

from xskit.engine.clock import empty_eventfd, read_clock, wait
from xskit.engine.fifo import count, fifo_at
from xskit.engine.histogram import BUCKETS
from xskit.engine.packets import INFINITE_NS, Counters, DropCause, counters_at
from xskit.engine.pipe import pipe_at
from xskit.engine.receive import UNADMITTED, admit, gather, refill_all
from xskit.engine.records import (
    BATCH,
    EGRESS_BYTES,
    EXIT_BYTES,
    LONGEST_SLEEP_NS,
    PIPELINES,
    SNAPSHOT,
    SPIN_AFTER_NS,
    SPIN_BEFORE_NS,
    STALL_NS,
    Direction,
    Worker,
    direction_at,
    egress_at,
    exit_at,
    worker_at,
)
from xskit.engine.transmit import collect_all, transmit
from xskit.jit import (
    as_i64,
    as_u32,
    call_pointer,
    compiled,
    i64,
    inlined,
    load_acquire64,
    store_release64,
)
from xskit.memory import offset_of
from xskit.xsk.path.receive import ARRIVAL_BYTES, arrival_at
from xskit.xsk.path.transmit import DOWN_RETRY_NS, RETRY_NS

STOP = offset_of(Worker, "stop")
CONTROL = offset_of(Worker, "control")
LOSS = int(DropCause.LOSS)


@inlined
def measure_anew(direction: Direction, counters: Counters) -> None:
    """An update took force: what is achieved counts from there on."""
    direction.updates = counters.updates
    direction.since_ns = pipe_at(direction.block).effective_ns
    direction.owd_base_ns = direction.coming_base_ns
    direction.earlier_limit_ns = direction.late_limit_ns
    direction.late_limit_ns = direction.coming_limit_ns
    drops = as_i64(counters.drops)
    offered = counters.received
    for cause in UNADMITTED:
        offered -= drops[2 * cause]
    direction.since_offered = offered
    direction.since_lost = drops[2 * LOSS]
    buckets = as_i64(direction.owd)
    for bucket in range(BUCKETS):
        buckets[bucket] = 0


@inlined
def turn(direction: Direction, control: int, scratch: int) -> int:
    """One turn of a direction; returns how much was done."""
    found = entries = gather(direction)
    now_ns = read_clock(scratch)
    if found > 0:
        entries = admit(direction, found, now_ns)
    if entries > 0 or now_ns >= direction.next_ns or control != 0:
        until_ns = now_ns
        if found == BATCH and entries > 0:  # more may wait in RX: nothing is final that came after the last one read
            until_ns = arrival_at(direction.rx_batch + (entries - 1) * ARRIVAL_BYTES).time_ns
        direction.next_ns = call_pointer(direction.run, direction.block, direction.rx_batch, entries, until_ns)
        counters = counters_at(direction.counters)
        counters.clock_ns = now_ns
        if counters.updates != direction.updates:
            measure_anew(direction, counters)
    sent = i64(0)
    for port in range(direction.exit_count):
        leaving = exit_at(direction.exits + port * EXIT_BYTES)
        sent += transmit(direction, leaving, scratch)
        sent += collect_all(leaving, now_ns)
    refill_all(direction)  # always: frames also come home by drops, and FILL may have got room meanwhile
    return entries + sent


@inlined
def next_departure(worker: Worker) -> int:
    """The earliest event of all directions; 0 when something is waiting already."""
    earliest = INFINITE_NS
    directions = as_i64(worker.directions)
    for number in range(worker.direction_count):
        direction = direction_at(directions[number])
        for port in range(direction.exit_count):
            if count(fifo_at(direction.exits + port * EXIT_BYTES)) > 0:
                return 0
        earliest = min(earliest, direction.next_ns)
    return earliest


@inlined
def completion_wait(worker: Worker) -> int:
    """How long to sleep at most while frames lie in TX or with a driver, which no poll of ours would tell."""
    longest = i64(LONGEST_SLEEP_NS)
    directions = as_i64(worker.directions)
    for number in range(worker.direction_count):
        direction = direction_at(directions[number])
        for port in range(direction.exit_count):
            leaving = exit_at(direction.exits + port * EXIT_BYTES)
            for queue in range(leaving.egress_count):
                egress = egress_at(leaving.egress + queue * EGRESS_BYTES)
                if egress.outstanding > 0:
                    longest = min(longest, DOWN_RETRY_NS if egress.down else RETRY_NS)
    return longest


@inlined
def take_snapshot(worker: Worker) -> None:
    """Copy a reading to where a reader finds them whole."""
    triples = as_i64(worker.copies)
    for number in range(worker.copy_count):
        origin = as_i64(triples[3 * number])
        target = as_i64(triples[3 * number + 1])
        for word in range(triples[3 * number + 2] >> 3):
            target[word] = origin[word]


@inlined
def obey(worker: Worker, address: int, control: int) -> None:
    """Do what the control bits ask for, then clear them: that is the answer.

    The wake-up that came with them is taken, too: else no sleep would last until the asker has the CPU to take it.
    """
    empty_eventfd(i64(as_u32(worker.descriptors)[0]), worker.scratch)
    if control & SNAPSHOT:
        take_snapshot(worker)
    store_release64(address + CONTROL, 0)


@compiled("int64(int64, int64)")
def run_worker(address: int, rounds: int) -> int:
    """The loop of the Worker record at an address, until its stop word is set or `rounds` rounds are over.

    Returns the number of rounds. `rounds` 0 does nothing: it makes sure that the loop is compiled.
    """
    worker = worker_at(address)
    if rounds == 0:
        return 0
    directions = as_i64(worker.directions)
    scratch = worker.scratch
    last_ns = read_clock(scratch)
    worker.started_ns = last_ns
    worker.last_busy_ns = last_ns
    done = 0
    while done < rounds and load_acquire64(address + STOP) == 0:
        done += 1
        control = load_acquire64(address + CONTROL)
        work = 0
        for number in range(worker.direction_count):
            work += turn(direction_at(directions[number]), control & PIPELINES, scratch)
        if control != 0:
            obey(worker, address, control)
        worker.loops += 1
        now_ns = read_clock(scratch)
        if now_ns - last_ns > STALL_NS + work * 20_000:
            worker.host_stalls += 1
            worker.stall_ns += now_ns - last_ns
            worker.longest_stall_ns = max(worker.longest_stall_ns, now_ns - last_ns)
        if work > 0:
            worker.busy += 1
            worker.busy_ns += now_ns - last_ns
            worker.last_busy_ns = now_ns
        last_ns = now_ns
        if work > 0 or control != 0 or worker.spin or now_ns - worker.last_busy_ns < SPIN_AFTER_NS:
            continue  # after an order too: the wake-up just taken may have been for the stop word
        horizon_ns = next_departure(worker) - now_ns
        if horizon_ns <= SPIN_BEFORE_NS:
            continue
        sleep_ns = min(horizon_ns - SPIN_BEFORE_NS, completion_wait(worker))
        worker.sleeps += 1
        wait(worker.descriptors, worker.descriptor_count, sleep_ns, scratch)
        last_ns = read_clock(scratch)
    worker.stopped_ns = read_clock(scratch)
    return done
