"""Pipelines in virtual time for tests: settings and traffic to draw, and a player that updates and counts."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hypothesis import strategies as st

from tests.pure.reference import Settings
from xskit.engine.packets import DropCause
from xskit.engine.stage import Stage
from xskit.engine.virtual import Departure, VirtualPipeline
from xskit.stages.bottleneck import Bottleneck
from xskit.stages.delay import Delay, Jitter
from xskit.stages.delay_free import FreeDelay
from xskit.stages.loss import Loss
from xskit.stages.server import Overhead
from xskit.units import QueueLimit

MS = 1_000_000
END_NS = 1 << 61
"""Later than anything in these tests."""
HORIZON_NS = 4 * MS
"""The longest delay that is drawn, and 8.3 standard deviations of the widest jitter."""

Arrival = tuple[int, int]
Update = tuple[int, Settings]


@contextmanager
def pipeline(
    stages: Sequence[Stage], *, packets: int = 64, horizon_ns: int = HORIZON_NS, seed: int = 0, name: str = "test"
) -> Iterator[VirtualPipeline]:
    made = VirtualPipeline(stages, packets=packets, horizon_ns=horizon_ns, seed=seed, name=name)
    try:
        yield made
    finally:
        made.close()


def check_conservation(made: VirtualPipeline) -> None:
    """received + duplicated + injected = sent + dropped + in flight, and in flight is what is found in the stores."""
    reading = made.pipeline.reading()
    counters, dropped = reading.counters, reading.dropped()
    came = counters.received + counters.duplicated + counters.injected
    assert came == counters.sent + sum(packets for packets, _ in dropped) + counters.in_flight
    came_bytes = counters.received_bytes + counters.duplicated_bytes + counters.injected_bytes
    assert came_bytes == counters.sent_bytes + sum(count for _, count in dropped) + counters.in_flight_bytes
    assert counters.in_flight == reading.held() == made.pool.view.capacity - made.pool.view.count
    assert counters.in_flight_frames == counters.in_flight
    assert counters.in_flight_bytes == held_bytes(made)
    assert made.pool.view.violations == 0


def held_bytes(made: VirtualPipeline) -> int:
    """Bytes in the stages that hold packets; the exit is empty after a run."""
    reading = made.pipeline.reading()
    holding = [n for n, kind in enumerate(made.pipeline.kinds) if kind.holding]
    return sum(reading.stage_state(n).bytes for n in holding)


def dropped(made: VirtualPipeline, cause: DropCause) -> int:
    """Packets dropped by a cause."""
    return made.pipeline.reading().dropped()[cause][0]


def play(
    made: VirtualPipeline,
    arrivals: Sequence[Arrival],
    updates: Sequence[Update] = (),
    stops: Sequence[tuple[int, bool]] = (),
) -> list[Departure]:
    """Run to the end, with a stop at each watermark of `stops`; True: what arrives at that moment comes before it.

    Each update is laid out as soon as the one before it is in force. The watermark must not have passed its time by
    then, so there is a stop at the time of each update but the first.
    """
    departures: list[Departure] = []
    waiting = list(updates)
    fed = 0

    def run_to(stop_ns: int, inclusive: bool) -> None:
        nonlocal fed, departures
        side = bisect.bisect_right if inclusive else bisect.bisect_left
        end = max(side(arrivals, stop_ns, key=lambda arrival: arrival[0]), fed)
        departures += made.run(arrivals[fed:end], stop_ns)
        fed = end
        check_conservation(made)

    def stage_next() -> None:
        if waiting and not made.pipeline.pending:
            effective_ns, settings = waiting.pop(0)
            made.pipeline.stage_update(settings.stages, effective_ns)

    for stop_ns, inclusive in [*sorted(stops), (END_NS, True)]:
        stage_next()
        while waiting and waiting[0][0] <= stop_ns:
            run_to(waiting[0][0], inclusive=False)
            stage_next()
        run_to(stop_ns, inclusive)
    return departures


# --- what to draw -----------------------------------------------------------------------------------------------

RATES = st.one_of(
    st.none(),
    st.sampled_from([1_000, 56_000, 1_000_000, 33_333_333, 10**8, 10**9, 25 * 10**9, 4 * 10**11]),
    st.integers(1_000, 4 * 10**11),
)
LIMITS = st.one_of(
    st.builds(QueueLimit, st.just("packets"), st.integers(0, 6)),
    st.builds(QueueLimit, st.just("bytes"), st.integers(0, 9000)),
    st.builds(QueueLimit, st.just("ns"), st.integers(0, 50 * MS)),
    st.just(QueueLimit("packets", 1000)),
)
LOSSES = st.builds(Loss, st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0]))
BOTTLENECKS = st.builds(Bottleneck, RATES, st.sampled_from(Overhead), LIMITS)
OWDS = st.integers(0, 2 * MS)
JITTERS = st.integers(0, MS // 5)
LENGTHS = st.one_of(st.integers(14, 1514), st.sampled_from([60, 1514, 9014]))
GAPS = st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 200_000), st.integers(0, 30 * MS))


@st.composite
def arrivals(draw: st.DrawFn, largest: int = 40) -> list[Arrival]:
    """Packets in order of time, often at the same moment."""
    time_ns = draw(st.integers(0, 1 << 40))
    found = []
    for gap_ns, length in draw(st.lists(st.tuples(GAPS, LENGTHS), min_size=1, max_size=largest)):
        time_ns += gap_ns
        found.append((time_ns, length))
    return found


def settings(delays: st.SearchStrategy[Delay]) -> st.SearchStrategy[Settings]:
    """Loss, bottleneck and a delay."""
    return st.builds(Settings, LOSSES, BOTTLENECKS, delays)


KEPT = settings(st.builds(Delay, OWDS, JITTERS, st.sampled_from(Jitter)))
FREE = settings(st.builds(FreeDelay, OWDS, JITTERS, st.sampled_from(Jitter)))


def moments(traffic: Sequence[Arrival]) -> st.SearchStrategy[int]:
    """Times around the traffic, often exactly that of an arrival."""
    first, last = traffic[0][0], traffic[-1][0]
    return st.one_of(st.sampled_from([time_ns for time_ns, _ in traffic]), st.integers(first, last + 50 * MS))


@st.composite
def updates(draw: st.DrawFn, traffic: Sequence[Arrival], kinds: st.SearchStrategy[Settings]) -> list[Update]:
    """Whole records at rising times."""
    times = sorted(draw(st.lists(moments(traffic), max_size=3)))
    return [(time_ns, draw(kinds)) for time_ns in times]


def stops(traffic: Sequence[Arrival]) -> st.SearchStrategy[list[tuple[int, bool]]]:
    """Watermarks at which a batch ends."""
    return st.lists(st.tuples(moments(traffic), st.booleans()), max_size=6)
