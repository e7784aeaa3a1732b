"""The frame pool against a model: owners, and that check() finds what is wrong."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from xskit.xsk.oldpool import FramePool

from xskit.xsk.path.owner import FrameError, Owner

HANDED_OUT = [owner for owner in Owner if owner not in (Owner.FREE, Owner.RX, Owner.COMPLETION)]


class Pool(RuleBasedStateMachine):
    @initialize(frames=st.integers(1, 40))
    def make(self, frames):
        self.pool = FramePool(frames)
        self.owners = dict.fromkeys(range(frames), Owner.FREE)

    @rule(count=st.integers(0, 50), user=st.sampled_from(HANDED_OUT))
    def take(self, count, user):
        free = [frame for frame, owner in self.owners.items() if owner == Owner.FREE]
        taken = self.pool.take(count, user)
        assert len(taken) == len(set(taken)) == min(count, len(free))
        assert set(taken) <= set(free)
        self.owners.update(dict.fromkeys(taken, user))

    @rule(data=st.data(), origin=st.sampled_from(HANDED_OUT), then=st.sampled_from(list(Owner)))
    def move(self, data, origin, then):
        frame = data.draw(st.sampled_from(sorted(self.owners)))
        if self.owners[frame] == origin:
            self.pool.move(frame, origin, then)
            self.owners[frame] = then
        else:
            with pytest.raises(FrameError, match=f"it was {self.owners[frame].name}"):
                self.pool.move(frame, origin, then)

    @invariant()
    def every_frame_is_where_the_model_says(self):
        if hasattr(self, "pool"):
            counts = Counter(self.owners.values())
            assert self.pool.free == counts[Owner.FREE]
            assert self.pool.check(()) == {owner: counts[owner] for owner in Owner}


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_frames_in_rings_are_counted_where_they_are_seen():
    pool = FramePool(8)
    filled, sent = pool.take(3, Owner.FILL), pool.take(2, Owner.TX)
    counts = pool.check([(filled[0], Owner.RX, Owner.FILL), (sent[0], Owner.COMPLETION, Owner.TX)])
    assert counts == {
        Owner.FREE: 3, Owner.FILL: 2, Owner.RX: 1, Owner.HELD: 0, Owner.TX: 1, Owner.COMPLETION: 1,
    }  # fmt: skip


def test_check_finds_a_frame_in_two_rings():
    pool = FramePool(4)
    (frame,) = pool.take(1, Owner.FILL)
    with pytest.raises(FrameError, match=f"^frame {frame} is in two places: RX and FILL$"):
        pool.check([(frame, Owner.RX, Owner.FILL), (frame, Owner.FILL, Owner.FILL)])


def test_check_finds_a_frame_whose_owner_is_another():
    pool = FramePool(4)
    (frame,) = pool.take(1, Owner.HELD)
    with pytest.raises(FrameError, match=f"^frame {frame} is in TX, but its owner is HELD$"):
        pool.check([(frame, Owner.TX, Owner.TX)])


def test_check_finds_a_frame_that_does_not_exist():
    with pytest.raises(FrameError, match="^RX holds frame 4: there are only 4$"):
        FramePool(4).check([(4, Owner.RX, Owner.FILL)])


def test_check_finds_a_free_frame_in_a_ring():
    pool = FramePool(2)
    (frame,) = pool.take(1, Owner.HELD)
    pool.move(frame, Owner.HELD, Owner.FREE)
    with pytest.raises(FrameError, match="in two places: FREE and TX"):
        pool.check([(frame, Owner.TX, Owner.TX)])


def test_a_frame_outside_the_memory_does_not_move():
    with pytest.raises(FrameError, match="^there is no frame 2: there are only 2$"):
        FramePool(2).move(2, Owner.FILL, Owner.HELD)
