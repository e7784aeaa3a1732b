"""Interfaces of kinds that this kernel has, as ports: refused with a command that helps, warned of, or taken."""

from __future__ import annotations

import subprocess

import pytest

from tests.real.foreign_hosts import foreign_hosts, ip, told
from tests.real.test_engine_foreign_hosts import transfer
from xskit.emulator.emulator import PortSpec
from xskit.emulator.ports import check_port, remarks
from xskit.xsk.errors import PortError

pytestmark = pytest.mark.root

REMADE = "mode passthru"
HEADERLESS = "whose packets have no Ethernet header"
OWN_MAC = "which accepts only packets to its own MAC address, even in promiscuous mode"


@pytest.fixture
def hosts():
    with foreign_hosts() as made:
        yield made


def add(hosts, command: str) -> PortSpec:
    """Make an interface in the room of the ports, up."""
    words = command.split()
    ip("-n", hosts.room, *words)
    name = words[words.index("name") + 1]
    ip("-n", hosts.room, "link", "set", name, "up")
    return PortSpec(name, hosts.room)


@pytest.mark.parametrize(
    ("words", "clause", "remedy"),
    [
        ("tuntap add name xkn mode tun", f"is a tun, {HEADERLESS}", "tuntap add xk0 mode tap"),
        ("link add name xkn type ifb", "is an ifb, which accepts only packets that tc redirects to it", "link add xk0"),
        (
            "link add name xkn type vxlan external dstport 4789",
            "is a tunnel of kind vxlan in external mode, whose packets each need a destination",
            "link help vxlan",
        ),
        *(
            (f"link add link xkp1 name xkn type macvlan mode {mode}", f"is a macvlan in {mode} mode, {OWN_MAC}", REMADE)
            for mode in ("private", "vepa", "bridge")
        ),
        (
            "link add link xkp1 name xkn type macvlan mode source",
            "is a macvlan in source mode, which accepts only packets from the MAC addresses on its list",
            REMADE,
        ),
        ("link add link xkp1 name xkn type macvtap", "is a tap on another interface (of kind macvtap)", "tuntap"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_port_is_refused(hosts, words, clause, remedy):
    port = add(hosts, words)
    with pytest.raises(PortError) as refused:
        check_port(port)
    assert refused.value.cause.startswith(f"{port} {clause}")
    assert remedy in refused.value.remedy
    subprocess.run(["sh", "-c", refused.value.remedy], check=True, capture_output=True, timeout=30)


def test_the_remedy_for_a_macvlan_makes_one_that_carries_other_addresses(hosts):
    port = add(hosts, "link add link xkp1 name xkn type macvlan mode bridge")
    hosts.ports = (hosts.ports[0], port)
    with pytest.raises(PortError) as refused, hosts.emulator():
        pass
    subprocess.run(["sh", "-c", refused.value.remedy], check=True, timeout=30)
    ip("-n", hosts.room, "link", "set", "xkn", "up")
    with hosts.emulator() as emulator:
        transfer(hosts, 10_000)
        assert told(emulator) == []


def test_a_bridge_carries_packets_with_a_warning(hosts):
    bridge = add(hosts, "link add name xkn type bridge")
    ip("-n", hosts.room, "link", "set", "xkp1", "master", "xkn")
    hosts.ports = (hosts.ports[0], bridge)
    with hosts.emulator() as emulator:
        transfer(hosts, 10_000)
        assert told(emulator) == [
            f"port {bridge} is a bridge, which also hands over copies of the packets that its own ports exchange"
        ]


def test_addresses_and_interfaces_that_lose_their_packets_are_warned_of(hosts):
    add(hosts, "link add link xkp1 name xkn type macvlan mode bridge")
    add(hosts, "link add link xkp1 name xkm type macvlan mode bridge")
    port = hosts.ports[1]
    assert remarks(hosts.ports[0]) == []
    assert remarks(port) == [f"port {port} is below xkn, xkm: no packets arrive there while the link runs"]
    ip("-n", hosts.room, "address", "add", "198.18.255.7/24", "dev", port.name)
    assert remarks(port)[0] == (
        f"port {port} has the address 198.18.255.7: this host gets no packets there while the link runs"
    )


def test_the_other_end_of_a_pair_does_not_lie_on_a_port(hosts):
    add(hosts, "link add name xkq0 type veth peer xkq1")
    assert remarks(PortSpec("xkq0", hosts.room)) == []
