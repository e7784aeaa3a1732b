"""Whether an owd fits in the memory, where no rate says how much is in flight: by what came in the last second."""

from __future__ import annotations

from collections import deque

from xskit import units
from xskit.emulator.arrivals import Arrivals, beyond_memory
from xskit.emulator.settings import DirectionSettings, EngineSettings, LinkSettings, read
from xskit.emulator.sizing import PortFacts, plan_links

MS = 1_000_000


def steady(packets_per_100_ms: int, size: int, *, seconds: int = 2) -> Arrivals:
    arrivals = Arrivals()
    for number in range(10 * seconds + 1):
        arrivals.add(number * 100 * MS, number * packets_per_100_ms, number * packets_per_100_ms * size)
    return arrivals


def plan_for(memory: str = "20MiB", mtu: int = 1500):
    port = PortFacts(mtu)
    return plan_links([(LinkSettings(), port, port)], EngineSettings(memory=memory))


def settings(**keys) -> DirectionSettings:
    return read(DirectionSettings, keys)


def test_the_rate_is_that_of_the_last_second():
    assert steady(50, 200).rate() == (500, 200)
    arrivals = steady(50, 200)
    for number in range(1, 12):  # and then nothing came
        arrivals.add((2000 + 100 * number) * MS, 1000, 200_000)
    assert arrivals.rate() == (0, 0)
    assert Arrivals().rate() == (0, 0)
    arrivals.add(3200 * MS, 1100, 250_000)
    assert arrivals.rate() == (100, 500)


class Moving(deque):
    """The monitor takes something away whenever somebody else has looked."""

    def __getitem__(self, index):
        found = super().__getitem__(index)
        if index == 0 and len(self) > 2:
            self.popleft()
        return found


def test_the_monitor_may_take_something_away_meanwhile():
    arrivals = Arrivals(Moving([(0, 0, 0), (500 * MS, 50, 5000), (1000 * MS, 50, 5000)]))
    assert arrivals.rate() == (50, 100)


def test_an_owd_that_needs_more_than_was_planned_is_told_with_the_numbers():
    plan = plan_for()
    told = beyond_memory("a-b forward", settings(owd="10s"), plan, 0, steady(1000, 200))
    share = plan.directions[0].packets
    before, _, memory = told.rpartition("; ")
    assert before == (
        f"a-b forward: at the 10000 packets/s that came in the last second, 100000 frames will be in flight, but the "
        f"packet memory was planned for {share}: what does not fit is dropped (memory_full)"
    )
    enough = plan_for(memory.split(" ")[0])
    assert memory.endswith(" of memory would hold it")
    assert beyond_memory("a-b forward", settings(owd="10s"), enough, 0, steady(1000, 200)) is None
    assert enough.umem_bytes <= units.parse_size(memory.split(" ")[0])


def test_packets_of_several_frames_count_as_such():
    plan = plan_for(mtu=9000)
    told = beyond_memory("x", settings(owd="10s"), plan, 0, steady(100, 8000))
    assert f" {10_000 * -(-8000 // (plan.frame_size - 256))} frames will" in told


def test_jitter_counts_as_in_the_plan():
    plan = plan_for()
    assert beyond_memory("x", settings(owd="1ms"), plan, 0, steady(1000, 200)) is None
    assert "300010 frames" in beyond_memory("x", settings(owd="1ms", jitter="10s"), plan, 0, steady(1000, 200))


def test_with_a_rate_or_without_packets_there_is_nothing_to_say():
    assert beyond_memory("x", settings(owd="10min"), plan_for(), 0, Arrivals()) is None
    assert beyond_memory("x", settings(owd="10min", rate="1Gbit"), plan_for(), 0, steady(1000, 200)) is None
