"""The packet table and its frame pools against a model, and that check() finds whatever is wrong."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.pure.support_path import GIVE, GIVE_PACKET, MOVE, TAKE, call
from xskit.memory import record_view, size_of
from xskit.xsk.path.books import Books
from xskit.xsk.path.lines import NIL, PacketLine
from xskit.xsk.path.owner import FrameError, Owner
from xskit.xsk.path.pool import POOL_BYTES, PacketMemory, Pool
from xskit.xsk.path.sizes import LINE_BYTES
from xskit.xsk.path.table import FramePool, PacketTable

OUT = [owner for owner in Owner if owner not in (Owner.FREE, Owner.RX, Owner.COMPLETION)]


@pytest.fixture
def table():
    with PacketTable(8) as made:
        yield made


@pytest.fixture
def pool(table):
    with FramePool(table, 0, 8) as made:
        yield made


def take(pool: FramePool, count: int, owner: Owner) -> list[int]:
    """So many free frames, for an owner."""
    frames = [call(TAKE, pool.address, 0, 0, 0) for _ in range(count)]
    assert all(move(pool, frame, Owner.FREE, owner) for frame in frames)
    return frames


def move(pool: FramePool, frame: int, origin: Owner, target: Owner) -> bool:
    return bool(call(MOVE, pool.address, frame, origin, target))


def give(pool: FramePool, frame: int) -> None:
    """A held frame comes home."""
    assert move(pool, frame, Owner.HELD, Owner.FREE)
    call(GIVE, pool.address, frame, 0, 0)


# --- against a model --------------------------------------------------------------------------------------------


class Pools(RuleBasedStateMachine):
    """Two pools of one table; frames go from owner to owner, alone and as packets, some of them wrongly."""

    @initialize(first=st.integers(1, 20), second=st.integers(1, 20))
    def make(self, first, second):
        self.table = PacketTable(first + second)
        self.pools = [FramePool(self.table, 0, first), FramePool(self.table, first, second)]
        self.stacks = [list(range(first - 1, -1, -1)), list(range(first + second - 1, first - 1, -1))]
        self.owners = dict.fromkeys(range(first + second), Owner.FREE)
        self.packets: list[list[int]] = []
        self.wrong = [0, 0]

    def home(self, frame):
        return int(frame >= self.pools[1].view.first)

    @rule(number=st.integers(0, 1), owner=st.sampled_from(OUT))
    def take(self, number, owner):
        if self.stacks[number]:
            (frame,) = take(self.pools[number], 1, owner)
            assert frame == self.stacks[number].pop()
            self.owners[frame] = owner
            if owner == Owner.HELD:
                self.packets.append([frame])

    @rule(data=st.data(), origin=st.sampled_from(OUT), then=st.sampled_from(OUT))
    def move(self, data, origin, then):
        frame = data.draw(st.sampled_from(sorted(self.owners)))
        moved = move(self.pools[0], frame, origin, then)
        assert moved == (self.owners[frame] == origin)
        if not moved:
            self.wrong[self.home(frame)] += 1
            return
        self.owners[frame] = then
        self.packets = [packet for packet in self.packets if frame not in packet]
        if then == Owner.HELD:
            self.packets.append([frame])
        for packet in self.packets:
            self.join(packet)

    def join(self, packet):
        for frame, following in zip(packet, [*packet[1:], NIL], strict=True):
            record_view(PacketLine, self.table.address + frame * LINE_BYTES).fragment = following

    @precondition(lambda self: self.packets)
    @rule(data=st.data(), count=st.integers(1, 4))
    def a_packet_comes_home(self, data, count):
        joined: list[int] = []
        for _ in range(min(count, len(self.packets))):
            joined += self.packets.pop(data.draw(st.integers(0, len(self.packets) - 1)))
        self.join(joined)
        assert call(GIVE_PACKET, self.table.memory, joined[0], 0, 0) == len(joined)
        for frame in joined:
            self.owners[frame] = Owner.FREE
            self.stacks[self.home(frame)].append(frame)

    @rule(first=st.sampled_from(OUT), data=st.data())
    def a_packet_comes_home_as_far_as_it_is_held(self, first, data):
        """Behind a frame that is not held, none is looked at: it may be another packet's."""
        number = data.draw(st.integers(0, 1))
        if len(self.stacks[number]) < 3:
            return
        packet = take(self.pools[number], 3, Owner.HELD)
        assert packet == [self.stacks[number].pop() for _ in range(3)]
        self.join(packet)
        held = data.draw(st.integers(0, 2)) if first != Owner.HELD else 3
        if held < 3:
            assert move(self.pools[0], packet[held], Owner.HELD, first)
            self.wrong[number] += 1
        assert call(GIVE_PACKET, self.table.memory, packet[0], 0, 0) == held
        for place, frame in enumerate(packet):
            self.owners[frame] = Owner.FREE if place < held else first if place == held else Owner.HELD
            if place < held:
                self.stacks[number].append(frame)
            elif self.owners[frame] == Owner.HELD:
                self.packets.append([frame])

    @rule(data=st.data())
    def a_packet_that_is_not_held_does_not(self, data):
        away = [frame for frame, owner in self.owners.items() if owner != Owner.HELD]
        if away:
            frame = data.draw(st.sampled_from(away))
            assert call(GIVE_PACKET, self.table.memory, frame, 0, 0) == 0
            self.wrong[self.home(frame)] += 1

    @invariant()
    def every_frame_is_where_the_model_says(self):
        if not hasattr(self, "pools"):
            return
        assert self.table.owners().tolist() == [self.owners[frame] for frame in sorted(self.owners)]
        for number, pool in enumerate(self.pools):
            assert pool.stack().tolist() == self.stacks[number]
            assert pool.free == len(self.stacks[number])
            assert pool.view.violations == self.wrong[number]
            pool.view.violations = self.wrong[number] = 0
            counts = Counter(owner for frame, owner in self.owners.items() if self.home(frame) == number)
            assert pool.check() == {owner: counts[owner] for owner in Owner}

    def teardown(self):
        if hasattr(self, "pools"):
            for made in (*self.pools, self.table):
                made.close()


