"""A program for test_aliasing.py: fixed runs in virtual time, and what became of every packet, as JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.pure.reference import Settings
from tests.pure.support_pipeline import MS, pipeline, play
from tests.pure.support_verdicts import DUPLICATE, EveryThird
from xskit.engine.stage import Stage
from xskit.jit import cache_folder, compiled
from xskit.memory import I64, Record, Region, record_at
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.delay import Delay, Jitter
from xskit.stages.delay_free import FreeDelay
from xskit.stages.loss import Loss
from xskit.units import QueueLimit

PACKETS = 600


class One(Record):
    """A class of records ..."""

    value: I64


class Other(Record):
    """... and an unrelated one."""

    value: I64


one_at = record_at(One)
other_at = record_at(Other)


@compiled("int64(int64, int64)")
def broken_promise(one_address: int, other_address: int) -> int:
    """Reads through one class after a store through the other: 1 where these are known not to overlap, else 2."""
    one = one_at(one_address)
    one.value = 1
    other_at(other_address).value = 2
    return one.value


def chains() -> Iterator[tuple[str, list[Stage], list[Stage]]]:
    """(name, stages, the same kinds with other parameters)."""
    queue = QueueLimit("packets", 9)
    before = Settings(Loss(0.05), Bottleneck(20_000_000, limit=queue), Delay(2 * MS, MS, Jitter.NORMAL))
    after = replace(before, loss=Loss(0.2), bottleneck=Bottleneck(8_000_000, limit=queue), delay=Delay(MS, MS // 2))
    yield "order kept", [*before.stages], [*after.stages]
    free = [FreeDelay(2 * MS, MS, Jitter.NORMAL), FreeDelay(MS, MS // 2)]
    twice = EveryThird(DUPLICATE)
    yield "order free", [twice, before.bottleneck, free[0]], [twice, after.bottleneck, free[1]]


def fates(stages: list[Stage], later: list[Stage]) -> dict[str, Any]:
    """Of one run with an update in its middle."""
    draw = random.Random(7)
    times = sorted(draw.randrange(200 * MS) for _ in range(PACKETS))
    traffic = [(time_ns, draw.randrange(60, 1515)) for time_ns in times]
    stops = [(time_ns, bool(time_ns % 2)) for time_ns in times[::50]]
    with pipeline(stages, packets=256, seed=3) as made:
        made.pipeline.stage_update(later, times[PACKETS // 2])
        left = play(made, traffic, (), stops)
        reading = made.pipeline.reading()
        return {
            "departures": [list(packet) for packet in left],
            "dropped": reading.dropped(),
            "updates": reading.counters.updates,
            "peaks": [reading.stage_state(1).peak_packets, reading.stage_state(2).peak_packets],
            "owd": reading.owd().tolist(),
        }


def main() -> None:
    with Region(64) as region:
        met = broken_promise(region.address, region.address)
    runs = {name: fates(stages, later) for name, stages, later in chains()}
    print(json.dumps({"folder": str(cache_folder()), "met": met, "runs": runs}))


if __name__ == "__main__":
    main()
