"""A direction of a link: which settings a report speaks of while updates wait for their time, or take force."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.pure.support_report import since_start
from xskit.emulator.link import LinkDirection
from xskit.emulator.settings import DirectionSettings, EngineSettings, LinkSettings, read
from xskit.emulator.sizing import PortFacts, plan_links
from xskit.engine.live import Faults
from xskit.engine.virtual import VirtualPipeline
from xskit.errors import UsageError


class Worker:
    """Notes updates; `fails` is raised instead."""

    running = True
    fails: Exception | None = None

    def __init__(self):
        self.limits_ns = []

    def update(self, live, stages, at_ns, *, owd_base_ns, late_limit_ns):
        if self.fails is not None:
            raise self.fails
        self.limits_ns.append(late_limit_ns)


@pytest.fixture
def direction():
    settings = read(DirectionSettings, {"owd": "20ms", "rate": "10Mbit"})
    plan = plan_links([(LinkSettings(forward=settings, reverse=settings), *[PortFacts(1500, 1)] * 2)], EngineSettings())
    with VirtualPipeline(settings.stages(), packets=64) as virtual:
        live = SimpleNamespace(name="wan forward", pipeline=virtual.pipeline, faults=lambda: Faults(3, 2, 1))
        made = LinkDirection(
            "forward",
            settings,
            live,
            plan,
            0,
            max_length=1518,
            horizon_ns=10**9,
            warn=lambda sentences: None,
            require_ours=lambda: None,
        )
        made.assign(Worker())
        yield made


def reported(direction, updates, **since):
    """(owd asked, of an update that waits) after so many updates have taken force."""
    record = since_start(direction.settings, updates=updates, **since)
    made = direction.report(direction.live.pipeline.reading(), record, started_ns=0)
    waiting = made.update_waiting
    return made.asked["owd_ns"], None if waiting is None else (waiting["at_ns"], waiting["asked"]["owd_ns"])


def test_what_is_asked_is_what_is_in_force(direction):
    assert reported(direction, 0) == (20_000_000, None)
    direction.update(owd="30ms", at_ns=50)
    assert direction.settings.owd == 30_000_000
    assert reported(direction, 0) == (20_000_000, (50, 30_000_000))
    assert reported(direction, 1) == (30_000_000, None)
    for owd in ("40ms", "50ms"):
        direction.update(owd=owd, at_ns=60)
    assert reported(direction, 3) == (50_000_000, None)


def test_frames_that_went_astray_are_reported(direction):
    made = direction.report(direction.live.pipeline.reading(), since_start(direction.settings), started_ns=0)
    assert made.frames == {"misplaced": 3, "stray_received": 2, "stray_completed": 1}


def test_what_is_no_longer_needed_is_forgotten(direction):
    for number in range(1, 20):
        direction.update(owd=f"{number}ms", at_ns=number)
        direction.live.pipeline.counters.updates = number
        direction.observe(direction.live.pipeline.reading())
    assert len(direction._asked) == 2
    assert reported(direction, 19)[0] == 19_000_000


def test_the_limit_of_lateness_goes_with_the_owd(direction):
    direction.update(owd="200ms")
    direction.update(owd="1ms")
    assert direction._worker.limits_ns == [10_000_000, 1_000_000]


def test_an_update_that_fails_leaves_nothing_behind(direction):
    direction._worker.fails = UsageError("wan forward: the link is not running")
    with pytest.raises(UsageError, match="not running"):
        direction.update(owd="30ms")
    assert reported(direction, 0) == (20_000_000, None)
    assert direction.settings.owd == 20_000_000


def test_a_rate_is_measured_from_when_it_took_force(direction):
    direction.update(rate="20Mbit", at_ns=77)
    assert [asked.rate.from_ns for asked in direction._asked.values()] == [0, 77]
