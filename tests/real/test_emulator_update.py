"""Updates of a running link: whole, at a time, only what is named, nothing lost; refused with the number."""

from __future__ import annotations

import re
import threading

import pytest

from tests.real.lab_rig import dropped, pair, wait_until
from xskit.emulator.mistakes import CapacityError, SettingsError
from xskit.engine.clock import monotonic_ns
from xskit.errors import UsageError

pytestmark = pytest.mark.root

FAR_NS = 3_500_000_000_000


def test_a_changed_rate_applies_to_what_is_queued():
    with pair(rate="8bit", queue="1000packets") as made:
        flow = made.flow()
        flow.send(200)  # each would take 100 s
        assert flow.counters.in_flight == 200
        made.link.forward.update(rate="100Mbit")
        flow.empty()
        assert flow.numbers() == list(range(200))
        assert made.link.forward.settings.rate == 100_000_000
        assert made.link.reverse.settings.rate == 8


def test_a_rate_that_is_taken_away_lets_everything_go():
    with pair(rate="8bit", queue="1000packets") as made:
        flow = made.flow()
        flow.send(100)
        made.link.update(rate=None)
        flow.empty()
        assert flow.numbers() == list(range(100))


def test_a_changed_owd_holds_for_packets_that_come_after_it():
    with pair(owd="1min") as made:
        flow = made.flow()
        flow.send(10)
        made.link.update(owd="0")
        flow.send(10, first=10)
        made.assert_books_balance()
        # Order is kept, so the later ones wait behind those that still have a minute to go.
        assert flow.counters.in_flight == 20
        assert flow.counters.sent == 0


def test_only_what_is_named_changes():
    with pair(owd="2ms", jitter="1ms", rate="10Mbit", loss="1%", queue="64KiB") as made:
        before = made.link.forward.settings
        made.link.forward.update(loss="2%")
        assert made.link.forward.settings == before.model_copy(update={"loss": 0.02})
        assert made.link.reverse.settings == before
        assert made.link.report().links[0].directions[0].asked["loss"] == 0.02


def test_an_update_takes_force_at_its_time():
    with pair() as made:
        flow = made.flow()
        at_ns = monotonic_ns() + FAR_NS
        made.link.forward.update(loss="100%", at_ns=at_ns)
        flow.send(50)
        assert len(flow.take(50)) == 50
        assert flow.counters.updates == 0
        forward, reverse = made.link.report().links[0].directions
        assert forward.asked["loss"] == 0, "what an update will ask for is not what was asked of these packets"
        assert forward.update_waiting["asked"]["loss"] == 1
        assert 0.9 * FAR_NS < forward.update_waiting["at_ns"] < 1.1 * FAR_NS
        assert forward.since_update_ns is reverse.update_waiting is None


def test_an_update_on_an_idle_link_takes_force():
    with pair() as made:
        made.link.update(loss="100%", at_ns=monotonic_ns() + 20_000_000)
        for direction in made.directions:
            wait_until(lambda direction=direction: direction.live.pipeline.counters.updates == 1, "it has taken force")
        flow = made.flow()
        flow.send(20)
        assert dropped(flow.direction) == {"loss": 20}
        report = made.link.report()
        (way, _) = report.links[0].directions
        assert (way.asked["loss"], way.update_waiting) == (1, None)
        assert 0 < way.since_update_ns < report.duration_ns


@pytest.mark.parametrize("which", ["link", "direction"])
def test_an_update_further_ahead_than_an_hour_is_refused(which):
    """The next one would wait for it, in effect for ever: most likely it is a time of another clock."""
    with pair() as made:
        target = made.link if which == "link" else made.link.forward
        before = made.link.forward.settings
        with pytest.raises(UsageError) as refused:
            target.update(loss="100%", at_ns=monotonic_ns() + 2 * FAR_NS)
        assert re.fullmatch(
            r"at_ns=\d+ is 1\.94 hours ahead, and an update can wait for one hour at most", refused.value.cause
        )
        assert refused.value.remedy == "at_ns=time.monotonic_ns() + 10_000_000_000"
        assert made.link.forward.settings == before
        target.update(loss="100%")
        assert made.link.forward.settings.loss == 1


def test_while_an_update_waits_the_link_can_be_watched_and_closed():
    with pair() as made:
        made.link.forward.update(loss="100%", at_ns=monotonic_ns() + FAR_NS)
        errors = []

        def update_again() -> None:
            try:
                made.link.forward.update(loss="50%")
            except UsageError as error:
                errors.append(str(error))

        waiting = threading.Thread(target=update_again)
        waiting.start()
        made.assert_books_balance()
        made.link.close()
        waiting.join()
        assert errors == ["a-b forward: the link is not running"]


def test_more_than_the_memory_holds_is_refused_and_nothing_changes():
    with pair(engine={"memory": "20MiB"}, forward={"rate": "50Mbit"}, reverse={"rate": "1Mbit"}, owd="5ms") as made:
        before = [direction.settings for direction in made.directions]
        with pytest.raises(CapacityError) as caught:
            made.link.update(rate="10Gbit", owd="100ms")
        share = made.link.emulator.plan.directions[0]
        assert re.fullmatch(
            rf"a-b forward: \d+ frames would be in flight, the packet memory was planned for {share.packets}",
            caught.value.cause,
        )
        needed = re.fullmatch(r"start with memory='(\S+)' or more", caught.value.remedy)[1]
        # What fits forward need not fit in reverse: then neither changes.
        with pytest.raises(CapacityError, match="^a-b reverse: "):
            made.link.update(rate="800Mbit")
        assert [direction.settings for direction in made.directions] == before
        flow = made.flow()
        flow.send(20)
        assert len(flow.take(20)) == 20
        assert flow.counters.updates == 0
    with pair(engine={"memory": needed}, forward={"rate": "50Mbit"}, reverse={"rate": "1Mbit"}, owd="5ms") as made:
        made.link.forward.update(rate="10Gbit", owd="100ms")


def test_without_a_rate_more_than_the_memory_holds_is_told_by_what_came(caplog):
    with pair(engine={"memory": "20MiB"}, owd="1ms") as made:
        forward, reverse = made.directions
        made.flow().send(500)
        wait_until(lambda: forward._arrivals.rate()[0] > 0, "the monitor has seen them")
        made.link.update(owd="160h", loss="1%")
        (warning,) = [one for one in made.link.report().warnings if "last second" in one]
        assert re.match(r"a-b forward: at the \d+ packets/s that came in the last second, \d+ frames ", warning)
        assert caplog.messages == [warning]
        assert forward.settings.owd == reverse.settings.owd == 160 * 3600 * 10**9


def test_order_cannot_change_and_a_wheel_has_a_horizon():
    with pair(order="free", owd="10ms", jitter="1ms", jitter_distribution="uniform") as made:
        with pytest.raises(SettingsError) as refused:
            made.link.update(order="keep")
        assert str(refused.value) == ("order cannot change while the link runs: it decides which stages are compiled")
        with pytest.raises(CapacityError) as beyond:
            made.link.update(owd="5min")
        assert beyond.value.cause == (
            "a-b forward: a packet might be held for 300001ms, the timing wheel was planned for 250ms"
        )
        assert beyond.value.remedy == "start the link with the longest owd and jitter that it will have"
        with pytest.raises(SettingsError, match="with order = free 549s can be"):
            made.link.update(owd="10min")
        made.link.update(owd="200ms")
