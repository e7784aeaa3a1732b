"""The timing wheel against a sorted list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.pure.support_engine import WHEEL_FLOOR, WHEEL_NEXT, WHEEL_POP, WHEEL_PUSH, WHEEL_SPAN, wheel_call
from xskit.emulator.significance import LATE_LEAST_NS
from xskit.engine.packets import INFINITE_NS
from xskit.engine.sizes import LONGEST_HORIZON_NS, MAX_BUCKETS, MAX_SHIFT, MIN_SHIFT
from xskit.engine.wheel import EMPTY, Wheel, memory_for, place, ticks_for
from xskit.memory import Region, record_view, size_of
from xskit.xsk.path.lines import PacketLine
from xskit.xsk.path.sizes import LINE_SHIFT

RECORD_BYTES = (size_of(Wheel) + 63) // 64 * 64
PACKETS = 40
SECOND_NS = 1_000_000_000


class PlainWheel:
    """A wheel with a packet table of its own."""

    def __init__(self, buckets: int, shift: int, packets: int = PACKETS) -> None:
        self._memory = Region(RECORD_BYTES + memory_for(buckets))
        self._table = Region(packets << LINE_SHIFT)
        self.address = self._memory.address
        self.view = record_view(Wheel, self.address)
        place(self.view, self.address + RECORD_BYTES, buckets, shift)

    def push(self, time_ns: int, handle: int) -> None:
        wheel_call(WHEEL_PUSH, self.address, self._table.address, time_ns, handle)

    def pop(self) -> tuple[int, int]:
        """(handle, exact time)."""
        handle = wheel_call(WHEEL_POP, self.address, self._table.address, 0, 0)
        return handle, record_view(PacketLine, self._table.address + (handle << LINE_SHIFT)).time_ns

    def ask(self, what: int) -> int:
        return wheel_call(what, self.address, 0, 0, 0)

    def close(self) -> None:
        self._memory.close()
        self._table.close()


@pytest.fixture
def small() -> Iterator[PlainWheel]:
    made = PlainWheel(4096, 8)
    yield made
    made.close()


@given(st.integers(0, LONGEST_HORIZON_NS))
def test_the_plan_spans_the_horizon_with_the_finest_tick(horizon_ns: int) -> None:
    buckets, shift = ticks_for(horizon_ns)
    assert buckets & (buckets - 1) == 0
    assert 4096 <= buckets <= MAX_BUCKETS
    assert (buckets - 2) << shift >= horizon_ns - (1 << shift) + 1
    if shift > MIN_SHIFT:
        assert (horizon_ns >> (shift - 1)) + 2 > MAX_BUCKETS, "a finer tick would have done"
    if buckets > 4096:
        assert (horizon_ns >> shift) + 2 > buckets // 2, "half as many buckets would have done"


def test_a_tick_is_never_so_long_that_it_makes_a_run_invalid() -> None:
    assert ticks_for(LONGEST_HORIZON_NS) == (MAX_BUCKETS, MAX_SHIFT)
    assert 1 << MAX_SHIFT < LATE_LEAST_NS
    with pytest.raises(AssertionError, match="refused"):
        ticks_for(LONGEST_HORIZON_NS + 1)


def test_an_empty_wheel_has_no_time(small: PlainWheel) -> None:
    assert small.ask(WHEEL_NEXT) == small.ask(WHEEL_FLOOR) == INFINITE_NS
    assert small.view.first == EMPTY


@pytest.mark.parametrize("bucket", [0, 1, 62, 63, 64, 65, 4031, 4032, 4094, 4095])
@pytest.mark.parametrize("ahead", [1, 63, 64, 65, 2048, 4094, 4095])
def test_the_next_bucket_is_found_from_any_place(small: PlainWheel, bucket: int, ahead: int) -> None:
    start = 7 * 4096 + bucket
    small.push(start << 8, 1)
    small.push((start + ahead) << 8, 2)
    assert small.ask(WHEEL_NEXT) == (start + 1) << 8
    assert small.pop() == (1, start << 8)
    assert small.ask(WHEEL_NEXT) == (start + ahead + 1) << 8
    assert small.pop() == (2, (start + ahead) << 8)


@pytest.mark.parametrize("buckets", [8192, 1 << 18])
def test_the_summary_is_searched_across_its_words_and_round(buckets: int) -> None:
    wheel = PlainWheel(buckets, 10)
    try:
        for start in (5 * buckets, 6 * buckets - 3, 6 * buckets - 4096, 6 * buckets - 64):
            wheel.push(start << 10, 1)
            wheel.push((start + buckets - 1) << 10, 2)
            assert wheel.pop() == (1, start << 10)
            assert wheel.pop() == (2, (start + buckets - 1) << 10)
            wheel.view.now = 0
    finally:
        wheel.close()


def test_inside_a_tick_packets_leave_as_they_came_with_their_exact_times(small: PlainWheel) -> None:
    times = [(5 << 8) + offset for offset in (200, 3, 255, 0, 3)]
    for handle, time_ns in enumerate(times):
        small.push(time_ns, handle)
    assert small.ask(WHEEL_NEXT) == 6 << 8
    assert small.ask(WHEEL_FLOOR) == 5 << 8
    assert [small.pop() for _ in times] == list(enumerate(times))


def test_a_packet_that_is_late_goes_into_the_present_tick(small: PlainWheel) -> None:
    small.push(100 << 8, 1)
    small.push(200 << 8, 2)
    small.pop()
    small.push(30 << 8, 3)
    assert small.ask(WHEEL_NEXT) == 101 << 8
    assert small.pop() == (3, 30 << 8)
    assert small.pop() == (2, 200 << 8)


def test_an_idle_wheel_jumps_any_distance(small: PlainWheel) -> None:
    for time_ns in (0, 1 << 40, 1 << 61):
        small.push(time_ns, 1)
        assert small.ask(WHEEL_NEXT) == ((time_ns >> 8) + 1) << 8
        assert small.pop() == (1, time_ns)


class AgainstASortedList(RuleBasedStateMachine):
    """A clock that runs forward, packets up to the horizon ahead of it, and everything due popped in between."""

    @initialize(
        plan=st.sampled_from([(4096, 8), (4096, 15), (8192, 8)]),
        start_ns=st.one_of(st.just(0), st.integers(0, 1 << 60)),
    )
    def begin(self, plan: tuple[int, int], start_ns: int) -> None:
        self.wheel = PlainWheel(*plan)
        self.shift = plan[1]
        self.span_ns = self.wheel.ask(WHEEL_SPAN)
        assert self.span_ns == (plan[0] - 2) << self.shift
        self.now_ns = start_ns
        self.model: list[tuple[int, int, int, int]] = []  # tick, order of arrival, handle, time
        self.free = list(range(PACKETS))
        self.pushed = 0

    @precondition(lambda self: self.free)
    @rule(data=st.data())
    def push(self, data: st.DataObject) -> None:
        ahead = st.one_of(
            st.integers(0, self.span_ns), st.integers(0, 3 << self.shift), st.just(self.span_ns), st.just(0)
        )
        time_ns = self.now_ns + data.draw(ahead)
        handle = self.free.pop(data.draw(st.integers(0, len(self.free) - 1)))
        self.wheel.push(time_ns, handle)
        self.model.append((time_ns >> self.shift, self.pushed, handle, time_ns))
        self.model.sort()
        self.pushed += 1

    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        near = st.integers(0, 4 << self.shift)
        self.now_ns += data.draw(st.one_of(near, st.integers(0, self.span_ns), st.integers(0, 1 << 50)))
        self.pop_what_is_due()

    @precondition(lambda self: self.model)
    @rule(before=st.integers(0, 1))
    def advance_to_the_edge_of_a_tick(self, before: int) -> None:
        """The end of the first tick is the earliest time at which it may be popped."""
        self.now_ns = max(((self.model[0][0] + 1) << self.shift) - before, self.now_ns)
        self.pop_what_is_due()

    def pop_what_is_due(self) -> None:
        while self.wheel.ask(WHEEL_NEXT) <= self.now_ns:
            _, _, handle, time_ns = self.model.pop(0)
            assert self.wheel.pop() == (handle, time_ns)
            self.free.append(handle)

    @invariant()
    def same_first(self) -> None:
        tick = self.model[0][0] if self.model else None
        assert self.wheel.ask(WHEEL_NEXT) == (INFINITE_NS if tick is None else (tick + 1) << self.shift)
        assert self.wheel.ask(WHEEL_FLOOR) == (INFINITE_NS if tick is None else tick << self.shift)
        assert self.wheel.view.count == len(self.model)

    def teardown(self) -> None:
        if self.model:
            self.now_ns = self.model[-1][3] + (1 << self.shift)
            self.pop_what_is_due()
        assert not self.model
        self.wheel.close()


TestAgainstASortedList = AgainstASortedList.TestCase
