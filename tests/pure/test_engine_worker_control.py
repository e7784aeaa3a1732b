"""The loop's clockwork, on ordinary memory: arrival stamps, orders, its thread, and sleep."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.pure.support_checksums import UDP, Spec
from tests.pure.support_kernel import HEADROOM_BYTES, PlainEngine, engine, stages
from tests.pure.support_pipeline import MS
from xskit.engine import thread
from xskit.engine.clock import monotonic_ns
from xskit.engine.live import NO_LIMIT_NS
from xskit.engine.packets import Counters
from xskit.engine.records import PIPELINES, SNAPSHOT
from xskit.engine.worker import CONTROL, STOP
from xskit.jit import load_word, store_word
from xskit.memory import array_at, record_view

HOUR_NS = 3600 * 1000 * MS
PACKET = bytes(range(100))


def arrived_ns(made: PlainEngine) -> int:
    """When the only packet inside came, as the engine has it."""
    (frame,) = made.direction.census()["held"]
    return made.line(frame).arrived_ns


# --- stamps -----------------------------------------------------------------------------------------------------


def test_a_packet_came_when_the_kernel_says() -> None:
    with engine(stages(HOUR_NS)) as made:
        stamp_ns = monotonic_ns() - 5 * MS
        made.ingress[0].receive(PACKET, stamp_ns=stamp_ns)
        made.run()
        assert arrived_ns(made) == stamp_ns
        assert (made.counters.unstamped, made.counters.clamped) == (0, 0)


def test_a_stamp_is_used_up_so_that_a_later_packet_cannot_find_it() -> None:
    with engine(stages(HOUR_NS)) as made:
        made.ingress[0].receive(PACKET, stamp_ns=monotonic_ns())
        made.run()
        (frame,) = made.direction.census()["held"]
        assert made.memory.array(1, np.int64, offset=(frame << 11) + HEADROOM_BYTES - 8)[0] == 0


@pytest.mark.parametrize("ahead_ns", [None, HOUR_NS])
def test_without_a_stamp_or_with_one_from_the_future_it_came_with_the_batch(ahead_ns: int | None) -> None:
    with engine(stages(HOUR_NS)) as made:
        before_ns = monotonic_ns()
        made.ingress[0].receive(PACKET, stamp_ns=0 if ahead_ns is None else before_ns + ahead_ns)
        made.run()
        assert before_ns <= arrived_ns(made) <= monotonic_ns()
        assert made.counters.unstamped == 1


def test_what_the_loop_has_looked_past_is_moved_to_the_watermark_and_counted() -> None:
    """The pipeline sees the watermark; the packet itself keeps the time at which it came."""
    with engine(stages(0)) as made:
        made.run(2)
        watermark_ns = made.direction.pipeline.watermark_ns
        made.ingress[0].receive(PACKET, stamp_ns=watermark_ns - 700)
        made.run()
        counters = made.counters
        assert (counters.clamped, counters.clamped_ns, counters.unstamped) == (1, 700, 0)
        leaving = made.direction.pipeline.exits[0]
        assert array_at(leaving.entries, 2, np.int64)[0] == watermark_ns


def test_stamps_of_several_queues_are_put_in_order() -> None:
    with engine(stages(HOUR_NS), queues=2) as made:
        now_ns = monotonic_ns()
        made.ingress[0].receive(PACKET, stamp_ns=now_ns - 1000)
        made.ingress[1].receive(PACKET, stamp_ns=now_ns - 3000)
        made.run()
        assert (made.counters.clamped, made.counters.clamped_ns) == (1, 2000)


# --- what else happens on arrival -------------------------------------------------------------------------------


def test_partial_checksums_are_finished_on_arrival() -> None:
    spec = Spec(4, UDP)
    with engine(finish_checksums=True) as made:
        made.ingress[0].receive(spec.packet(spec.pseudo))
        made.ingress[0].receive(spec.packet(spec.right))
        assert made.through() == [spec.packet(spec.right)] * 2
        assert made.counters.checksums == 1


def test_or_left_alone_where_none_are_expected() -> None:
    spec = Spec(4, UDP)
    with engine() as made:
        made.ingress[0].receive(spec.packet(spec.pseudo))
        assert made.through() == [spec.packet(spec.pseudo)]


# --- orders -----------------------------------------------------------------------------------------------------


def test_a_stop_word_that_is_set_ends_the_loop_before_it_begins() -> None:
    with engine() as made:
        store_word(made.worker.address + STOP, 1)
        assert made.worker.run_rounds(1000) == 0


def test_no_rounds_are_no_rounds() -> None:
    with engine() as made:
        assert made.worker.run_rounds(0) == 0
        assert made.worker.view.loops == 0


def test_an_update_takes_force_on_an_idle_link_when_pipelines_are_run() -> None:
    with engine() as made:
        made.run(3)
        made.direction.pipeline.stage_update(stages(HOUR_NS), 0)
        store_word(made.worker.address + CONTROL, PIPELINES)
        made.run()
        assert not made.direction.pipeline.pending
        assert load_word(made.worker.address + CONTROL) == 0
        made.ingress[0].receive(PACKET)
        made.run()
        assert made.counters.in_flight == 1


def test_what_is_achieved_is_measured_anew_after_an_update() -> None:
    with engine() as made:
        for _ in range(3):
            made.ingress[0].receive(PACKET)
        made.through()
        assert made.direction.reading().owd().sum() == 3
        made.direction.pipeline.stage_update(stages(), 0)
        store_word(made.worker.address + CONTROL, PIPELINES)
        made.run()
        achieved = made.direction.achieved()
        assert made.direction.reading().owd().sum() == 0
        assert (achieved.since_offered, achieved.since_lost) == (3, 0)
        made.ingress[0].receive(PACKET)
        made.through()
        assert made.direction.reading().owd().sum() == 1


def test_packets_that_leave_later_than_the_limit_are_counted() -> None:
    for limit_ns, late in ((0, 2), (NO_LIMIT_NS, 0)):
        with engine() as made:
            made.direction.view.late_limit_ns = limit_ns
            for _ in range(2):
                made.ingress[0].receive(PACKET)
            made.through()
            assert made.direction.achieved().late == late
            assert made.direction.reading().lateness().sum() == 2


def test_each_packet_has_the_limit_under_which_it_came() -> None:
    with engine(stages(5 * MS)) as made:
        record = made.direction.view
        record.coming_limit_ns = 0
        made.ingress[0].receive(PACKET)
        made.run(2)
        for update in (False, True):
            if update:
                made.direction.pipeline.stage_update(stages(), 0)
            store_word(made.worker.address + CONTROL, PIPELINES)
            made.run()
        assert (record.earlier_limit_ns, record.late_limit_ns) == (NO_LIMIT_NS, 0)
        while made.counters.sent == 0:
            made.through()
        assert record.late == 0
        made.ingress[0].receive(PACKET)
        while made.counters.sent == 1:
            made.through()
        assert record.late == 1


@pytest.mark.parametrize(("limit_ns", "late"), [(700, 0), (699, 1)])
def test_arrivals_that_were_moved_by_more_than_the_limit_are_counted(limit_ns: int, late: int) -> None:
    with engine(stages(0)) as made:
        made.direction.view.late_limit_ns = limit_ns
        made.run(2)
        made.ingress[0].receive(PACKET, stamp_ns=made.direction.pipeline.watermark_ns - 700)
        made.run()
        assert made.direction.achieved().moved_late == late


def test_packets_that_no_stage_met_are_not_offered() -> None:
    with engine() as made:
        made.direction.view.max_length = len(PACKET) - 1
        made.ingress[0].receive(PACKET)
        made.run()
        made.direction.pipeline.stage_update(stages(), 0)
        store_word(made.worker.address + CONTROL, PIPELINES)
        made.run()
        assert (made.counters.received, made.direction.achieved().since_offered) == (1, 0)


def test_what_came_before_an_update_for_the_past_is_not_measured_against_it() -> None:
    with engine(stages(5 * MS)) as made:
        made.ingress[0].receive(PACKET)
        made.run(2)
        assert made.counters.in_flight == 1
        for update in (False, True):
            if update:
                made.direction.pipeline.stage_update(stages(), 0)
            store_word(made.worker.address + CONTROL, PIPELINES)
            made.run()
        while made.counters.sent == 0:
            made.through()
        assert made.direction.reading().owd().sum() == 0


def test_a_snapshot_is_a_copy_of_one_moment() -> None:
    with engine() as made:
        made.ingress[0].receive(PACKET)
        made.run(2)
        store_word(made.worker.address + CONTROL, SNAPSHOT)
        made.run()
        triples = array_at(made.worker.view.copies, 3 * made.worker.view.copy_count, np.int64).reshape(-1, 3)
        block = made.direction.pipeline
        copy = {origin: target for origin, target, _ in triples.tolist()}[block.block]
        made.ingress[0].receive(PACKET)
        made.run()
        assert record_view(Counters, copy + block.counters_offset).received == 1
        assert made.counters.received == 2


def test_a_snapshot_of_a_worker_that_stands_still_is_the_state_it_stands_in() -> None:
    with engine() as made:
        made.ingress[0].receive(PACKET)
        made.run(2)
        snapshot = made.worker.snapshot()
        assert snapshot.readings[0].counters.received == 1
        assert snapshot.outstanding == [1]
        assert snapshot.worker.loops == 2


def test_a_stall_while_a_snapshot_is_taken_is_none_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(zero_copy=True) as made:
        made.ingress[0].receive(PACKET)
        made.run(3)
        clock = [monotonic_ns()]

        def ask_and_stall(_bits: int) -> bool:
            clock[0] += HOUR_NS
            return False

        monkeypatch.setattr(thread, "monotonic_ns", lambda: clock[0])
        monkeypatch.setattr(made.worker, "_ask", ask_and_stall)
        snapshot = made.worker.snapshot()
        assert (snapshot.outstanding, snapshot.stuck_ns[0] < HOUR_NS) == ([1], True)


# --- its thread -------------------------------------------------------------------------------------------------


class InterruptedThread(threading.Thread):
    """One that is started in the moment of a Ctrl-C."""

    def start(self) -> None:
        signal.raise_signal(signal.SIGINT)
        super().start()


def test_an_interrupt_waits_until_the_thread_is_known_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be taken for ended, and its memory would be given back while it runs."""
    monkeypatch.setattr(thread.threading, "Thread", InterruptedThread)
    with engine() as made:
        with pytest.raises(KeyboardInterrupt):
            made.worker.start()
        assert made.worker.running
        made.worker.stop()


