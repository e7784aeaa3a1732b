"""Every mode of the benchmarks over veth: what one side counts the other side saw, byte for byte, and nothing is lost
in between. No figure is judged.

Sources send fewer packets than RX has entries and FILL has frames, so however busy the machine is, none is dropped
there; what the veth itself refuses is counted as refused.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xskit.bench.bed import Bed
from xskit.bench.far import build
from xskit.bench.results import Run
from xskit.bench.runner import Running, run_once
from xskit.bench.settings import Case, Conditions
from xskit.bench.thread import drop_capabilities
from xskit.errors import UsageError
from xskit.netconf.changes import CreateVeth, VethEnd
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import inside

pytestmark = pytest.mark.root

COUNT = 1000
PACED: dict[str, Any] = {"drive": "af-xdp", "cycle_ns": 200_000, "batch": 16, "count": COUNT}
JUMBO: dict[str, Any] = {"packet_size": 9004, "multi_buffer": True, "batch": 4, "count": 200}
LONG = Conditions(duration=5.0, interval=0.01)
"""The count ends a run, not the time, unless something was refused."""
SHORT = Conditions(duration=0.1)

VARIANTS: dict[str, dict[str, Any]] = {
    "native": {},
    "generic": {"xdp": "generic"},
    "poll": {"poll": True},
    "busy poll": {"busy_poll": True},
    "without need_wakeup": {"need_wakeup": False},
    "frames of 2048": {"frame_size": 2048},
    "unaligned": {"unaligned": True, "frame_size": 3000},
    "four sockets": {"sharers": 4},
    "two queues": {"queues": (0, 1)},
    "VLAN": {"vlan": 7, "vlan_priority": 3, "packet_size": 80},
    "1500 bytes": {"packet_size": 1500},
    "several frames": JUMBO,
    "several frames of 2048": {**JUMBO, "frame_size": 2048},
    "several frames, unaligned": {**JUMBO, "frame_size": 3000, "unaligned": True},
}


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed() as made:
        yield made


def run(bed: Bed, case: Case, conditions: Conditions = LONG) -> tuple[Run, Running]:
    result, running = run_once(case, bed.place(case), conditions)
    assert result.counts["strays"] == 0
    return result, running


def variant_of(mode: str, name: str) -> Case:
    return Case(mode, **{**PACED, **VARIANTS[name]})


@pytest.mark.parametrize("name", VARIANTS)
def test_rxdrop_receives_all_that_is_sent(bed: Bed, name: str) -> None:
    case = variant_of("rxdrop", name)
    result, _ = run(bed, case)
    assert result.far["sent"] + result.far["refused"] == case.count
    assert result.counts["received"] == result.far["sent"] > 0
    assert result.counts["received_bytes"] == result.far["sent"] * case.packet.length
    assert result.kernel["rx_dropped"] == result.kernel["rx_ring_full"] == result.kernel["rx_invalid"] == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_txonly_counts_what_arrives_and_every_byte_is_right(bed: Bed, name: str) -> None:
    case = variant_of("txonly", name)
    result, _ = run(bed, case)
    assert result.counts["sent"] + result.counts["refused"] == case.count
    assert result.far["received"] == result.counts["sent"] > 0
    assert result.far["received_bytes"] == result.counts["sent"] * case.packet.length
    assert result.far["corrupted"] == 0
    assert result.counts["unfinished"] == result.kernel["tx_invalid"] == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_l2fwd_sends_back_what_it_received_unchanged(bed: Bed, name: str) -> None:
    case = variant_of("l2fwd", name)
    result, _ = run(bed, case)
    assert result.counts["received"] == result.far["sent"] > 0
    assert result.counts["sent"] + result.counts["refused"] == result.counts["received"]
    assert result.far["received"] == result.counts["sent"]
    assert result.far["corrupted"] == result.counts["unfinished"] == 0


@pytest.mark.parametrize("name", VARIANTS)
def test_forward_sends_out_of_the_other_port_unchanged(bed: Bed, name: str) -> None:
    case = variant_of("forward", name)
    result, _ = run(bed, case)
    assert result.counts["received"] == result.far["sent"] > 0
    assert result.counts["sent"] + result.counts["refused"] == result.counts["received"]
    assert result.far["received"] == result.counts["sent"]
    assert result.far["corrupted"] == result.counts["unfinished"] == 0


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "four sockets"])  # each sees some numbers only
def test_loss_finds_none_where_there_is_none(bed: Bed, name: str) -> None:
    case = variant_of("loss", name)
    result, _ = run(bed, case)
    assert result.counts["unique"] == result.counts["received"] == result.far["sent"] > 0
    assert result.counts["lost"] == result.counts["duplicates"] == result.counts["corrupted"] == 0


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ("four sockets", "two queues")])
@pytest.mark.parametrize("drive", ["auto", "af-xdp"])
def test_latency_counts_a_round_trip_for_every_packet(bed: Bed, name: str, drive: str) -> None:
    packet = {"packet_size": 1500} if VARIANTS[name].get("multi_buffer") else {}
    case = Case("latency", **{**VARIANTS[name], "drive": drive, "batch": 16, "count": 100, **packet})
    result, _ = run(bed, case)
    assert result.counts["round_trips"] + result.counts["lost"] == result.counts["sent"] == 100
    assert result.counts["round_trips"] > 0
    assert result.counts["strangers"] == 0
    assert sum(result.histogram.values()) == result.counts["round_trips"]
    details, metrics = result.details, result.metrics
    assert 0 < details["round_trip_min_ns"] <= details["round_trip_mean_ns"] <= metrics["round_trip_max_ns"]


def run_both_ways(bed: Bed, case: Case, conditions: Conditions) -> tuple[Run, dict[str, int]]:
    """The run, and what each interface had received at its end."""
    received: dict[str, int] = {}

    def observe(running: Running) -> None:
        for end in running.ends:
            received[end.interface] = end.counts().received

    result, _ = run_once(case, bed.place(case), conditions, observe=observe)
    return result, received


@pytest.mark.parametrize("name", ["native", "generic", "1500 bytes", "several frames"])
def test_forward_both_ways(bed: Bed, name: str) -> None:
    case = replace(variant_of("forward", name), both_ways=True)
    result, received = run_both_ways(bed, case, LONG)
    assert result.counts["received"] == result.far["sent"] > 0
    assert result.counts["sent"] + result.counts["refused"] == result.counts["received"]
    assert result.far["received"] == result.counts["sent"]
    assert result.far["corrupted"] == 0
    assert sum(received.values()) == result.counts["received"]
    assert min(received.values()) > 0


def test_live_frames_come_both_ways(bed: Bed) -> None:
    result, received = run_both_ways(bed, Case("forward", both_ways=True), SHORT)
    assert result.far["received"] == result.counts["sent"]
    assert min(received.values()) > 0
    assert len(received) == 2


def test_only_forward_has_two_ways() -> None:
    with pytest.raises(UsageError, match="rxdrop has one way"):
        Case("rxdrop", both_ways=True)


@pytest.mark.parametrize("mode", ["rxdrop", "l2fwd", "forward", "loss"])
@pytest.mark.parametrize("xdp", ["native", "generic"])
def test_live_frames_reach_what_receives(bed: Bed, mode: str, xdp: str) -> None:
    case = Case(mode, xdp=xdp, drive="live", count=COUNT)
    result, running = run(bed, case, Conditions(duration=0.3))
    assert running.mode.xdp == xdp
    assert result.far["made"] == COUNT
    assert 0 < result.counts["received"] <= COUNT
    if mode in ("l2fwd", "forward"):
        assert result.far["received"] == result.counts["sent"] == result.counts["received"] - result.counts["refused"]
    if mode == "loss":
        assert result.counts["unique"] + result.counts["lost"] == COUNT
        assert result.counts["corrupted"] == result.counts["duplicates"] == result.counts["reordered"] == 0


FOR_EVER = Conditions(duration=1e6, interval=0.01)


@pytest.mark.parametrize("drive", ["live", "af-xdp"])
@pytest.mark.parametrize(
    "asked", [{"mode": "rxdrop", "queues": (0, 1)}, {"mode": "forward", "both_ways": True}], ids=lambda one: one["mode"]
)
def test_a_count_ends_a_run_of_several_ways(bed: Bed, asked: dict[str, Any], drive: str) -> None:
    """Each way has its share, however many packets a source sends at once."""
    paced = {"cycle_ns": 200_000, "batch": 16} if drive == "af-xdp" else {}
    result, _ = run(bed, Case(**asked, count=6001, drive=drive, **paced), FOR_EVER)
    came = result.far["made"] if drive == "live" else result.far["sent"] + result.far["refused"]
    assert came == 6001 * (2 if asked.get("both_ways") else 1)
    assert "rx_pps" in result.metrics  # however soon all was over
    assert 0 < result.counts["received"] <= came


def test_a_count_ends_a_run_though_packets_got_lost(bed: Bed) -> None:
    """RX holds 16, and whoever empties it is kept from it: most of these are dropped."""
    result, _ = run(bed, Case("rxdrop", drive="live", count=50_000, ring=16, frames=16, batch=1), FOR_EVER)
    assert result.far["made"] == 50_000
    assert 0 < result.counts["received"] < 50_000


@pytest.mark.parametrize("queues", [(1,), (0, 1), (1, 0)])
def test_live_frames_come_to_every_queue_that_is_asked_for(bed: Bed, queues: tuple[int, ...]) -> None:
    """A veth has them come to the queue of the CPU that they are made on."""
    if not {cpu % 2 for cpu in os.sched_getaffinity(0)} >= set(queues):
        pytest.skip("no CPU leads to these queues")
    case, came = Case("rxdrop", queues=queues, drive="live", count=COUNT), {}

    def observe(running: Running) -> None:
        came.update({end.queue: end.counts().received for end in running.ends})

    result, _ = run_once(case, bed.place(case), LONG, observe=observe)
    assert result.far["made"] == COUNT
    assert came == {queue: COUNT // len(queues) for queue in queues}


def test_a_socket_sends_to_queues_that_no_cpu_leads_to(bed: Bed) -> None:
    beyond = 1 + max(os.sched_getaffinity(0))
    result, _ = run(bed, Case("rxdrop", queues=(beyond,), count=COUNT), LONG)
    assert result.counts["received"] == result.far["sent"] > 0
    case = Case("rxdrop", queues=(beyond,), drive="live")
    with pytest.raises(UsageError, match=f"none leads to queue {beyond}"):
        run(bed, case)


@pytest.mark.parametrize("drive", ["auto", "af-xdp"])
def test_a_round_trip_ends_in_the_queue_where_it_began(bed: Bed, drive: str) -> None:
    for queue in (1, 2):
        result, _ = run(bed, Case("latency", queues=(queue,), drive=drive, batch=16, count=50), LONG)
        assert (result.counts["round_trips"], result.counts["lost"]) == (50, 0)


def test_queues_that_generic_mode_does_not_have_over_veth_are_refused(bed: Bed) -> None:
    with pytest.raises(UsageError, match="does not come to the queue"):
        bed.place(Case("rxdrop", xdp="generic", queues=(0, 1)))
    result, _ = run(bed, Case("txonly", xdp="generic", queues=(0, 1), count=COUNT), LONG)
    assert result.counts["sent"] + result.counts["refused"] == COUNT


def test_a_program_counts_what_txonly_sends(bed: Bed) -> None:
    result, running = run(bed, Case("txonly", drive="live", stamped=True), SHORT)
    assert result.far["received"] == result.counts["sent"] > 0
    assert running.mode.xdp == "none"
    assert not running.mode.zero_copy


def test_two_ports_of_ones_own_are_measured_from_the_first_to_the_second(bed: Bed) -> None:
    place = bed.place(Case("rxdrop"))
    with inside(place.namespace), Bed() as here:
        case = Case("loss", interfaces=(place.far[0], place.near[0]), count=COUNT, cycle_ns=200_000, batch=16)
        result, _ = run(here, case, Conditions(duration=1.0))
    assert result.far == {}
    assert result.counts["unique"] == result.counts["received"] == result.counts["sent"] > 0
    assert result.counts["lost"] == 0


@pytest.mark.parametrize("mode", ["rxdrop", "txonly", "l2fwd", "latency", "loss"])
def test_interfaces_wired_to_others_are_driven_from_there(bed: Bed, mode: str) -> None:
    place = bed.place(Case("rxdrop"))
    with inside(place.namespace), Bed(place.far) as here:
        result, _ = run(here, Case(mode, interfaces=place.near, **PACED), LONG)
    counts = result.counts
    assert counts["received"] + counts["sent"] > 0
    if mode == "txonly":
        assert result.far["received"] == counts["sent"]
    elif mode == "latency":
        assert counts["round_trips"] + counts["lost"] == COUNT
    else:
        assert counts["received"] == result.far["sent"]


def test_a_worker_without_capabilities_still_moves_packets(bed: Bed) -> None:
    result, _ = run(bed, Case("rxdrop", **PACED), Conditions(duration=5.0, interval=0.01, reduce_capabilities=True))
    assert result.counts["received"] == result.far["sent"] > 0


def test_capabilities_are_dropped_in_the_calling_thread_alone() -> None:
    failures: list[int] = []

    def body() -> None:
        drop_capabilities()
        try:
            socket.sethostname(socket.gethostname())
        except OSError as error:
            failures.append(error.errno or 0)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert failures == [errno.EPERM]
    socket.sethostname(socket.gethostname())


def test_nothing_that_comes_is_explained(bed: Bed) -> None:
    result, _ = run(bed, Case("rxdrop", drive="none", queues=(0,)), SHORT)
    assert result.counts["received"] == 0
    assert result.notes == ["no packet came or went"]


@pytest.mark.parametrize("mode", ["rxdrop", "l2fwd"])
def test_what_comes_from_elsewhere_and_never_ends_is_not_waited_for(bed: Bed, mode: str) -> None:
    """Counters are of the run, and not of the seconds that a last packet may take (--retries)."""
    place = bed.place(Case("rxdrop"))
    with ExitStack() as stack:
        with place.inside():
            (elsewhere,) = build(Case("rxdrop", drive="live", count=10**9), place, stack, None)
            elsewhere.start()
        begun = time.monotonic()
        result, _ = run(bed, Case(mode, drive="none"), Conditions(duration=0.2, retries=60))
        assert time.monotonic() - begun < 30
    assert result.counts["received"] > 0
    assert result.counts["unfinished"] == 0


def test_no_round_trip_is_left_out(bed: Bed) -> None:
    result, _ = run(bed, Case("latency", batch=16), SHORT)
    assert sum(result.histogram.values()) == result.counts["round_trips"] > 0
    assert result.warm_up_seconds == 0


def test_packets_longer_than_a_frame_are_seen_as_dropped(bed: Bed) -> None:
    place = bed.place(Case("rxdrop", packet_size=3004, multi_buffer=True))
    case = Case("rxdrop", frame_size=2048, packet_size=1500, drive="none")
    with inside(place.namespace), Bed() as here:
        sender = Case("txonly", interfaces=(place.far[0],), packet_size=3004, count=10, queues=(0,))
        result: list[Run] = []

        def observe(running: Running) -> None:
            if len(running.samples) == 2 and not result:
                result.append(run_once(sender, here.place(sender), Conditions(duration=1.0, interval=0.01))[0])

        received, _ = run_once(case, place, Conditions(duration=0.3), observe=observe)
    assert result[0].counts["sent"] == 10
    assert received.kernel["rx_dropped"] == 10
    assert any("do not fit a frame of 2048: --frags" in note for note in received.notes)


def test_an_mtu_that_is_too_small_is_told_before_anything_is_opened(bed: Bed) -> None:
    place = bed.place(Case("rxdrop"))
    with inside(place.namespace), Bed() as here, pytest.raises(UsageError, match="whose MTU is 1500") as caught:
        here.place(Case("txonly", interfaces=(place.near[0],), packet_size=2000))
    assert caught.value.remedy == f"ip link set dev {place.near[0]} mtu 1982"


def test_busy_polling_defers_interrupts_of_ones_own_interface_and_puts_them_back() -> None:
    """In the namespace of the tests: sysfs shows only that."""
    names = (f"xkn{os.getpid() % 100000}a", f"xkn{os.getpid() % 100000}b")
    with Journal.open() as journal:
        journal.apply(CreateVeth(VethEnd(names[0]), VethEnd(names[1])))
        folder = Path("/sys/class/net", names[0])
        if not folder.exists():
            pytest.skip("/sys is of another network namespace")
        values = [folder / "napi_defer_hard_irqs", folder / "gro_flush_timeout"]
        before = [path.read_text() for path in values]
        with Bed() as bed:
            bed.place(Case("rxdrop", interfaces=(names[0],), busy_poll=True))
            assert [path.read_text() for path in values] == ["2\n", "200000\n"]
        assert [path.read_text() for path in values] == before
