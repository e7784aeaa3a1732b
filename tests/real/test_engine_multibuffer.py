"""Packets of several frames: a jumbo MTU crosses a link whole, byte by byte, and every frame comes home."""

from __future__ import annotations

import pytest

from tests.real.lab_rig import HEADER, assert_every_frame_is_somewhere, dropped, pair, pattern

pytestmark = pytest.mark.root


def assert_whole(flow, sizes, count):
    """Every packet came, in order, with every byte as it was sent."""
    came = flow.take(count)
    assert [one.number for one in came] == list(range(count))
    for one in came:
        payload = sizes[one.number % len(sizes)] - 42
        assert len(one.data) == payload
        assert one.data[HEADER.size :] == pattern(one.number, payload - HEADER.size)


@pytest.mark.parametrize("frame_size", [2048, 4096])
@pytest.mark.parametrize("mode", ["native", "generic"])
def test_jumbo_packets_cross_whole(mode, frame_size):
    usable = frame_size - 256
    sizes = [60, usable - 1, usable, usable + 1, 2 * usable - 1, 2 * usable, 2 * usable + 1, 9013, 9014, 5000]
    with pair(mtu=9000, engine={"mode": mode, "frame_size": frame_size}, owd="1ms", rate="1Gbit") as made:
        flows = [made.flow(), made.flow(reverse=True)]
        for flow in flows:
            flow.send(60, sizes, burst=8)
            flow.empty()
            assert_whole(flow, sizes, 60)
            assert dropped(flow.direction) == {}
            assert flow.counters.sent_bytes == sum(sizes) * 6
        report = made.link.report()
        assert {port.xdp_mode for port in report.ports} == {mode}
        assert report.memory["frame_size"] == frame_size
        made.stop_workers()
        for flow in flows:
            assert assert_every_frame_is_somewhere(flow.direction)["held"] == []


def test_lost_jumbo_packets_give_all_their_frames_back():
    with pair(mtu=9000, engine={"frame_size": 2048}, loss="50%", rate="20Mbit", queue="3packets") as made:
        flow = made.flow()
        flow.send(200, [9014, 100, 4000], burst=8)
        flow.empty()
        assert set(dropped(flow.direction)) == {"loss", "queue_full"}
        assert len(flow.numbers()) == flow.counters.sent < 200
        made.stop_workers()
        places = assert_every_frame_is_somewhere(flow.direction)
        assert places["held"] == []
        assert flow.counters.in_flight_frames == 0


def test_ordinary_packets_in_generic_mode():
    sizes = [60, 61, 1000, 1513, 1514]
    with pair(engine={"mode": "generic"}, owd="1ms") as made:
        flow = made.flow()
        flow.send(100, sizes)
        flow.empty()
        assert_whole(flow, sizes, 100)
        assert {port.xdp_mode for port in made.link.report().ports} == {"generic"}
        assert flow.counters.unstamped == 0
