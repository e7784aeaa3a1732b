"""No packet and no frame is ever lost sight of: conservation at any moment under load, and a census at the end."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.real.lab_rig import assert_every_frame_is_somewhere, datagram, dropped, lost_by, pair, wait_until
from xskit.engine.clock import monotonic_ns
from xskit.engine.fifo import Fifo
from xskit.memory import array_at, record_view

pytestmark = pytest.mark.root

WAN = {"owd": "3ms", "jitter": "1ms", "rate": "50Mbit", "queue": "20packets", "loss": "3%"}


@pytest.mark.parametrize("engine", [{}, {"workers": 2}, {"spin": True}], ids=["one worker", "two workers", "spinning"])
def test_conservation_at_any_moment_under_load(engine):
    with pair(engine=engine, **WAN) as made:
        flows = [made.flow(), made.flow(reverse=True)]
        for first in range(0, 600, 100):
            senders = [threading.Thread(target=flow.send, args=(100,), kwargs={"first": first}) for flow in flows]
            for sender in senders:
                sender.start()
            looking = True
            while looking:  # at least once, however soon the others are done: the packets are inside for longer
                looking = any(sender.is_alive() for sender in senders)
                made.assert_books_balance()
            for sender in senders:
                sender.join()
        for flow in flows:
            flow.empty()
        made.stop_workers()
        for flow in flows:
            counters = flow.counters
            assert counters.received == 600
            drops = dropped(flow.direction)
            assert drops["loss"] > 0
            assert counters.sent + sum(drops.values()) == 600
            assert len(lost_by(flow.numbers(), 600)) == sum(drops.values())
        made.assert_books_balance()
        for direction in made.directions:
            places = assert_every_frame_is_somewhere(direction)
            assert places["held"] == places["tx"] == places["completion"] == places["rx"] == []
        report = made.link.close()
        assert not any("balance" in reason or "frames" in reason for reason in report.invalid_because)


def test_every_frame_is_somewhere_while_packets_are_inside():
    with pair(owd="1min", rate="1kbit", queue="100packets") as made:
        flow = made.flow()
        flow.send(150)
        made.stop_workers()
        places = assert_every_frame_is_somewhere(flow.direction)
        assert len(places["held"]) == flow.counters.in_flight == 100
        assert dropped(flow.direction) == {"queue_full": 50}
        made.assert_books_balance()


def test_packets_that_memory_has_no_room_for_are_counted():
    with pair(owd="1min", engine={"memory": "1MiB", "ring_size": 64}) as made:
        flow = made.flow()
        flow.send(300)
        room = made.link.emulator.plan.directions[0].packets
        assert dropped(flow.direction) == {"memory_full": 300 - room}
        made.assert_books_balance()
        made.stop_workers()
        assert len(assert_every_frame_is_somewhere(flow.direction)["held"]) == room


def test_arrival_times_are_the_kernels():
    with pair(owd="1ms") as made:
        flow = made.flow()
        flow.send(400)
        flow.empty()
        assert flow.counters.unstamped == 0
        assert made.link.report().links[0].directions[0].lateness_ns["unstamped"] == 0
        assert min(one.owd_ns for one in flow.take()) >= 1_000_000


def test_a_packet_that_had_to_wait_for_the_loop_keeps_its_arrival_time():
    with pair(owd="10s", engine={"memory": "16MiB"}) as made:
        flow = made.flow()
        live = flow.direction.live
        made.stop_workers()
        sent_ns = []
        for number in range(5):
            sent_ns.append(monotonic_ns())
            flow.sender.send(datagram(number, 100))
        wait_until(lambda: len(live.census()["rx"]) == 5, "the packets lie in RX")
        looked_ns = monotonic_ns()
        made.run_rounds(2)
        fifo = record_view(Fifo, live.reading().stage_state(2).fifo)
        entries = array_at(fifo.entries, 2 * (fifo.mask + 1), np.int64).reshape(-1, 2)[fifo.head : fifo.tail]
        arrived_ns = [time_ns - 10_000_000_000 for time_ns in entries[:, 0].tolist()]
        assert arrived_ns == sorted(arrived_ns)
        assert all(sent <= arrived for sent, arrived in zip(sent_ns, arrived_ns, strict=True))
        assert arrived_ns[-1] <= looked_ns
        assert flow.counters.unstamped == flow.counters.clamped == 0
