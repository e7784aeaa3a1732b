"""How much memory the traffic of a run needs: what is named once is enough for the same traffic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit import units
from xskit.emulator import room
from xskit.emulator.need import Need, hold_ns
from xskit.emulator.settings import DirectionSettings, EngineSettings, link_settings, read
from xskit.emulator.sizing import PortFacts, memory_for, plan_links

MS = 1_000_000
GIB = 1 << 30


def plan_for(memory: str = "9MiB", mtu: int = 1500, **link):
    port = PortFacts(mtu)
    return plan_links([(link_settings(link), port, port)], EngineSettings(memory=memory))


def need_for(plan, settings: DirectionSettings, per_period: list[int], size: int = 64, mtu: int = 1500) -> Need:
    """After so many packets in each of the monitor's periods of 100 ms."""
    need = Need(plan, 0, mtu + 18)
    packets = 0
    for number, came in enumerate(per_period):
        packets += came
        need.add((1000 + number) * 100 * MS, packets, packets * size, settings)
    return need


def most_held(per_period: list[int], held_ns: int) -> int:
    """The most packets that can have been there at once, however they lay within each period."""
    periods = held_ns // (100 * MS) + 2
    return max(sum(per_period[max(last - periods + 1, 0) : last + 1]) for last in range(len(per_period)))


def test_nine_hundred_thousand_packets_a_second_for_100_ms():
    settings = read(DirectionSettings, {"owd": "100ms"})
    need = need_for(plan_for(owd="100ms"), settings, [90_000] * 10)
    assert 90_000 <= need.frames <= 180_000
    enough = plan_for(units.format_size(need.memory()), owd="100ms")
    assert enough.directions[0].packets >= need.frames
    assert need_for(enough, settings, [90_000] * 10).memory() == need.memory()


@given(
    st.lists(st.integers(0, 20_000), min_size=1, max_size=30),
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.sampled_from([1500, 9000]),
)
def test_what_is_named_holds_what_came(per_period, owd_ms, other_ms, mtu):
    """Whatever the other direction is planned for, and however unevenly packets come."""
    link = {"forward": {"owd": f"{owd_ms}ms"}, "reverse": {"owd": f"{other_ms}ms"}}
    settings = link_settings(link).forward
    plan = plan_for(mtu=mtu, memory="20MiB", **link)
    need = need_for(plan, settings, per_period, size=mtu, mtu=mtu)
    whole_periods = max(owd_ms // 100, 1)
    came = max(sum(per_period[at : at + whole_periods]) for at in range(len(per_period)))
    assert need.frames >= came * plan.directions[0].frames_per_packet
    assert need.frames <= most_held(per_period, hold_ns(settings, mtu + 18) * 66 // 64) * 3
    enough = plan_for(units.format_size(need.memory()), mtu=mtu, **link)
    assert enough.directions[0].packets >= need.frames
    assert enough.umem_bytes <= need.memory()


def test_a_burst_counts_as_long_as_it_is_held():
    settings = read(DirectionSettings, {"owd": "10s"})
    assert need_for(plan_for(), settings, [500] + [0] * 50 + [500] + [0] * 200).frames == 1000
    assert need_for(plan_for(), settings, [500] + [0] * 150 + [500] + [0] * 200).frames == 500


def test_a_rate_bounds_what_is_held():
    """8 Mbit/s for 100 ms, and ten packets of queue: 100 kB and 10 packets."""
    settings = read(DirectionSettings, {"owd": "100ms", "rate": "8Mbit", "queue": "10packets"})
    assert need_for(plan_for(), settings, [10_000] * 10, size=1000).frames == 110
    assert need_for(plan_for(), settings, [3] * 10, size=1000).frames <= 9


def test_the_longest_hold_counts_owd_jitter_and_a_full_queue():
    for queue, queue_ns in (("30ms", 30 * MS), ("1000B", MS), ("10packets", 15_180_000)):
        settings = read(DirectionSettings, {"owd": "1s", "jitter": "2ms", "rate": "8Mbit", "queue": queue})
        assert hold_ns(settings, 1518) == 1006 * MS + queue_ns
    assert hold_ns(read(DirectionSettings, {"owd": "1s", "queue": "30ms"}), 1518) == 1000 * MS


def test_a_long_hold_keeps_few_readings():
    need = need_for(plan_for(), read(DirectionSettings, {"owd": "10min"}), [10] * 20_000)
    assert len(need._seen) <= 67
    assert need.frames == pytest.approx(60_000, rel=0.04)


def test_small_packets_take_one_frame_where_large_ones_take_several():
    settings, plan = read(DirectionSettings, {"owd": "1s"}), plan_for("20MiB", mtu=9000)
    assert plan.directions[0].frames_per_packet == 3
    assert need_for(plan, settings, [100], size=9018, mtu=9000).frames == 300
    assert need_for(plan, settings, [100], size=64, mtu=9000).frames == 102


def test_the_remedy_is_one_that_the_machine_can_follow(monkeypatch):
    plan = plan_for("16MiB")
    wanted = memory_for(plan, plan.directions[0], 100_000)
    monkeypatch.setattr(room, "available_bytes", lambda: 16 * GIB)
    assert room.memory_remedy(plan, EngineSettings(), wanted) == f"set memory to {units.format_size(wanted)}"
    monkeypatch.setattr(room, "available_bytes", lambda: 0)
    said = room.memory_remedy(plan, EngineSettings(), wanted)
    assert said.startswith("holding what came takes ")
    assert said.endswith("MiB to spare: set a shorter owd, or send fewer packets")
    assert room.memory_remedy(plan, EngineSettings(hugetlb=True), wanted).startswith("holding what came takes ")


def test_where_the_count_does_not_explain_it_the_memory_is_doubled(monkeypatch):
    monkeypatch.setattr(room, "available_bytes", lambda: 16 * GIB)
    assert room.memory_remedy(plan_for("16MiB"), EngineSettings(), 1 << 20) == "set memory to 32MiB"
