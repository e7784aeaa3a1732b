"""Ring sizes and rules of a NIC, set, read back and put back; no NIC that is emulated has rules, so a stand-in does."""

from __future__ import annotations

import ctypes
import errno

import pytest

from tests.pure.support_journal import journal_folder  # noqa: F401  a fixture
from tests.pure.support_nic import (
    LOCATIONS_OFFSET,
    TCP4_FLOW,
    Rules,
    slot,  # noqa: F401  a fixture
    somebody_elses,
)
from xskit.abi import ethtool as abi
from xskit.errors import DeviceError
from xskit.netconf import hardware
from xskit.netconf.changes import AddFlowRule, Change, Fate, SetRings
from xskit.netconf.interfaces import RefusedError, control_socket
from xskit.netconf.journal import Journal

OURS = (0x88B5, 1)


def rule(location=3):
    return AddFlowRule("eth9", *OURS, location)


@pytest.fixture
def journal():
    with Journal.open() as journal:
        yield journal


def test_the_layout_is_the_compilers():
    assert ctypes.sizeof(Rules) == abi.FLOW.size == 192
    assert LOCATIONS_OFFSET == abi.FLOW_LOCATIONS_OFFSET == 188
    asked = Rules.from_buffer_copy(hardware.FlowRule(0x88B5, 3, 5).pack())
    assert (asked.command, asked.spec.flow_type, asked.spec.ring_cookie, asked.spec.location) == (0x32, 0x12, 3, 5)
    assert bytes(asked.spec.value) == bytes(12) + b"\x88\xb5" + bytes(38)
    assert bytes(asked.spec.mask) == bytes(12) + b"\xff\xff" + bytes(38)
    assert not any(bytes(asked.spec.value_extension) + bytes(asked.spec.mask_extension))


@pytest.mark.parametrize("missing", [errno.ENOENT, errno.EINVAL])
def test_a_rule_is_set_and_put_back(plugged_in, journal, missing):
    nic = plugged_in(missing=missing)
    nic.rules[0] = somebody_elses()
    change = rule()
    assert journal.apply(change)
    assert nic.seen() == {0: OURS, 3: OURS}
    assert str(journal.undo(change)) == "rule 3 of eth9: EtherType 0x88b5 to queue 1: put back"
    assert nic.seen() == {0: OURS}
    assert nic.replaced == 0


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (somebody_elses(), "EtherType 0x88b5 to queue 1"),
        (somebody_elses(TCP4_FLOW), "a rule of another kind (flow type 0x1)"),
        (somebody_elses(mac=b"\2\0\0\0\0\1"), "a rule of another kind (flow type 0x12)"),
    ],
)
def test_a_rule_that_is_there_is_not_replaced(plugged_in, journal, other, shown):
    nic = plugged_in()
    nic.rules[3] = other
    before = nic.seen()
    with pytest.raises(DeviceError) as caught:
        journal.apply(rule())
    assert str(caught.value) == f"eth9 has a rule at location 3 already: {shown}\n  try: ethtool -n eth9"
    assert (nic.seen(), nic.replaced) == (before, 0)
    assert journal.pending == []


def test_a_rule_that_somebody_else_put_in_its_place_stays(plugged_in, journal):
    nic = plugged_in()
    for other in (somebody_elses(queue=2), somebody_elses(TCP4_FLOW), somebody_elses(mac=b"\2\0\0\0\0\1")):
        change = rule()
        journal.apply(change)
        nic.rules[3] = other
        fate = journal.undo(change)
        assert fate.fate is Fate.KEPT
        assert fate.detail.startswith("somebody else's is there: ")
        assert nic.rules.pop(3) is other


def test_a_rule_that_is_gone_already(plugged_in, journal):
    nic = plugged_in()
    change = rule()
    journal.apply(change)
    nic.rules.clear()
    assert journal.undo(change).fate is Fate.GONE


