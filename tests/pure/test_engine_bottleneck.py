"""The bottleneck: its rate against exact fractions, its limits, and what a change of rate does."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.pure.reference import Settings
from tests.pure.support_engine import MANY, scale_call
from tests.pure.support_pipeline import END_NS, MS, dropped, pipeline, play
from xskit.engine.packets import DropCause
from xskit.stages import FULL_BYTES
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.server import Overhead
from xskit.units import QueueLimit

SECOND_NS = 1_000_000_000
NO_LIMIT = QueueLimit("packets", 1 << 40)
RATES = [
    1_000, 56_000, 333_333, 10**6, 33_333_333, 10**8, 10**9, 2_500_000_001, 10**10, 10**11, 399_999_999_989, 4 * 10**11,
]  # fmt: skip


def one(rate_bps: int | None, limit: QueueLimit = NO_LIMIT, overhead: Overhead = Overhead.L2) -> Settings:
    return Settings(bottleneck=Bottleneck(rate_bps, overhead, limit))


def exact_ns(rate_bps: int, wire_bytes: int) -> Fraction:
    return Fraction(wire_bytes * 8 * SECOND_NS, rate_bps)


@pytest.mark.parametrize("rate_bps", RATES)
def test_a_busy_bottleneck_keeps_its_rate_to_the_nanosecond(rate_bps: int) -> None:
    """Many packets at once: each departure is the exact one, rounded down; nothing adds up."""
    lengths = [60 + 97 * n % 1455 for n in range(MANY // 20)]
    with pipeline(one(rate_bps).stages, packets=len(lengths)) as made:
        left = play(made, [(5, length) for length in lengths])
    sent = 0
    for packet, length in zip(left, lengths, strict=True):
        sent += length
        assert packet.time_ns == math.floor(5 + exact_ns(rate_bps, sent))


@pytest.mark.parametrize("rate_bps", [10**10, 399_999_999_989, 4 * 10**11])
def test_arrivals_that_meet_the_end_of_a_packet_do_not_make_it_faster(rate_bps: int) -> None:
    """Each packet comes in the nanosecond in which the one before leaves: the rest of that nanosecond is not lost."""
    with pipeline(one(rate_bps).stages) as made:
        time_ns, sent = 1000, 0
        for _ in range(MANY // 100):
            (packet,) = made.run([(time_ns, 64)], time_ns + 1000)
            time_ns = packet.time_ns
            sent += 64
            assert time_ns == math.floor(1000 + exact_ns(rate_bps, sent))


@example(49, [49])  # 1 / 49 is rounded down: 8 * 10**9 comes out one too small
@example(399_999_999_989, [399_999_999_989 >> 22] * 9)
@given(st.integers(1, 4 * 10**12), st.lists(st.integers(1, 1 << 18), min_size=1, max_size=10))
def test_any_rate_and_any_length_are_exact(rate_bps: int, lengths: list[int]) -> None:
    with pipeline(one(rate_bps).stages) as made:
        left = play(made, [(0, length) for length in lengths])
    assert [p.time_ns for p in left] == [math.floor(exact_ns(rate_bps, sent)) for sent in accumulate(lengths)]


@given(st.integers(0, 1 << 62), st.integers(1, 1 << 40), st.integers(1, 1 << 40))
def test_scaling_is_exact(value: int, numerator: int, denominator: int) -> None:
    if value * numerator // denominator < 1 << 63:
        assert scale_call(value, numerator, denominator) == value * numerator // denominator


def test_an_idle_bottleneck_begins_at_once() -> None:
    with pipeline(one(10**6).stages) as made:
        left = play(made, [(0, 125), (10 * MS, 125), (10 * MS, 125)])
        state = made.pipeline.reading().stage_state(1)
        assert [packet.time_ns for packet in left] == [MS, 11 * MS, 12 * MS]
        assert (state.idle_starts, state.busy_ns, state.peak_packets, state.peak_bytes) == (2, 3 * MS, 2, 250)


@pytest.mark.parametrize(
    ("overhead", "length", "wire_bytes"),
    [
        (Overhead.L1, 60, 84),
        (Overhead.L1, 42, 84),
        (Overhead.L1, 1514, 1538),
        (Overhead.L2, 42, 42),
        (Overhead.L2, 1514, 1514),
        (Overhead.L3, 1514, 1500),
        (Overhead.L3, 14, 0),
        (Overhead.L3, 10, 0),
    ],
)
def test_the_rate_counts_what_overhead_says(overhead: Overhead, length: int, wire_bytes: int) -> None:
    with pipeline(one(10**9, overhead=overhead).stages) as made:
        (left,) = play(made, [(0, length)])
    assert left.time_ns == 8 * wire_bytes
    assert left.length == length


# --- drop-tail --------------------------------------------------------------------------------------------------


def kept_of_a_burst(settings: Settings, lengths: list[int]) -> list[int]:
    """Which of packets that come all at once are not dropped."""
    with pipeline(settings.stages, packets=len(lengths)) as made:
        left = play(made, [(0, length) for length in lengths])
        assert dropped(made, DropCause.QUEUE_FULL) == len(lengths) - len(left)
        assert made.pipeline.reading().stage_state(1).dropped == len(lengths) - len(left)
    return [packet.number for packet in left]


@pytest.mark.parametrize("packets", [1, 2, 7, 100])
def test_droptail_begins_exactly_at_the_limit_in_packets(packets: int) -> None:
    assert kept_of_a_burst(one(10**6, QueueLimit("packets", packets)), [100] * 150) == list(range(packets))


@pytest.mark.parametrize("limit", [1000, 1999, 2000, 2001, 10_000])
def test_droptail_begins_exactly_at_the_limit_in_bytes(limit: int) -> None:
    assert kept_of_a_burst(one(10**6, QueueLimit("bytes", limit)), [1000] * 15) == list(range(limit // 1000))


def test_a_smaller_packet_may_still_fit_where_a_larger_one_did_not() -> None:
    assert kept_of_a_burst(one(10**6, QueueLimit("bytes", 1500)), [1000, 600, 500, 1, 60]) == [0, 2]


@pytest.mark.parametrize("limit_ms", [1, 8, 50])
def test_droptail_begins_exactly_at_the_limit_in_time(limit_ms: int) -> None:
    """1 Mbit/s sends 125 bytes in a millisecond."""
    kept = kept_of_a_burst(one(10**6, QueueLimit("ns", limit_ms * MS)), [125] * 100)
    assert kept == list(range(limit_ms))


def test_a_limit_in_time_that_is_more_bytes_than_can_be_counted_is_none() -> None:
    settings = one(10**12, QueueLimit("ns", 10**18))
    with pipeline(settings.stages) as made:
        assert len(play(made, [(0, 1000)] * 50)) == 50


def test_the_limit_counts_bytes_as_the_rate_does() -> None:
    settings = one(10**6, QueueLimit("bytes", 200), Overhead.L1)
    assert kept_of_a_burst(settings, [60, 60, 60]) == [0, 1]


@pytest.mark.parametrize("limit", [QueueLimit("packets", 0), QueueLimit("bytes", 0), QueueLimit("ns", 0)])
def test_an_idle_bottleneck_takes_any_packet(limit: QueueLimit) -> None:
    assert kept_of_a_burst(one(1000, limit), [9000, 60]) == [0]


@pytest.mark.parametrize("overhead", Overhead)
@pytest.mark.parametrize("rate_bps", [1000, 64_000, 400_000])
def test_a_slow_bottleneck_holds_ten_packets_unless_told(rate_bps: int, overhead: Overhead) -> None:
    bottleneck = Bottleneck(rate_bps, overhead)
    assert kept_of_a_burst(Settings(bottleneck=bottleneck), [FULL_BYTES] * 12) == list(range(10))
    assert kept_of_a_burst(Settings(bottleneck=bottleneck), [FULL_BYTES - 4] * 12) == list(range(10))


def test_a_fast_bottleneck_holds_50_ms_unless_told() -> None:
    assert len(kept_of_a_burst(Settings(bottleneck=Bottleneck(10**7)), [1250] * 100)) == 50


def test_a_packet_that_has_just_left_makes_room_for_one_that_comes_in_that_nanosecond() -> None:
    with pipeline(one(10**6, QueueLimit("packets", 1)).stages) as made:
        left = play(made, [(0, 125), (MS - 1, 125), (MS, 125)])
    assert [packet.number for packet in left] == [0, 2]


def test_without_a_rate_nothing_waits_and_nothing_is_dropped() -> None:
    assert kept_of_a_burst(one(None, QueueLimit("packets", 1)), [1514] * 50) == list(range(50))


# --- changes ----------------------------------------------------------------------------------------------------


def departures(arrivals: list[tuple[int, int]], start: Settings, changes: list[tuple[int, Settings]]) -> list[int]:
    with pipeline(start.stages) as made:
        return [packet.time_ns for packet in play(made, arrivals, changes)]


def test_a_changed_rate_applies_to_the_packet_being_sent_and_to_what_waits() -> None:
    """Half of the first packet is sent when the rate doubles."""
    times = departures([(0, 125)] * 3, one(10**6), [(MS // 2, one(2 * 10**6))])
    assert times == [MS * 3 // 4, MS * 5 // 4, MS * 7 // 4]
    times = departures([(0, 125)] * 3, one(10**6), [(MS // 2, one(10**5))])
    assert times == [MS // 2 + 5 * MS, MS // 2 + 15 * MS, MS // 2 + 25 * MS]


def test_a_rate_taken_away_lets_everything_go() -> None:
    assert departures([(0, 125)] * 3, one(10**6), [(MS // 2, one(None))]) == [MS // 2] * 3


def test_a_rate_given_applies_to_what_comes() -> None:
    assert departures([(0, 125), (MS, 125)], one(None), [(MS, one(10**6))]) == [0, 2 * MS]


@given(
    st.lists(st.tuples(st.integers(1, 3 * MS), st.integers(1000, 4 * 10**11)), min_size=1, max_size=6),
    st.integers(60, 9000),
)
def test_bytes_are_sent_at_whatever_rate_holds(changes: list[tuple[int, int]], length: int) -> None:
    """The sum over all spans of time x rate is the packet's size, to a nanosecond's worth at each change."""
    spans, time_ns = [], 0
    rate = 10**6
    updates = []
    for gap_ns, new_rate in changes:
        time_ns += gap_ns
        updates.append((time_ns, one(new_rate)))
        spans.append((time_ns, rate))
        rate = new_rate
    (left_ns,) = departures([(0, length)], one(10**6), updates)
    spans.append((END_NS, rate))
    sent_bits, slack_bits, start_ns = Fraction(0), Fraction(0), 0
    for end_ns, span_rate in spans:
        span_ns = min(end_ns, left_ns) - start_ns
        if span_ns >= 0:
            sent_bits += Fraction(span_ns * span_rate, SECOND_NS)
            slack_bits += Fraction(span_rate, SECOND_NS)
            start_ns = end_ns
    assert 8 * length - slack_bits <= sent_bits <= 8 * length


def test_changes_drop_and_reorder_nothing_that_is_queued() -> None:
    tight = one(2 * 10**6, QueueLimit("packets", 1))
    with pipeline(one(10**6).stages) as made:
        left = play(made, [(0, 125)] * 20 + [(MS + 1, 125)], [(MS, tight)])
        assert [packet.number for packet in left] == list(range(20)), "only what comes later meets the new limit"
        assert dropped(made, DropCause.QUEUE_FULL) == 1


def test_a_changed_overhead_counts_what_is_queued_anew() -> None:
    """20 packets of 60 bytes are 1200 at L2 and 1680 at L1, of which one has left: room for one more, not two."""
    wide = one(10**6, QueueLimit("bytes", 84 * 20), Overhead.L1)
    narrow = one(10**6, QueueLimit("bytes", 60 * 20), Overhead.L2)
    first_leaves_ns = 60 * 8 * 1000
    with pipeline(narrow.stages) as made:
        left = play(made, [(0, 60)] * 20 + [(first_leaves_ns, 60)] * 2, [(first_leaves_ns, wide)])
    assert [packet.number for packet in left] == list(range(21))
