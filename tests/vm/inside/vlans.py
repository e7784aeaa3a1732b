"""VLAN interfaces (8021q): over the NICs at both ends of a link, whose tags must cross it; and as a link's ports."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.vm.inside.wire import FAR, INNER, NEAR, OUTER, compare, cross, ends, packets, padded
from xskit.emulator.emulator import Emulator
from xskit.emulator.ports import LinkSpec, PortSpec
from xskit.emulator.settings import EngineSettings, LinkSettings

TAG, OTHER_TAG = 5, 6


@contextmanager
def vlan(over: str, tag: int) -> Iterator[str]:
    """A VLAN interface over a NIC; its name."""
    name = f"xkv{tag}{over}"
    for words in (f"link add link {over} name {name} type vlan id {tag}", f"link set {name} up"):
        subprocess.run(["ip", *words.split()], check=True)
    try:
        yield name
    finally:
        subprocess.run(["ip", "link", "del", name], check=True)


def check_vlan_interfaces() -> None:
    """What one sends comes to the one of the same tag at the other end, whole and in order, and to no other."""
    _check(INNER, OUTER)


def check_ports_that_are_vlan_interfaces() -> None:
    """A link of one VLAN only: its packets have no tag while they are inside."""
    with vlan(INNER, TAG) as inner, vlan(OUTER, TAG) as outer:
        _check(inner, outer)


def _check(*ports: str) -> None:
    there, back = packets(40), packets(40, first=1000)
    first, second = map(PortSpec, ports)
    link = LinkSpec("wan", (first, second), LinkSettings(owd="5ms"))
    with (
        vlan(NEAR, TAG) as near_name,
        vlan(FAR, TAG) as far_name,
        vlan(FAR, OTHER_TAG) as other_name,
        Emulator([link], EngineSettings()) as running,
        ends(near_name, far_name, other_name) as (near, far, other),
    ):
        compare(cross(there, near.send, far.receive), padded(there))
        compare(cross(back, far.send, near.receive), padded(back))
        assert other.receive(1, patience_s=0.2) == []
        report = running.close()
    assert report is not None
    assert not [warning for warning in report.warnings if "VLAN" in warning]  # of lateness a slow machine may warn


CHECKS = (check_vlan_interfaces, check_ports_that_are_vlan_interfaces)
