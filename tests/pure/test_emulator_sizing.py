"""The memory plan: what the settings ask for fits, what the user gave is kept to, and refusals carry a number."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xskit import units
from xskit.emulator.mistakes import CapacityError, SettingsError
from xskit.emulator.settings import DirectionSettings, read
from xskit.emulator.sizing import HEADROOM_BYTES, check_capacity, frame_size_for, in_flight, plan_memory

QUEUES = st.one_of(
    st.integers(0, 20_000).map("{}packets".format),
    st.integers(0, 1 << 26).map("{}B".format),
    st.integers(0, 2_000).map("{}ms".format),
)
LIMITED = st.builds(
    lambda rate, owd, jitter, queue: read(
        DirectionSettings,
        {"rate": f"{rate}bit", "owd": f"{owd}us", "jitter": f"{jitter}us"} | ({"queue": queue} if queue else {}),
    ),
    st.integers(1, 10**10),
    st.integers(0, 2_000_000),
    st.integers(0, 100_000),
    st.one_of(st.none(), QUEUES),
)
UNLIMITED = st.builds(
    lambda owd, queue: read(DirectionSettings, {"owd": f"{owd}us", "queue": queue}), st.integers(0, 500_000), QUEUES
)
SETTINGS = st.one_of(LIMITED, UNLIMITED)
MTUS = st.sampled_from([576, 1500, 2000, 9000])
FILLS = st.sampled_from([64, 2048, 4 * 2048])
FRAME_SIZES = st.sampled_from([2048, 4096])


def plan_for(directions, mtus=None, fills=None, frame_size=None, memory_bytes=None, registrations=2):
    lengths = [mtu + 18 for mtu in mtus or [1500] * len(directions)]
    return plan_memory(
        directions,
        max_lengths=lengths,
        fill_entries=fills or [2048] * len(directions),
        frame_size=frame_size or frame_size_for(max(lengths)),
        registrations=registrations,
        memory_bytes=memory_bytes,
    )


def must_hold(settings, longest) -> int:
    """Full-size packets inside a saturated direction, by the textbook: rate x time on the way, and the queue."""
    packets = settings.rate * (settings.owd + 3 * settings.jitter) / 8e9 / longest
    limit = settings.queue_limit(longest)
    packets += {
        "packets": limit.value,
        "bytes": limit.value / longest,
        "ns": settings.rate * limit.value / 8e9 / longest,
    }[limit.unit]
    return math.floor(packets)


@given(LIMITED, MTUS, FRAME_SIZES)
def test_the_plan_covers_full_size_packets(settings, mtu, frame_size):
    share = plan_for([settings], [mtu], frame_size=frame_size).directions[0]
    longest = mtu + 18
    assert share.frames_per_packet == math.ceil(longest / (frame_size - HEADROOM_BYTES))
    assert share.packets >= must_hold(settings, longest) * share.frames_per_packet


@given(LIMITED, MTUS)
def test_smaller_packets_are_covered_down_to_the_size_that_the_plan_names(settings, mtu):
    plan = plan_for([settings], [mtu])
    share = plan.directions[0]
    size = share.packet_bytes
    assert 1 <= size <= mtu + 18
    assume(size <= plan.frame_size - HEADROOM_BYTES)
    held, extra = in_flight(settings, mtu + 18)
    assert share.packets >= math.floor(held / size) + extra


@given(st.lists(SETTINGS, min_size=1, max_size=6), st.data())
def test_the_fill_rings_have_frames_of_their_own(directions, data):
    fills = data.draw(st.lists(FILLS, min_size=len(directions), max_size=len(directions)))
    plan = plan_for(directions, fills=fills)
    assert [share.fill_reserve for share in plan.directions] == fills
    assert [share.frames for share in plan.directions] == [
        share.packets + share.fill_reserve for share in plan.directions
    ]
    assert plan.frames >= sum(share.frames for share in plan.directions)
    assert plan.umem_bytes == plan.frames * plan.frame_size
    assert plan.umem_bytes % 4096 == 0


@given(st.lists(SETTINGS, min_size=1, max_size=6), st.integers(1, 1 << 30), FRAME_SIZES)
def test_memory_that_was_given_is_never_exceeded(directions, memory_bytes, frame_size):
    fills = [256] * len(directions)
    try:
        plan = plan_for(directions, fills=fills, frame_size=frame_size, memory_bytes=memory_bytes)
    except SettingsError as error:
        found = re.fullmatch(
            r"this packet memory cannot even fill the FILL rings: at least (\S+) is needed", error.cause
        )
        needed = units.parse_size(found[1])
        assert needed > memory_bytes
        plan = plan_for(directions, fills=fills, frame_size=frame_size, memory_bytes=needed)
        assert plan.umem_bytes <= needed
    else:
        assert plan.umem_bytes <= memory_bytes
    assert all(share.packets >= 64 for share in plan.directions)
    assert sum(share.frames for share in plan.directions) <= plan.frames


@given(st.lists(LIMITED, min_size=2, max_size=4), st.integers(1 << 25, 1 << 32))
def test_given_memory_is_shared_by_need(directions, memory_bytes):
    free = plan_for(directions)
    given_plan = plan_for(directions, memory_bytes=memory_bytes)
    needs = [share.packets for share in free.directions]
    assert [share.wanted for share in given_plan.directions] == needs
    left = sum(share.packets - 64 for share in given_plan.directions)
    for share, need in zip(given_plan.directions, needs, strict=True):
        assert abs((share.packets - 64) - left * need / sum(needs)) <= len(directions)


@given(SETTINGS, st.integers(1, 16))
def test_the_kernel_is_counted_once_for_each_registration(settings, registrations):
    plan = plan_for([settings], registrations=registrations)
    assert plan.kernel_bytes == 128 * plan.frames * registrations
    assert 64 * plan.frames <= plan.table_bytes <= 64 * plan.frames + (2 << 20)
    assert plan.total_bytes == plan.umem_bytes + plan.table_bytes + plan.stores_bytes + plan.kernel_bytes
    assert plan.as_dict()["total_bytes"] == plan.total_bytes


def test_a_queue_counted_in_packets_holds_jumbo_packets():
    settings = read(DirectionSettings, {"rate": "1Gbit", "queue": "10000packets"})
    share = plan_for([settings], [9000]).directions[0]
    assert share.frames_per_packet == 3
    assert share.packets >= 30_000
    assert share.in_flight_bytes == 10_000 * 9018


def test_frames_by_mtu():
    assert frame_size_for(1518) == 2048
    assert frame_size_for(1792) == 2048
    assert frame_size_for(1793) == 4096
    assert frame_size_for(9018) == 4096


def test_without_a_rate_the_plan_knows_no_bytes():
    plan = plan_for([DirectionSettings()])
    assert plan.directions[0].in_flight_bytes is None
    assert plan.directions[0].packet_bytes == 64


@given(UNLIMITED, MTUS, FRAME_SIZES)
def test_without_a_rate_the_plan_stays_modest(settings, mtu, frame_size):
    share = plan_for([settings], [mtu], frame_size=frame_size).directions[0]
    assert 4096 <= share.packets <= (128 << 20) // frame_size


def check(plan, number, now, wanted, longest=1518):
    check_capacity("wan forward", now, wanted, plan, number, longest)


def test_more_than_was_planned_for_is_refused_with_the_number():
    now = read(DirectionSettings, {"rate": "100Mbit", "owd": "20ms"})
    plan = plan_for([now, now])
    with pytest.raises(CapacityError) as caught:
        check(plan, 0, now, now.changed({"rate": "100Gbit"}))
    # 100 Gbit/s x (20 ms + 50 ms of queue) / 1518 bytes
    assert caught.value.cause == (
        f"wan forward: {math.ceil(875_000_000 / 1518)} frames would be in flight, "
        f"the packet memory was planned for {plan.directions[0].packets}"
    )
    assert re.fullmatch(r"start with memory='\d+(\.\d+)?[KMG]iB' or more", caught.value.remedy)


@given(st.lists(SETTINGS, min_size=2, max_size=4), LIMITED, st.data())
def test_with_the_memory_that_a_refusal_names_it_is_not_refused(directions, wanted, data):
    number = data.draw(st.integers(0, len(directions) - 1))
    memory_bytes = data.draw(st.one_of(st.none(), st.integers(1 << 25, 1 << 28)))
    plan = plan_for(directions, memory_bytes=memory_bytes)
    try:
        check(plan, number, directions[number], wanted)
    except CapacityError as error:
        needed = units.parse_size(error.remedy.value)
        larger = plan_for(directions, memory_bytes=needed)
        assert larger.umem_bytes <= needed
        check(larger, number, directions[number], wanted)


@given(SETTINGS, st.sampled_from(["0", "1%", "100%"]))
def test_what_needs_no_more_than_now_is_never_refused(now, loss):
    plan = plan_for([now, now], memory_bytes=20 << 20)
    check(plan, 1, now, now.changed({"loss": loss}))
    check(plan, 1, now, now.changed({"rate": None}))


def test_frames_are_large_enough_for_nics_that_fill_whole_units_only() -> None:
    """igb counts its receive buffers in KiB: of a frame of 2048 behind the headroom it uses one."""
    assert [frame_size_for(1518, unit) for unit in (1, 128, 1024)] == [2048, 2048, 4096]
    assert frame_size_for(1024, 1024) == 2048
