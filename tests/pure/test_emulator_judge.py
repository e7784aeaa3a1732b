"""Whether a run counts: what makes it invalid, what is only remarked, and that no sentence contradicts its numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.support_report import MEMORY_REMEDY, direction, report
from xskit.emulator.judge import judge
from xskit.emulator.report import Report
from xskit.emulator.report_data import DirectionReport, LinkReport
from xskit.emulator.report_text import report_text
from xskit.emulator.settings import DirectionSettings, read
from xskit.emulator.significance import punctuality
from xskit.units import parse_duration


def test_a_valid_run():
    assert report().valid
    assert report().invalid_because == []


def late(settings, late_ns):
    made = report()
    made.links[0].directions[0] = direction("forward", settings, late_ns=[late_ns] * 100)
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    return made.invalid_because


def test_late_by_more_than_a_part_of_the_owd():
    slow = read(DirectionSettings, {"owd": "100ms"})
    assert late(slow, 4_900_000) == []
    assert late(slow, 5_300_000) == ["wan forward: 100 of 100 packets left more than 5ms late (allowed: 1%)"]
    assert late(DirectionSettings(), 950_000) == []
    assert late(DirectionSettings(), 2_000_000) == [
        "wan forward: 100 of 100 packets left more than 1ms late (allowed: 1%)"
    ]


@pytest.mark.parametrize(
    ("cause", "became"),
    [
        ("memory_full", "were dropped because packet memory ran out; set memory to 64MiB"),
        ("tx_refused", "were refused by the kernel on sending"),
        ("port_down", "were due while the port was down"),
        (
            "super_packet",
            "were longer than the MTU of the port where they arrived: an offload merged them, or left them uncut; on "
            "the sender: ethtool -K INTERFACE tso off gso off; on the port: ethtool -K INTERFACE gro off lro off",
        ),
        (
            "egress_mtu",
            "were longer than the MTU of the port where they leave, or of its far end; there: "
            "ip link set INTERFACE mtu BYTES",
        ),
        ("too_many_fragments", "had more fragments than a sent packet may have"),
    ],
)
def test_losses_that_nobody_asked_for_are_named(cause, became):
    made = report()
    made.links[0].directions[1].packets["dropped"][cause] = 12
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.invalid_because == [f"wan reverse: 12 packets {became}"]
    assert not made.valid


def test_packets_that_left_unfinished_invalidate():
    made = report()
    made.links[0].directions[0].checksums["unfinished_checksum"] = 4
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.invalid_because == [
        "wan forward: 4 packets left with an unfinished checksum: the sender leaves it to its device, and xskit cannot "
        "finish it (unfinished_checksum); on the sender: ethtool -K INTERFACE tx off"
    ]


def test_what_a_driver_refused_invalidates():
    made = report()
    made.ports[0].egress_refused = 2
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.invalid_because == [
        "port xk1a: its driver or its far end dropped 2 packets that are counted as sent (egress_refused)"
    ]


def test_what_is_not_known_of_sent_packets_is_a_warning():
    made = report()
    before = list(made.warnings)
    made.ports[0].egress_refused = None
    made.ports[1].egress_uncounted = 7
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.valid
    assert [sentence for sentence in made.warnings if sentence not in before] == [
        "port xk1a: the interface does not count what AF_XDP sends, so it is unknown how many packets its "
        "driver dropped",
        "port xk1b: 7 sent packets are in none of its counters (tx_packets, tx_errors, tx_dropped): its driver "
        "may have dropped them",
    ]


def test_losses_that_were_asked_for_do_not_invalidate():
    made = report()
    made.links[0].directions[1].packets["dropped"] = {"loss": 5, "queue_full": 3}
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.valid


@pytest.mark.parametrize("counter", ["rx_dropped", "rx_ring_full"])
def test_losses_in_the_kernel_are_named(counter):
    made = report()
    made.ports[1].kernel[counter] = 3
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.invalid_because == [f"port xk1b: the kernel dropped 3 packets before xskit saw them ({counter})"]


@pytest.mark.parametrize("counter", ["tx_ring_empty_descs", "rx_fill_ring_empty_descs"])
def test_kernel_counters_that_lose_nothing_by_themselves_do_not_invalidate(counter):
    made = report()
    made.ports[1].kernel[counter] = 3
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.valid


def test_what_else_invalidates_a_run():
    made = report(imbalances=4, broken=["port xk1a was deleted while the link was running"])
    assert made.invalid_because == [
        "port xk1a was deleted while the link was running",
        "the packet counts did not balance 4 times",
    ]


@pytest.mark.parametrize(
    ("counter", "sentence"),
    [
        ("misplaced", "2 frames were not where they should have been (misplaced)"),
        (
            "stray_received",
            "2 entries in RX named no frame that the kernel had from FILL, or more bytes than it holds "
            "(stray_received)",
        ),
        ("stray_completed", "2 entries in COMPLETION named no frame that the kernel had from TX (stray_completed)"),
    ],
)
def test_frames_that_went_astray_invalidate(counter, sentence):
    made = report()
    made.links[0].directions[1].frames[counter] = 2
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.invalid_because == [f"wan reverse: {sentence}"]


def lateness(packets, late, limit_ns=1_000_000, received=None, clamped_late=0, unstamped=0):
    """A direction of which so many packets left late."""
    return DirectionReport(
        "forward",
        asked={"owd_ns": 20 * limit_ns, "loss": 0.0},
        achieved={"loss_packets": [0, packets]},
        stages=[],
        packets={"received": packets if received is None else received, "dropped": {}},
        bytes={},
        lateness_ns={
            "limit": limit_ns,
            "packets": packets,
            "late": late,
            "judgement": punctuality(late, packets),
            "clamped_late": clamped_late,
            "unstamped": unstamped,
        },
    )


def judged(way, **changes):
    made = Report(links=[LinkReport("wan", [way])], ports=[], workers=[], memory={}, duration_ns=1)
    judge(made, **{"imbalances": 0, "broken": [], "remedy": MEMORY_REMEDY} | changes)
    return made


def test_one_late_packet_of_twelve_does_not_make_a_run_invalid():
    made = judged(lateness(12, 1))
    assert made.valid
    assert made.warnings == [
        "wan forward: too few packets to judge lateness (12): 1 of them left more than 1ms late (allowed: 1%)"
    ]


def test_of_few_packets_that_were_all_on_time_it_is_only_noted():
    made = report()
    made.links[0].directions[0] = direction("forward", DirectionSettings(), late_ns=[3_000] * 12)
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert (made.valid, made.warnings) == (True, [])
    assert made.links[0].directions[0].lateness_ns["judgement"] == "too few packets"
    remark = (
        "too few packets to judge lateness: wan forward (12); none left more than 5% of the owd (at least 1ms) late"
    )
    assert remark in report_text(made)


def test_enough_packets_on_time_are_not_remarked():
    made = report()
    made.links[0].directions[0] = direction("forward", DirectionSettings(), late_ns=[3_000] * 459)
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.links[0].directions[0].lateness_ns["judgement"] == "on time"
    assert "too few" not in report_text(made)


@given(st.integers(1, 10**7), st.floats(0, 1), st.integers(1_000_000, 10**12))
def test_no_sentence_about_lateness_contradicts_its_numbers(packets, share, limit_ns):
    made = judged(lateness(packets, round(share * packets), limit_ns))
    for sentence in made.invalid_because + made.warnings:
        late, shown = re.search(r"(\d+) of \w+( packets)? left more than (\S+) late \(allowed: 1%\)", sentence).group(
            1, 3
        )
        assert int(late) > 0.01 * packets
        assert 0.99 * limit_ns <= parse_duration(shown) <= limit_ns
        assert str(packets) in sentence
    assert made.valid == (made.links[0].directions[0].lateness_ns["judgement"] != "late")


def test_after_an_update_the_limit_is_told_as_the_rule_it_follows():
    way = lateness(1_000, 100)
    way.since_update_ns = 7
    assert judged(way).invalid_because == [
        "wan forward: 100 of 1000 packets left more than 5% of the owd (at least 1ms) late (allowed: 1%)"
    ]


def test_packets_that_the_kernel_kept_back_are_late_too():
    """Their arrival was moved to the watermark, so their lateness does not show it."""
    assert judged(lateness(1_000, 0, clamped_late=15, received=2_000)).valid
    assert judged(lateness(12, 0, clamped_late=1)).warnings == [
        "wan forward: too few packets to judge their time in the kernel (12): 1 of them waited more than 1ms there "
        "(allowed: 1%)"
    ]
    assert judged(lateness(1_000, 0, clamped_late=40, received=2_000)).invalid_because == [
        "wan forward: 40 of 2000 packets waited more than 1ms in the kernel before xskit saw them (allowed: 1%)"
    ]


def test_packets_without_an_arrival_stamp_are_remarked():
    made = judged(lateness(1_000, 0, unstamped=3))
    assert made.valid
    assert made.warnings == [
        "wan forward: 3 of 1000 packets have no arrival stamp, so their time in the kernel is unknown"
    ]


@pytest.mark.parametrize(
    ("counter", "became"),
    [
        ("rx_invalid_descs", "the kernel rejected 2 frames that xskit put into FILL"),
        ("tx_invalid_descs", "the kernel dropped 2 descriptors that xskit put into TX"),
    ],
)
def test_what_the_kernel_could_not_use_makes_a_run_invalid(counter, became):
    made = report()
    made.ports[0].kernel[counter] = 2
    judge(made, imbalances=0, broken=[], remedy=MEMORY_REMEDY)
    assert made.invalid_because == [f"port xk1a: {became} ({counter})"]


@pytest.mark.parametrize(("loss", "asked"), [(0.0, "0%"), (0.1, "10%"), (1.0, "100%")])
def test_a_loss_that_was_not_asked_for_makes_a_run_invalid(loss, asked):
    way = lateness(1_000, 0)
    way.asked["loss"] = loss
    way.achieved["loss_packets"] = [333, 1_000]
    assert judged(way).invalid_because == [
        f"wan forward: the loss stage dropped 333 of 1000 packets, although the loss asked for is {asked}"
    ]
    way.achieved["loss_packets"] = [round(loss * 1_000), 1_000]
    assert judged(way).valid


def test_a_link_that_no_packet_came_to_is_noted():
    made = judged(direction("forward", DirectionSettings()))
    assert (made.valid, made.warnings) == (True, [])
    assert "no packets on wan: nothing was measured" in report_text(made)
    assert "no packets" not in report_text(report())


def test_numbers_of_several_moments_are_remarked():
    assert judged(lateness(500, 0), whole=False).warnings == [
        "a worker did not answer in time, so the counts were not all read at the same moment"
    ]


def test_a_reason_is_not_shown_as_a_warning_too():
    made = report(broken=["port xk1a: its XDP program was detached"])
    made.warnings = ["port xk1a: its XDP program was detached", "something else"]
    text = report_text(made, width=200)
    assert text.count("its XDP program was detached") == 1
    assert "warning: something else" in text