def test_no_signal_is_for_the_thread() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with engine() as made:
        made.worker.start()
        status = Path(f"/proc/self/task/{made.worker._thread.native_id}/status").read_text()
        blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
        assert all(blocked >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
        made.worker.stop()


def test_a_worker_whose_cpu_is_gone_says_so() -> None:
    with engine() as made:
        made.worker.cpu = 99_999
        made.worker.start()
        made.worker._thread.wait()
        assert made.worker.failure == "a worker cannot run on CPU 99999: Invalid argument"
        assert made.worker.view.loops == 0


# --- sleep ------------------------------------------------------------------------------------------------------


def test_an_idle_worker_sleeps_until_it_is_woken() -> None:
    with engine(spin=False) as made:
        descriptors = array_at(made.worker.view.descriptors, 1, np.int32)
        os.eventfd_write(int(descriptors[0]), 1)
        while made.worker.view.sleeps == 0:
            made.run(100)


def test_a_worker_that_waits_for_completions_sleeps_shortly() -> None:
    with engine(spin=False) as made:
        made.ingress[0].receive(PACKET)
        while made.worker.view.sleeps == 0:
            made.run(100)
        assert made.direction.egress().outstanding == 1
        assert made.through() == [PACKET]


def test_a_held_packet_leaves_when_it_is_due() -> None:
    with engine(stages(MS), spin=False) as made:
        made.ingress[0].receive(PACKET, stamp_ns=monotonic_ns())
        left = []
        while not left:
            made.run()
            left = made.egress[0].send()
        lateness, owd = made.direction.reading().lateness(), made.direction.reading().owd()
        assert lateness.sum() == owd.sum() == 1
        assert lateness[0] == 0, "never before its time"