TestPools = Pools.TestCase
TestPools.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# --- check() ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("frame", [8, -1])
def test_check_finds_a_frame_that_does_not_exist(pool, frame):
    with pytest.raises(FrameError, match=f"^RX holds frame {frame}: there are frames 0 to 7$"):
        pool.check([(frame, Owner.RX, Owner.FILL)])


def test_check_finds_a_free_frame_in_a_ring(pool):
    (frame,) = take(pool, 1, Owner.HELD)
    give(pool, frame)
    with pytest.raises(FrameError, match=f"^frame {frame} is in two places: FREE and TX$"):
        pool.check([(frame, Owner.TX, Owner.TX)])


def test_check_finds_a_frame_that_is_free_twice(pool):
    (frame,) = take(pool, 1, Owner.HELD)
    give(pool, frame)
    take(pool, 2, Owner.HELD)
    for _ in range(2):
        call(GIVE, pool.address, frame, 0, 0)
    with pytest.raises(FrameError, match="^a frame is free twice$"):
        pool.check()


def test_check_finds_a_frame_on_the_stack_that_somebody_has(pool):
    (frame,) = take(pool, 1, Owner.TX)
    call(GIVE, pool.address, frame, 0, 0)
    with pytest.raises(FrameError, match=f"^frame {frame} is on the free stack, but its owner is TX$"):
        pool.check()


def test_check_finds_a_frame_that_is_lost(pool):
    (frame,) = take(pool, 1, Owner.HELD)
    assert move(pool, frame, Owner.HELD, Owner.FREE)
    with pytest.raises(FrameError, match="^8 frames are free, but 7 can be had: some are lost$"):
        pool.check()


def test_check_finds_a_move_that_did_not_start_where_the_frame_was(pool):
    for frame in (5, 3):
        assert not move(pool, frame, Owner.TX, Owner.FREE)
    with pytest.raises(FrameError, match="^2 moves did not start where the frame was; the first was frame 5$"):
        pool.check()


def test_check_finds_a_frame_on_the_stack_of_another_pool(table):
    with FramePool(table, 0, 3) as first, FramePool(table, 3, 5) as second:
        assert (first.check()[Owner.FREE], second.check()[Owner.FREE]) == (3, 5)
        take(second, 1, Owner.HELD)
        call(GIVE, second.address, 2, 0, 0)
        with pytest.raises(FrameError, match="^frame 2 is on the free stack of frames 3 to 7$"):
            second.check()
        second.view.count -= 1
        with pytest.raises(FrameError, match="^TX holds frame 2: there are frames 3 to 7$"):
            second.check([(2, Owner.TX, Owner.TX)])


def test_check_finds_a_frame_that_forgot_its_home(table):
    with FramePool(table, 0, 3), FramePool(table, 3, 5) as second:
        table.lines["home"][4] = 0
        with pytest.raises(FrameError, match="^a frame does not know its home$"):
            second.check()


# --- the table --------------------------------------------------------------------------------------------------


def test_a_line_is_a_cache_line_and_a_pool_another():
    assert size_of(PacketLine) == LINE_BYTES == 64
    assert size_of(Pool) == POOL_BYTES == 64


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize(("frame_bytes", "shift"), [(2048, 11), (4096, 12), (3000, -1), (1, 0)])
def test_the_memory_is_described_for_compiled_code(frame_bytes, shift, unaligned):
    with PacketTable(16, base=1 << 30, frame_bytes=frame_bytes, unaligned=unaligned, shared=True) as table:
        memory = record_view(PacketMemory, table.memory)
        assert (memory.base, memory.frames, memory.frame_bytes, memory.frame_shift) == (
            1 << 30, 16, frame_bytes, -1 if unaligned else shift,
        )  # fmt: skip
        assert (memory.unaligned, memory.shared, memory.lock, memory.table) == (unaligned, 1, 0, table.address)
        assert table.address % 64 == 0


def test_the_lock_has_a_cache_line_that_nothing_else_is_in():
    """It is written by every batch of every thread; what lies beside it is only read."""
    with PacketTable(4) as table:
        memory = record_view(PacketMemory, table.memory)
        lock = table.memory + 64
        memory.lock = 1
        assert table._records.view[64] == 1
        assert memory.pools >= lock + 64


def test_pools_share_a_table_and_are_told_apart():
    with PacketTable(10, pools=3) as table:
        made = [FramePool(table, first, count) for first, count in ((0, 2), (2, 5), (7, 3))]
        assert table.lines["home"].tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
        assert [pool.view.first for pool in made] == [0, 2, 7]
        assert [pool.stack().tolist() for pool in made] == [[1, 0], [6, 5, 4, 3, 2], [9, 8, 7]]
        with pytest.raises(AssertionError, match="fewer pools"):
            FramePool(table, 0, 1)
        for pool in made:
            pool.close()


def test_books_are_a_pool_s_own_or_those_that_it_is_given(table):
    with FramePool(table, 0, 4) as first, FramePool(table, 4, 4, books=first.view.books) as second:
        first.books.sent = 7
        assert second.books.sent == 7
        assert first.books.drops != 0
        assert size_of(Books) == 64


def test_views_keep_the_table_mapped():
    table = PacketTable(4)
    lines, view = table.lines, table.view
    table.close()
    lines["length"][3] = 77
    assert np.frombuffer(view, np.uint32)[3 * 16 + 6] == 77
    table.close()
