"""Order and fate: packets come out as they went in unless asked otherwise, and a seed decides the same each time."""

from __future__ import annotations

import threading

import pytest

from tests.real.lab_rig import dropped, lost_by, pair

pytestmark = pytest.mark.root

CHANGES = [
    {"owd": "8ms"},
    {"owd": "0", "jitter": "0"},
    {"rate": "20Mbit"},
    {"jitter": "4ms", "jitter_distribution": "uniform"},
    {"rate": None},
    {"owd": "1ms", "jitter": "2ms", "jitter_distribution": "normal", "rate": "90Mbit", "overhead": "L1"},
]


@pytest.mark.parametrize("engine", [{}, {"workers": 2}], ids=["one worker", "two workers"])
def test_order_is_kept_through_jitter_and_updates_under_load(engine):
    with pair(engine=engine, owd="5ms", jitter="3ms", rate="100Mbit", queue="2000packets") as made:
        flows = [made.flow(), made.flow(reverse=True)]
        senders = [threading.Thread(target=flow.send, args=(800, 300)) for flow in flows]
        for sender in senders:
            sender.start()
        updates = 0
        while any(sender.is_alive() for sender in senders) or updates < len(CHANGES):
            made.link.update(**CHANGES[updates % len(CHANGES)])
            updates += 1
        for sender, flow in zip(senders, flows, strict=True):
            sender.join()
            flow.empty()
            assert dropped(flow.direction) == {}
            assert flow.numbers() == list(range(800))
            assert flow.counters.updates == updates


def test_free_order_reorders_and_loses_nothing():
    with pair(owd="6ms", jitter="6ms", jitter_distribution="uniform", order="free") as made:
        flow = made.flow()
        flow.send(400)
        flow.empty()
        numbers = flow.numbers()
        assert sorted(numbers) == list(range(400))
        assert numbers != sorted(numbers)


def lost_with(seed: int) -> set[int]:
    with pair(engine={"seed": seed}, loss="10%", jitter="100us", owd="200us") as made:
        flow = made.flow()
        flow.send(500)
        flow.empty()
        return lost_by(flow.numbers(), 500)


def test_the_same_seed_loses_the_same_packets():
    first = lost_with(seed=7)
    assert len(first) > 0
    assert lost_with(seed=7) == first
    assert lost_with(seed=8) != first


def test_the_seed_holds_through_an_update_of_the_loss():
    """One draw a packet at any probability: what is lost at 5 % is lost at 10 % as well."""
    with pair(engine={"seed": 7}, loss=0) as made:
        flow = made.flow()
        flow.send(100)
        made.link.forward.update(loss="10%")
        flow.send(400, first=100)
        flow.empty()
        late = lost_by(flow.numbers(), 500)
    always = lost_with(seed=7)
    assert late == {number for number in always if number >= 100}
