"""What the loops know: a worker, its queues, and what belongs to some of them.

    BenchWorker --> BenchQueue --> Receiver, Transmitter   the queue's ends, as everybody's are (xsk/path)
                                   Source                  packets to send, lying ready in their frames
                                   Check                   what received packets must look like
                                   Echo                    the packet that is on its way there and back

Every record is written by one worker only; the stop and halt words by somebody else, and only they.
"""

from __future__ import annotations

from xskit.memory import I64, Record, offset_of, record_at


class BenchQueue(Record):
    """One socket: addresses of records; 0: it has no such thing."""

    receiver: I64
    transmitter: I64
    partner: I64  # the BenchQueue that sends what this one receives
    source: I64
    check: I64
    echo: I64
    batch: I64
    arrivals: I64  # address of as many Arrival records
    polls: I64


class Source(Record):
    """Packets to send."""

    pool: I64  # address of a Pool that has the first frame of each packet that lies ready
    frames: I64  # of a packet
    length: I64
    left: I64  # packets yet to send
    halt: I64  # set from outside: send no more
    stamp_offset: I64  # of the pktgen header in the packet; 0: packets are all alike
    clock: I64  # CLOCK_... of its time
    sequence: I64
    cycle_ns: I64  # one batch each so often; 0: as fast as it goes
    due_ns: I64
    cycles: I64  # how late batches left
    late_min_ns: I64
    late_max_ns: I64
    late_sum_ns: I64


class Check(Record):
    """What comes must be `template`, but for MAC addresses and the pktgen header; numbers must follow one another."""

    template: I64
    length: I64
    stamp_offset: I64
    seen: I64  # address of a bitmap of the latest WINDOW numbers
    next: I64  # the number after the highest one that came
    unique: I64
    duplicates: I64
    reordered: I64
    corrupted: I64


class Echo(Record):
    """Ping-pong: one packet is under way at a time."""

    histogram: I64
    waiting: I64
    sent_ns: I64
    patience_ns: I64
    lost: I64
    strangers: I64  # packets that came and were not the one that was waited for
    sum_ns: I64
    count: I64
    min_ns: I64
    max_ns: I64


class BenchWorker(Record):
    """A thread in a loop."""

    stop: I64
    queues: I64  # address of the addresses of its BenchQueue records
    queue_count: I64
    limit: I64  # stop by itself when so many packets were received
    done: I64  # work: packets sent, frames received
    poll: I64
    descriptors: I64  # pollfd entries
    descriptor_count: I64
    scratch: I64
    idle: I64  # the last round found nothing to do
    looked_ns: I64  # when the last round without work ended
    busy_since_ns: I64
    busy_ns: I64
    meter: I64  # measure CPU time: it costs two system calls each time work begins and ends
    stretch_cpu_ns: I64  # CPU clock and `done` after the first round of the work that is going on
    stretch_done: I64
    metered_ns: I64  # CPU time and work of all rounds but the first ones
    metered: I64
    started_ns: I64
    stopped_ns: I64
    started_cpu_ns: I64  # the thread's CPU clock, outermost: whoever calls the loop is not in it
    stopped_cpu_ns: I64


WINDOW = 1 << 16
"""Numbers that may be overtaken and still be told from duplicates."""

STOP = offset_of(BenchWorker, "stop")
HALT = offset_of(Source, "halt")

queue_at = record_at(BenchQueue)
source_at = record_at(Source)
check_at = record_at(Check)
echo_at = record_at(Echo)
worker_at = record_at(BenchWorker)
