"""The whole loop on ordinary memory: the test is the kernel, on the other side of every ring."""

from __future__ import annotations

import errno
import os
import random
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.pure.reference import Settings
from tests.pure.support_kernel import FRAME_CAPACITY, HEADROOM_BYTES, PlainEngine, engine, stages
from tests.pure.support_pipeline import MS
from xskit.engine.clock import monotonic_ns
from xskit.engine.live import NO_FAULTS, EgressLimits, Faults
from xskit.engine.packets import DropCause
from xskit.stages.loss import Loss
from xskit.xsk.path import transmit

HOUR_NS = 3600 * 1000 * MS


def packet(number: int, length: int = 100) -> bytes:
    """A packet that tells whether it came through whole."""
    return random.Random(number).randbytes(length)


def test_a_packet_crosses_unchanged_and_is_counted_once_completed() -> None:
    with engine() as made:
        (ingress,), (egress,) = made.ingress, made.egress
        assert ingress.receive(packet(1))
        made.run(2)
        assert egress.send() == [packet(1)]
        made.run()
        assert (made.counters.sent, made.counters.in_flight) == (0, 1), "sent is what the kernel says is sent"
        egress.complete()
        made.run()
        counters = made.counters
        assert (counters.received, counters.sent, counters.in_flight) == (1, 1, 0)
        assert (counters.received_bytes, counters.sent_bytes, counters.in_flight_bytes) == (100, 100, 0)
        reading = made.direction.reading()
        assert reading.owd().sum() == reading.lateness().sum() == 1


