"""How workers run: pinned, one or two, spinning or asleep when there is nothing to do."""

from __future__ import annotations

import os
import time

import pytest

from tests.real.lab_rig import pair, wait_until

pytestmark = pytest.mark.root

TWO = {"workers": 2}


def workers_of(made):
    return made.link.emulator._workers


@pytest.mark.parametrize("engine", [{}, TWO, {"spin": True}], ids=["one", "two", "spinning"])
def test_packets_cross_in_both_directions(engine):
    with pair(engine=engine, owd="1ms") as made:
        for flow in (made.flow(), made.flow(reverse=True)):
            flow.send(100)
            assert flow.take(100)[-1].number == 99
        report = made.link.report()
        assert len(report.workers) == engine.get("workers", 1)
        assert {worker.mode for worker in report.workers} == {"spin" if engine.get("spin") else "adaptive"}


def test_two_workers_have_a_direction_each():
    with pair(engine=TWO) as made:
        forward, reverse = workers_of(made)
        assert forward.directions == [made.link.forward.live]
        assert reverse.directions == [made.link.reverse.live]


def test_workers_are_pinned_where_they_were_told():
    cpus = sorted(os.sched_getaffinity(0))
    wanted = (cpus[0], cpus[-1])
    with pair(engine={**TWO, "cpus": wanted}) as made:
        for worker, cpu in zip(workers_of(made), wanted, strict=True):
            wait_until(lambda worker=worker: worker.view.loops > 0, "the worker is in its loop")
            assert os.sched_getaffinity(worker._thread.native_id) == {cpu}
        assert [worker.cpu for worker in made.link.report().workers] == list(wanted)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process has one CPU")
def test_two_links_have_their_workers_on_different_cpus(monkeypatch, tmp_path):
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path))  # whoever else runs links on this machine does not count
    with pair() as made:
        other = made.lab.link(made.lab.host("c"), made.lab.host("d"))
        cpus = [worker.cpu for link in (made.link, other) for worker in link.report().workers]
        assert len(set(cpus)) == 2
        made.link.close()
        third = made.lab.link(made.lab.host("e"), made.lab.host("f"))
        assert [worker.cpu for worker in third.report().workers] == cpus[:1]


def loops_while_asleep(made) -> list[float]:
    """Loops a second of each worker, while nothing comes."""
    before = [(worker.view.loops, time.monotonic()) for worker in workers_of(made)]
    time.sleep(0.5)
    return [
        (worker.view.loops - loops) / (time.monotonic() - begun)
        for worker, (loops, begun) in zip(workers_of(made), before, strict=True)
    ]


@pytest.mark.parametrize("engine", [{}, TWO], ids=["one", "two"])
def test_a_worker_with_nothing_to_do_sleeps(engine):
    with pair(engine=engine) as made:
        flow = made.flow()
        flow.send(10)
        flow.empty()
        for worker in workers_of(made):
            slept = worker.view.sleeps
            wait_until(lambda worker=worker, slept=slept: worker.view.sleeps > slept + 2, "the worker sleeps")
        # It wakes for snapshots, ten a second, and once a second by itself; a spinning loop would do a million.
        assert max(loops_while_asleep(made)) < 1000


def test_a_worker_sleeps_until_shortly_before_a_departure():
    with pair(owd="1s") as made:
        flow = made.flow()
        flow.send(1)
        (worker,) = workers_of(made)
        loops = worker.view.loops
        flow.empty()
        # It spins for the last 150 us and is woken for snapshots in between.
        assert flow.take(1)[0].owd_ns >= 1_000_000_000
        assert worker.view.loops - loops < 100_000
        assert worker.view.sleeps > 0


def test_a_spinning_worker_never_sleeps():
    with pair(engine={"spin": True}) as made:
        (worker,) = workers_of(made)
        loops = worker.view.loops
        wait_until(lambda: worker.view.loops > loops + 1000, "the worker spins")
        assert worker.view.sleeps == 0


def test_a_worker_stops_once_and_for_all():
    with pair() as made:
        flow = made.flow()
        flow.send(5)
        flow.empty()
        made.stop_workers()
        made.stop_workers()
        (worker,) = workers_of(made)
        assert not worker.running
        first, second = worker.snapshot(), worker.snapshot()
        assert first.whole
        assert first.worker == second.worker
        assert first.readings[0].counters.sent == 5
