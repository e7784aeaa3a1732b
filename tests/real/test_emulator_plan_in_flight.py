"""The plan against what a running link holds: packets kept coming while its queue is full, in flight looked at then.

Rates are low: a busy machine must be able to send faster.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.real.lab_rig import PATIENCE_SECONDS, Flow, dropped, pair
from xskit.emulator.packet_mix import PacketMix
from xskit.emulator.plan import LinkPlan, plan
from xskit.emulator.plan_data import SizeRow
from xskit.experiments.pagepool import PagePoolWatch

pytestmark = pytest.mark.root

WITHIN = 0.05
LOOKS = 60
BURST = 12
MIXED = (64,) * 7 + (576,) * 4 + (1514,)


def link(rate: str) -> dict[str, str]:
    return {"rate": rate, "owd": "900ms", "queue": "300ms"}


class Filling:
    """Sends on and on, and looks at what is in flight after each burst."""

    def __init__(self, flow: Flow, sizes: tuple[int, ...]) -> None:
        self.flow, self.sizes = flow, sizes
        self.sent = 0
        self._give_up = time.monotonic() + PATIENCE_SECONDS

    def look(self, may_send: Callable[[], bool] = lambda: True) -> tuple[int, int]:
        """(frames, bytes) in flight."""
        assert time.monotonic() < self._give_up, "waited in vain until as much was in flight as planned"
        if may_send():
            self.flow.send(BURST, self.sizes, first=self.sent, burst=BURST)
            self.sent += BURST
        else:
            time.sleep(0.001)
        counters = self.flow.counters
        return counters.in_flight_frames, counters.in_flight_bytes


def planned(rate: str, mtu: int, sizes: tuple[int, ...]) -> tuple[LinkPlan, SizeRow, dict[str, str]]:
    """The plan, its row of these packets, and the engine that was planned."""
    found = plan(link(rate), mtu=mtu, mix=PacketMix(Counter(sizes)))
    return found, found.sizes[-1], {"memory": f"{found.memory.umem_bytes}B"}


@pytest.mark.parametrize(
    ("rate", "mtu", "size"),
    [("1Mbit", 1500, 100), ("8Mbit", 1500, 1514), ("20Mbit", 9000, 9014)],
    ids=["short", "long", "of several frames"],
)
def test_in_flight_is_as_planned(rate, mtu, size):
    """As much as comes, the queue never holds more."""
    found, row, engine = planned(rate, mtu, (size,))
    frames, packed = row.frames / 2, row.packed_bytes / 2  # of one direction
    with pair(mtu=mtu, engine=engine, **link(rate)) as made:
        filling = Filling(made.flow(), (size,))
        while filling.look()[0] < (1 - WITHIN) * frames or not dropped(made.link.forward):
            pass
        # the middle of many looks: one at which the worker was late says nothing of the plan
        looks = [filling.look() for _ in range(LOOKS)]
        assert statistics.median(taken for taken, _ in looks) == pytest.approx(frames, rel=WITHIN)
        assert statistics.median(held for _, held in looks) == pytest.approx(packed, rel=WITHIN)
        assert set(dropped(made.link.forward)) == {"queue_full"}  # and never for want of memory
        assert filling.flow.counters.peak_frames <= found.memory.directions[0].packets


def test_frames_of_mixed_packets_are_as_planned():
    """A queue that is full takes a short packet where a long one finds no room, so this one never gets quite full.

    It holds almost all that is in flight: then that is so, however long the sender was kept from sending.
    """
    queued = {"rate": "4Mbit", "owd": "40ms", "queue": "1160ms"}
    found = plan(queued, mix=PacketMix(Counter(MIXED)))
    row = found.sizes[-1]
    frames, packed = row.frames / 2, row.packed_bytes / 2
    with pair(engine={"memory": f"{found.memory.umem_bytes}B"}, **queued) as made:
        filling = Filling(made.flow(), MIXED)
        counters = filling.flow.counters

        def has_room() -> bool:
            return bool(counters.in_flight_bytes + sum(MIXED) <= 0.96 * packed)

        while has_room():
            filling.look()
        looks = [filling.look(has_room) for _ in range(LOOKS)]
        assert dropped(made.link.forward) == {}
        # for as many bytes as were there; how full the link is depends on how often the sender may run
        assert min(held for _, held in looks) > 0
        assert statistics.median(taken / held for taken, held in looks) == pytest.approx(frames / packed, rel=WITHIN)


def test_a_veth_keeps_the_planned_pages():
    """Pages of short packets go back to their pool, which then has all that it ever took.

    Others on this machine may make pools meanwhile.
    """
    found = plan({}).page_pool
    with PagePoolWatch() as watch, pair() as made:
        if watch.source.startswith("not to be had"):
            pytest.skip(watch.source)
        flow = made.flow()
        flow.send(2000, 100)
        flow.take()
        assert found.pages_per_queue in [pytest.approx(pages, rel=WITHIN) for pages in watch.peaks()]