@pytest.mark.parametrize("zero_copy", [False, True])
@pytest.mark.parametrize("spans", [(), (14,), (100, 1, 1, 1), (FRAME_CAPACITY, FRAME_CAPACITY)])
def test_a_packet_of_several_frames_crosses_as_one(spans: tuple[int, ...], zero_copy: bool) -> None:
    """Multi-buffer in zero copy needs ice, i40e or mlx5, which no emulated NIC is: here it is tested."""
    data = packet(2, 5000)
    with engine(zero_copy=zero_copy) as made:
        made.ingress[0].receive(data, spans=spans)
        assert made.through() == [data]
        assert (made.counters.received, made.counters.sent, made.counters.sent_bytes) == (1, 1, 5000)
        assert made.counters.peak_frames == len(spans) + -(-(5000 - sum(spans)) // FRAME_CAPACITY)


def test_a_packet_is_one_though_its_frames_come_in_several_turns() -> None:
    """RX shows the first frames of a packet before the last."""
    data = packet(3, 4000)
    with engine() as made:
        queue = made.ingress[0]
        queue.receive(data)
        position, queue.rx.position = queue.rx.position, queue.rx.position - 1
        queue.rx.publish_produced()
        made.worker.run_rounds(2)
        assert made.counters.received == 0, "not whole yet"
        queue.rx.position = position
        queue.rx.publish_produced()
        assert made.through() == [data]


def test_a_port_that_was_down_is_tried_again_once_the_kernel_has_sent_what_lay_in_its_ring() -> None:
    """A zero-copy driver sends that by itself when it comes up, and so nothing is left to try with."""
    with engine(zero_copy=True) as made:
        (ingress,), (egress,) = made.ingress, made.egress
        ingress.receive(packet(1))
        made.run(2)
        made.direction.egress().down = errno.ENETDOWN
        ingress.receive(packet(2))
        made.run(2)
        assert made.dropped(DropCause.PORT_DOWN) == 1, "it is down: what is due is lost"
        assert egress.send() == [packet(1)]
        egress.complete()
        made.run()
        ingress.receive(packet(3))
        assert made.through() == [packet(3)]
        assert made.direction.egress().down == 0
        assert made.dropped(DropCause.PORT_DOWN) == 1


@pytest.mark.plain_python
def test_while_the_port_is_down_what_is_due_is_lost_and_then_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code calls the real sendto."""
    with engine() as made:
        (ingress,), (egress,) = made.ingress, made.egress
        answer, sent = errno.ENETDOWN, []

        def sendto(_fd: int) -> int:
            if answer == 0:
                sent.extend(egress.send())
            return answer

        monkeypatch.setattr(transmit, "kick_transmit", sendto)
        egress.tx.need_wakeup(True)
        ingress.receive(packet(0))
        made.run()
        assert made.direction.egress().down == errno.ENETDOWN
        ingress.receive(packet(1))
        made.run()
        assert made.dropped(DropCause.PORT_DOWN) == 1
        answer = 0
        while made.direction.egress().down:
            made.run()
        ingress.receive(packet(2))
        made.run(2)
        assert sent == [packet(0), packet(2)], "what lay in TX was not lost"


def test_a_driver_that_takes_packets_and_completes_none_is_noticed_unless_its_port_is_down() -> None:
    """As igb does under a generic program: TX is taken, COMPLETION never comes."""
    with engine(zero_copy=True) as made:
        (ingress,), (egress,) = made.ingress, made.egress
        assert made.direction.stuck_ns(HOUR_NS * 24 * 365) == 0, "nothing was sent"
        ingress.receive(packet(1))
        before_ns = monotonic_ns()
        made.run(2)
        egress.send()
        made.run(2)
        after_ns = monotonic_ns()
        assert HOUR_NS <= made.direction.stuck_ns(after_ns + HOUR_NS) <= HOUR_NS + after_ns - before_ns
        made.direction.egress().down = errno.ENETDOWN
        assert made.direction.stuck_ns(after_ns + HOUR_NS) == 0, "no wonder"
        made.direction.egress().down = 0
        egress.complete()
        made.run(2)
        assert made.direction.stuck_ns(after_ns + HOUR_NS) == 0


@settings(max_examples=40, stateful_step_count=40)
class AnyTraffic(RuleBasedStateMachine):
    """Packets of any size, and a kernel that receives, sends and completes as it likes; small rings that wrap."""

    @initialize(first=st.integers(0, 5), frames=st.integers(20, 40), reserve=st.integers(8, 16))
    def begin(self, first: int, frames: int, reserve: int) -> None:
        self.engine = PlainEngine(
            stages(), frames=frames, fill_reserve=reserve, entries=16, limits=EgressLimits(7000, 4), first=first
        )
        self.came: list[bytes] = []
        self.left: list[bytes] = []

    @rule(length=st.one_of(st.integers(14, 1514), st.integers(14, 8000)))
    def receive(self, length: int) -> None:
        data = packet(len(self.came), length)
        if self.engine.ingress[0].receive(data):
            self.came.append(data)

    @rule(rounds=st.integers(1, 3))
    def run(self, rounds: int) -> None:
        self.engine.run(rounds)

    @rule(most=st.integers(1, 20))
    def send(self, most: int) -> None:
        self.left += self.engine.egress[0].send(most)

    @rule(most=st.integers(1, 20))
    def complete(self, most: int) -> None:
        self.engine.egress[0].complete(most)

    @invariant()
    def everything_is_somewhere(self) -> None:
        self.engine.check()

    def teardown(self) -> None:
        made = self.engine
        self.left += made.through(rounds=12)
        dropped = {cause: made.dropped(cause) for cause in DropCause}
        fits = [data for data in self.came if len(data) <= 7000]
        assert dropped.pop(DropCause.SUPER_PACKET) == len(self.came) - len(fits)
        full = dropped.pop(DropCause.MEMORY_FULL)
        assert not any(dropped.values())
        remaining = iter(fits)
        assert all(data in remaining for data in self.left), "whole, and in order"
        assert len(self.left) == len(fits) - full == made.counters.sent
        made.close()


TestAnyTraffic = AnyTraffic.TestCase


# --- what is dropped, and FILL ----------------------------------------------------------------------------------


def test_more_than_the_planned_memory_is_dropped_and_fill_never_starves() -> None:
    with engine(stages(HOUR_NS), frames=64, fill_reserve=16) as made:
        for number in range(200):
            assert made.ingress[0].receive(packet(number)), "there is always a frame in FILL"
            made.run()
        assert made.counters.in_flight == 48
        assert made.dropped(DropCause.MEMORY_FULL) == 200 - 48


def test_super_packets_are_dropped_and_fill_is_refilled_though_nothing_else_happens() -> None:
    with engine(limits=EgressLimits(max_length=1514)) as made:
        for number in range(200):
            assert made.ingress[0].receive(packet(number, 1515))
            made.run()
        assert made.dropped(DropCause.SUPER_PACKET) == 200
        made.ingress[0].receive(packet(1, 1514))
        assert made.through() == [packet(1, 1514)]


def test_packets_too_long_for_the_egress_port_only_are_no_super_packets() -> None:
    with engine(limits=EgressLimits(max_length=1514), wire_length=2000) as made:
        for length in (1514, 1515, 2000, 2001):
            made.ingress[0].receive(packet(1, length))
        made.run(2)
        assert (made.dropped(DropCause.EGRESS_MTU), made.dropped(DropCause.SUPER_PACKET)) == (2, 1)


def test_a_packet_in_more_frames_than_may_be_sent_is_dropped() -> None:
    with engine(limits=EgressLimits(9014, max_frames=3)) as made:
        made.ingress[0].receive(packet(1, 400), spans=(100, 100, 100))
        made.ingress[0].receive(packet(2, 400), spans=(100, 100))
        assert made.through() == [packet(2, 400)]
        assert made.dropped(DropCause.TOO_MANY_FRAGMENTS) == 1


def test_lost_packets_give_all_their_frames_back() -> None:
    with engine(Settings(Loss(1.0)).stages) as made:
        for number in range(100):
            assert made.ingress[0].receive(packet(number, 5000))
            made.run()
        assert made.dropped(DropCause.LOSS) == 100
        assert made.counters.in_flight_frames == 0


def test_a_kernel_that_takes_fill_in_whole_batches_and_says_so_late_is_never_waited_for() -> None:
    """Drivers that take 64 frames at once or none, as mlx5 does, while the consumer index stands still."""
    with engine(frames=256, fill_reserve=128, entries=128, batch=64) as made:
        left = []
        for number in range(2000):
            made.ingress[0].receive(packet(number))
            left += made.through(rounds=1)
        left += made.through()
        assert made.ingress[0].starved == 0
        assert left == [packet(number) for number in range(2000)]


def test_a_kernel_that_found_fill_empty_gets_frames_though_no_packet_comes() -> None:
    """It has used all it took while we did not run, and only then moved its index."""
    with engine(frames=256, fill_reserve=128, entries=128, batch=64) as made:
        queue = made.ingress[0]
        assert sum(queue.receive(packet(number)) for number in range(200)) == 128
        made.through(rounds=4)
        queue.fill.publish_taken()
        made.run()
        assert queue.receive(packet(1)), "the loop has looked at FILL though nothing was received"


def test_frames_come_home_through_drops_while_the_egress_is_down() -> None:
    with engine() as made:
        made.ingress[0].receive(packet(0))
        made.run(2)  # it lies in TX, and is what the port is tried with
        for number in range(100):
            made.direction.egress().down = errno.ENETDOWN
            assert made.ingress[0].receive(packet(number, 3000))
            made.run(2)
        assert made.dropped(DropCause.PORT_DOWN) == 100


def test_a_first_frame_that_is_full_again_before_the_last_one_is_completed() -> None:
    """Drivers complete frame by frame: what the packet was must not be forgotten with its first frame."""
    with engine(frames=8, fill_reserve=4, entries=8) as made:
        (ingress,), (egress,) = made.ingress, made.egress
        ingress.receive(packet(1, 5000))
        made.run(2)
        first = made.direction.census()["tx"][0]
        assert egress.send() == [packet(1, 5000)]
        egress.complete(2)
        made.run()
        for number in range(20):
            ingress.receive(packet(number, 60))
            made.run()
        assert made.line(first).length == 60, "the frame is another packet's now"
        egress.complete()
        made.run()
        assert (made.counters.sent, made.counters.sent_bytes) == (1, 5000)


def test_frames_that_go_astray_are_told_by_where_they_did() -> None:
    with engine() as made:
        assert made.direction.faults() == NO_FAULTS
        made.ingress[0].receive(packet(1))
        made.ingress[0].rx.put(HEADROOM_BYTES, 100)  # the frame of the packet before
        made.ingress[0].rx.put(-1, 100)
        made.egress[0].completion.put(1 << 40)
        made.worker.run_rounds(3)
        assert made.direction.faults() == Faults(misplaced=1, stray_received=2, stray_completed=1)
        assert made.direction.pool.view.violated == 0
        assert made.egress[0].send() == [packet(1)]
        made.egress[0].complete()
        made.worker.run_rounds(1)
        assert made.counters.sent == 1
        assert made.direction.egress().outstanding == made.direction.egress().outstanding_packets == 0


# --- queues -----------------------------------------------------------------------------------------------------


def test_all_queues_are_read_and_one_is_written_so_that_order_is_kept() -> None:
    with engine(queues=3, frames=256, fill_reserve=96) as made:
        for turn in range(5):
            for number, queue in enumerate(made.ingress):
                queue.receive(packet(10 * number + turn))
            made.run()
        first, *others = [queue.send() for queue in made.egress]
        assert [[data for data in first if data in queue] for queue in _by_queue(3, 5)] == _by_queue(3, 5)
        assert len(first) == 15
        assert others == [[], []]


def _by_queue(queues: int, packets: int) -> list[list[bytes]]:
    """What each queue got, in order."""
    return [[packet(10 * queue + n) for n in range(packets)] for queue in range(queues)]


def test_a_busy_queue_does_not_shut_out_a_quiet_one() -> None:
    with engine(queues=2, frames=512, fill_reserve=256, entries=128) as made:
        for number in range(128):
            made.ingress[0].receive(packet(number))
        made.ingress[1].receive(packet(999))
        made.run(2)
        assert packet(999) in [data for queue in made.egress for data in queue.send()]


def test_packets_wait_in_the_exit_while_tx_is_full() -> None:
    with engine(frames=64, fill_reserve=16, entries=16) as made:
        left = []
        for number in range(40):
            assert made.ingress[0].receive(packet(number))
            made.run()
        assert made.direction.reading().held() == 40 - 16
        for _ in range(60):
            left += made.egress[0].send(1)
            made.egress[0].complete(1)
            made.run()
        assert left == [packet(number) for number in range(40)]


@pytest.mark.parametrize("zero_copy", [False, True])
def test_a_socket_that_takes_nothing_neither_hangs_nor_loses(zero_copy: bool) -> None:
    """Kicks that bring nothing (a file that is no socket) are tried again later; the packets stay in TX."""
    with engine(zero_copy=zero_copy) as made:
        for queue in (*made.ingress, *made.egress):
            queue.tx.need_wakeup(True)
            queue.fill.need_wakeup(True)
        made.ingress[0].receive(packet(1))
        made.run(5)
        assert made.direction.egress().kicks > 0
        assert made.direction.egress().outstanding == made.direction.egress().outstanding_packets == 1
        assert made.through() == [packet(1)]
        assert made.direction.egress().outstanding == 0


def test_a_driver_that_is_awake_is_not_woken() -> None:
    with engine(zero_copy=True) as made:
        made.ingress[0].receive(packet(1))
        made.run(5)
        assert (made.direction.egress().kicks, made.direction.egress().outstanding) == (0, 1)
        made.egress[0].tx.need_wakeup(True)
        made.run(5)
        assert made.direction.egress().kicks > 0


def test_descriptors_do_not_leak() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with engine():
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_burst_that_takes_several_turns_keeps_its_stamps() -> None:
    """What waits in RX came before now: the watermark does not pass it by."""
    with engine(frames=512, fill_reserve=256, entries=256) as made:
        begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - 10_000_000
        stamps = [begun + 1000 * number for number in range(200)]
        for number, stamp in enumerate(stamps):
            assert made.ingress[0].receive(packet(number), stamp_ns=stamp)
        made.run(8)
        counters = made.direction.reading().counters
        assert (counters.received, counters.clamped, counters.unstamped) == (200, 0, 0)
        assert counters.clock_ns > stamps[-1]
