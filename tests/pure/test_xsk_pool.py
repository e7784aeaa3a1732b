"""Frame pools against a model: owners, and that check() finds what is wrong."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.pure.support_frames import moves, take
from xskit.xsk.path.owner import FrameError, Owner
from xskit.xsk.path.table import FramePool, PacketTable

HANDED_OUT = [owner for owner in Owner if owner not in (Owner.FREE, Owner.RX, Owner.COMPLETION)]


def pool_of(frames):
    return FramePool(PacketTable(frames), 0, frames)


class Pool(RuleBasedStateMachine):
    @initialize(frames=st.integers(1, 40))
    def make(self, frames):
        self.pool = pool_of(frames)
        self.owners = dict.fromkeys(range(frames), Owner.FREE)

    @rule(count=st.integers(0, 50), user=st.sampled_from(HANDED_OUT))
    def take(self, count, user):
        free = [frame for frame, owner in self.owners.items() if owner == Owner.FREE]
        taken = take(self.pool, count, user)
        assert len(taken) == len(set(taken)) == min(count, len(free))
        assert set(taken) <= set(free)
        self.owners.update(dict.fromkeys(taken, user))

    @rule(data=st.data(), origin=st.sampled_from(HANDED_OUT), then=st.sampled_from(HANDED_OUT))
    def move(self, data, origin, then):
        frame = data.draw(st.sampled_from(sorted(self.owners)))
        if self.owners[frame] == origin:
            assert moves(self.pool, frame, origin, then)
            self.owners[frame] = then

    @rule(data=st.data())
    def give(self, data):
        frame = data.draw(st.sampled_from(sorted(self.owners)))
        if self.owners[frame] != Owner.FREE:
            assert moves(self.pool, frame, self.owners[frame], Owner.FREE)
            self.owners[frame] = Owner.FREE

    @invariant()
    def every_frame_is_where_the_model_says(self):
        if hasattr(self, "pool"):
            counts = Counter(self.owners.values())
            assert self.pool.free == counts[Owner.FREE]
            assert self.pool.check(()) == {owner: counts[owner] for owner in Owner}

    def teardown(self):
        if hasattr(self, "pool"):
            self.pool.close()
            self.pool.table.close()


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.fixture
def pool():
    with PacketTable(8) as table, FramePool(table, 0, 8) as pool:
        yield pool


def test_frames_in_rings_are_counted_where_they_are_seen(pool):
    filled, sent = take(pool, 3, Owner.FILL), take(pool, 2, Owner.TX)
    counts = pool.check([(filled[0], Owner.RX, Owner.FILL), (sent[0], Owner.COMPLETION, Owner.TX)])
    assert counts == {
        Owner.FREE: 3, Owner.FILL: 2, Owner.RX: 1, Owner.HELD: 0, Owner.TX: 1, Owner.COMPLETION: 1,
    }  # fmt: skip


def test_check_finds_a_frame_in_two_rings(pool):
    (frame,) = take(pool, 1, Owner.FILL)
    with pytest.raises(FrameError, match=f"^frame {frame} is in two places: RX and FILL$"):
        pool.check([(frame, Owner.RX, Owner.FILL), (frame, Owner.FILL, Owner.FILL)])


def test_check_finds_a_frame_whose_owner_is_another(pool):
    (frame,) = take(pool, 1, Owner.HELD)
    with pytest.raises(FrameError, match=f"^frame {frame} is in TX, but its owner is HELD$"):
        pool.check([(frame, Owner.TX, Owner.TX)])


def test_check_finds_a_frame_that_does_not_exist(pool):
    with pytest.raises(FrameError, match="^RX holds frame 8: there are only 8$"):
        pool.check([(8, Owner.RX, Owner.FILL)])


def test_check_finds_a_free_frame_in_a_ring(pool):
    (frame,) = take(pool, 1, Owner.HELD)
    moves(pool, frame, Owner.HELD, Owner.FREE)
    with pytest.raises(FrameError, match="in two places: FREE and TX"):
        pool.check([(frame, Owner.TX, Owner.TX)])


def test_check_finds_a_frame_that_is_free_twice(pool):
    (frame,) = take(pool, 1, Owner.FILL)
    pool.view.count += 1  # it is still in its place of the stack
    with pytest.raises(FrameError, match=f"^frame {frame} is on the free stack, but its owner is FILL$"):
        pool.check()


def test_check_finds_a_frame_that_cannot_be_had(pool):
    pool.view.count -= 1
    with pytest.raises(FrameError, match="^8 frames are free, but 7 can be had: some are lost$"):
        pool.check()


def test_a_move_that_does_not_start_where_the_frame_is_is_not_made_but_counted(pool):
    first, second = take(pool, 2, Owner.HELD)
    assert not moves(pool, first, Owner.TX, Owner.FREE)
    assert not moves(pool, second, Owner.FILL, Owner.HELD)
    assert list(pool.table.owners()[[first, second]]) == [Owner.HELD, Owner.HELD]
    assert pool.free == 6
    with pytest.raises(FrameError, match=f"^2 moves did not start where the frame was; the first was frame {first}$"):
        pool.check()
