"""What always holds in a pipeline, in virtual time, against a second implementation that is slow and obvious."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.reference import Reference, Settings
from tests.pure.support_pipeline import (
    FREE,
    HORIZON_NS,
    KEPT,
    MS,
    arrivals,
    dropped,
    pipeline,
    play,
    stops,
    updates,
)
from xskit.engine.packets import DropCause
from xskit.engine.wheel import ticks_for
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.delay import Delay, Jitter
from xskit.stages.delay_free import FreeDelay
from xskit.stages.loss import Loss
from xskit.units import QueueLimit

BOTH = pytest.mark.parametrize("kinds", [KEPT, FREE], ids=["order kept", "order free"])


@BOTH
@given(data=st.data())
def test_everything_is_as_in_the_reference(kinds: st.SearchStrategy[Settings], data: st.DataObject) -> None:
    """Fate, order and time of every packet, to the nanosecond, whatever is updated and wherever batches end."""
    traffic = data.draw(arrivals())
    start = data.draw(kinds)
    changes = data.draw(updates(traffic, kinds))
    seed = data.draw(st.integers(0, 1 << 32))
    reference = Reference(start, seed, "test", shift=ticks_for(HORIZON_NS)[1])
    expected = reference.run(traffic, changes)
    with pipeline(start.stages, seed=seed) as made:
        assert play(made, traffic, changes, data.draw(stops(traffic))) == expected
        assert made.pipeline.reading().counters.updates == len(changes)
        for cause in (DropCause.LOSS, DropCause.QUEUE_FULL):
            assert dropped(made, cause) == [why for _, why in reference.drops].count(cause)


CHAINS = {
    "default": lambda s: s.stages,
    "free order": lambda s: [s.loss, s.bottleneck, FreeDelay(s.delay.owd_ns, s.delay.jitter_ns, s.delay.distribution)],
    "everything twice": lambda s: [
        FreeDelay(s.delay.owd_ns, s.delay.jitter_ns, s.delay.distribution),
        s.bottleneck,
        s.loss,
        s.delay,
        s.loss,
    ],
}


@pytest.mark.parametrize("chain", CHAINS)
@given(data=st.data())
def test_departures_do_not_depend_on_how_packets_are_batched(chain: str, data: st.DataObject) -> None:
    """Any split of the arrivals, any schedule of watermarks, updates in between: the same run."""
    traffic = data.draw(arrivals(largest=20))
    changes = [(time_ns, CHAINS[chain](s)) for time_ns, s in data.draw(updates(traffic, KEPT))]
    start = CHAINS[chain](data.draw(KEPT))
    runs = []
    for where in ([], data.draw(stops(traffic)), [(time_ns, True) for time_ns, _ in traffic]):
        with pipeline(start) as made:
            staged = [(time_ns, _Chain(stages)) for time_ns, stages in changes]
            runs.append((play(made, traffic, staged, where), made.pipeline.reading().dropped()))
    assert runs[0] == runs[1] == runs[2]


class _Chain(Settings):
    """Settings that are a list of stages already."""

    def __init__(self, stages: list[Loss | Bottleneck | Delay]) -> None:
        object.__setattr__(self, "_stages", stages)

    @property
    def stages(self) -> list[Loss | Bottleneck | Delay]:
        return self._stages


HALFWAY = [(800, True), (1010, True)]
"""Watermarks inside a tick of 256 ns."""


@pytest.mark.parametrize("where", [[], HALFWAY], ids=["at once", "in steps"])
def test_what_follows_a_free_delay_waits_for_the_end_of_its_tick(where: list[tuple[int, bool]]) -> None:
    """The second packet reaches the bottleneck at 1000, while the first is in there until 1005: no room.

    It is known at 1024, the end of its tick, only; the bottleneck must not be found idle by then.
    """
    with pipeline([FreeDelay(500), Bottleneck(4 * 10**9, limit=QueueLimit("packets", 1))]) as made:
        assert play(made, [(267, 119), (500, 119)], (), where) == [(0, 1005, 119)]
        assert dropped(made, DropCause.QUEUE_FULL) == 1


def test_an_update_inside_such_a_tick_takes_nothing_back() -> None:
    """At 1010 the first packet has left, at 1005, though that is not known yet."""
    slow = [FreeDelay(500), Bottleneck(10**9)]
    with pipeline([FreeDelay(500), Bottleneck(4 * 10**9)]) as made:
        left = play(made, [(267, 119), (500, 119)], [(1010, _Chain(slow))], HALFWAY)
    assert left == [(0, 1005, 119), (1, 1005 + 119 * 8, 119)]


@given(data=st.data())
def test_order_is_kept_whatever_the_jitter_and_the_updates(data: st.DataObject) -> None:
    traffic = data.draw(arrivals())
    with pipeline(data.draw(KEPT).stages) as made:
        left = play(made, traffic, data.draw(updates(traffic, KEPT)), data.draw(stops(traffic)))
    assert [packet.number for packet in left] == sorted(packet.number for packet in left)
    assert [packet.time_ns for packet in left] == sorted(packet.time_ns for packet in left)
    assert all(packet.time_ns >= traffic[packet.number][0] for packet in left), "nothing leaves before it came"
    assert all(packet.length == traffic[packet.number][1] for packet in left)


@given(data=st.data())
def test_nothing_leaves_later_than_the_watermark_or_earlier_than_the_last_one(data: st.DataObject) -> None:
    """Live, the clock stands for the watermark: what is in the exit is due."""
    traffic = data.draw(arrivals())
    with pipeline(data.draw(KEPT).stages) as made:
        last_ns = -1
        for number, arrival in enumerate(traffic):
            until_ns = traffic[number + 1][0] if number + 1 < len(traffic) else arrival[0]
            left = made.run([arrival], until_ns)
            assert all(last_ns <= packet.time_ns <= until_ns for packet in left)
            assert made.next_ns > until_ns, "and nothing that is due stays inside"
            last_ns = until_ns


SOME = Settings(Loss(0.2), Bottleneck(10**7, limit=QueueLimit("packets", 8)), Delay(5 * MS, MS, Jitter.NORMAL))
TRAFFIC = [(1000 + 700_000 * n, 100 + n) for n in range(300)]


def fate(seed: int, name: str = "a", *, settings: Settings = SOME, changes: list[tuple[int, Settings]] | None = None):
    with pipeline(settings.stages, seed=seed, name=name) as made:
        return play(made, TRAFFIC, changes or [])


def test_the_same_seed_is_the_same_fate_at_the_same_times() -> None:
    assert fate(1) == fate(1)
    assert fate(1) != fate(2), "another seed is another run"
    assert fate(1) != fate(1, "b"), "another direction is another run"


def lost(departures) -> set[int]:
    return set(range(len(TRAFFIC))) - {packet.number for packet in departures}


def test_an_update_changes_only_what_it_names_and_only_from_its_time_on() -> None:
    """Times before it are as they were; the draws of loss are the same packet by packet, after it too."""
    split = 150
    base = Settings(Loss(0.2), Bottleneck(), Delay(5 * MS))
    later = Settings(Loss(0.2), Bottleneck(), Delay(9 * MS))
    before, after = fate(1, settings=base), fate(1, settings=base, changes=[(TRAFFIC[split][0], later)])
    assert lost(before) == lost(after)
    assert [p.time_ns - TRAFFIC[p.number][0] for p in before] == [5 * MS] * len(before)
    assert [p.time_ns - TRAFFIC[p.number][0] for p in after] == [5 * MS if p.number < split else 9 * MS for p in after]


def test_a_changed_probability_leaves_the_stream_of_draws_where_it_was() -> None:
    """Whoever is lost at 10 % is also lost at 20 %, and after the change as if it had always been so."""
    split = 150
    few, many = (Settings(Loss(p), Bottleneck(), Delay(MS)) for p in (0.1, 0.2))
    changed = lost(fate(1, settings=few, changes=[(TRAFFIC[split][0], many)]))
    assert {n for n in changed if n < split} == {n for n in lost(fate(1, settings=few)) if n < split}
    assert {n for n in changed if n >= split} == {n for n in lost(fate(1, settings=many)) if n >= split}
    assert lost(fate(1, settings=few)) < lost(fate(1, settings=many))


def test_a_shorter_owd_never_overtakes_what_is_in_flight() -> None:
    shorter = Settings(Loss(), Bottleneck(), Delay(0))
    left = fate(1, settings=Settings(Loss(), Bottleneck(), Delay(20 * MS)), changes=[(TRAFFIC[50][0], shorter)])
    assert [packet.number for packet in left] == list(range(len(TRAFFIC)))
    assert left[49].time_ns == left[50].time_ns == TRAFFIC[49][0] + 20 * MS, "it waits for the one ahead"
    assert left[-1].time_ns == TRAFFIC[-1][0]


def test_an_update_that_comes_too_late_takes_force_at_the_watermark() -> None:
    with pipeline(SOME.stages) as made:
        made.run([], 10 * MS)
        made.pipeline.stage_update(Settings(Loss(1.0)).stages, 3 * MS)
        assert made.pipeline.pending
        assert made.run([(10 * MS, 100)], 10 * MS) == []
        assert not made.pipeline.pending
        assert dropped(made, DropCause.LOSS) == 1


def test_an_update_to_come_is_the_next_event() -> None:
    with pipeline(Settings().stages) as made:
        made.run([], MS)
        made.pipeline.stage_update(Settings(Loss(1.0)).stages, 7 * MS)
        made.run([], 2 * MS)
        assert made.next_ns == 7 * MS
        assert made.pipeline.pending
        made.run([], 7 * MS)
        assert not made.pipeline.pending


def test_more_packets_than_were_planned_for_are_dropped_as_such() -> None:
    with pipeline(Settings(delay=Delay(MS)).stages, packets=10) as made:
        left = made.run([(0, 100)] * 25, 10 * MS)
        assert [packet.number for packet in left] == list(range(10))
        assert dropped(made, DropCause.MEMORY_FULL) == 15
        left = made.run([(20 * MS + 2 * MS * n, 100) for n in range(25)], 200 * MS)
        assert [packet.number for packet in left] == list(range(25, 50)), "what has left makes room"