@pytest.mark.parametrize(
    ("options", "change", "why"),
    [
        ({"locations": 0}, rule(), "the rules of eth9 cannot be read: Operation not supported"),
        ({}, rule(8), "the rule 8 of eth9: EtherType 0x88b5 to queue 1 cannot be set: Invalid argument"),
        ({"queues": 1}, rule(), "the rule 3 of eth9: EtherType 0x88b5 to queue 1 cannot be set: Invalid argument"),
        ({}, rule(None), "the rule of eth9: EtherType 0x88b5 to queue 1 cannot be set: Invalid argument"),
    ],
)
def test_a_rule_that_the_driver_refuses(plugged_in, journal, options, change, why):
    nic = plugged_in(**options)
    with pytest.raises(RefusedError) as caught:
        journal.apply(change)
    assert caught.value.cause == why
    assert nic.rules == {}
    assert journal.pending == []


def test_a_rule_of_which_the_driver_makes_another_is_taken_back(plugged_in, journal):
    nic = plugged_in(makes=lambda spec: setattr(spec, "ring_cookie", 0))
    with pytest.raises(DeviceError) as caught:
        journal.apply(rule())
    assert caught.value.cause == (
        "the driver of eth9 took the rule 3 of eth9: EtherType 0x88b5 to queue 1, and made of it "
        "EtherType 0x88b5 to queue 0"
    )
    assert nic.rules == {}
    assert journal.pending == []


def test_a_driver_that_chooses_the_location(plugged_in, journal):
    nic = plugged_in(chooses=6)
    change = rule(None)
    assert journal.apply(change)
    assert nic.seen() == {6: OURS}
    again = Change.kinds["AddFlowRule"].from_record(change.record())
    assert str(again.restore()) == "rule of eth9: EtherType 0x88b5 to queue 1: put back"
    assert nic.rules == {}
    assert journal.undo(change).fate is Fate.GONE


def test_death_before_the_location_was_written_down(plugged_in):
    nic = plugged_in(chooses=6)
    for at, other in enumerate((somebody_elses(), somebody_elses(TCP4_FLOW))):
        nic.rules[at] = other
    change = rule(None)
    assert not change.check()
    change.remember()
    planned = change.record()
    assert AddFlowRule.from_record(planned).restore().fate is Fate.GONE, "killed before it was set"
    change.apply()
    assert AddFlowRule.from_record(planned).restore().fate is Fate.RESTORED
    assert nic.seen() == {0: OURS, 1: TCP4_FLOW}


def test_the_locations_of_many_rules(plugged_in):
    nic = plugged_in(locations=4000)
    with control_socket() as control:
        assert hardware.rule_locations(control, "eth9") == []
        for at in range(0, 4000, 4):
            nic.rules[at] = somebody_elses()
        assert hardware.rule_locations(control, "eth9") == list(range(0, 4000, 4))


def test_ring_sizes_are_set_and_put_back(plugged_in, journal):
    nic = plugged_in()
    change = SetRings("eth9", 1024, 2048)
    assert journal.apply(change)
    assert nic.rings == [1024, 2048]
    assert journal.undo(change).fate is Fate.RESTORED
    assert nic.rings == [256, 512]


def test_ring_sizes_that_the_driver_rounds_are_taken_back(plugged_in, journal):
    nic = plugged_in(ring_unit=64)
    with pytest.raises(DeviceError) as caught:
        journal.apply(SetRings("eth9", 1000, 2048))
    assert str(caught.value) == (
        "eth9 made rings of 1024 and 2048 entries instead of 1000 and 2048\n  try: ethtool -g eth9"
    )
    assert nic.rings == [256, 512]
    with pytest.raises(RefusedError, match="^eth9 cannot have rings of 8192 and 64 entries: Invalid argument"):
        journal.apply(SetRings("eth9", 8192, 64))
    assert nic.rings == [256, 512]
    assert journal.pending == []
