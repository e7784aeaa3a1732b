"""Which interfaces can be ports: the table, each of its rows, and what stands in none."""

from __future__ import annotations

import re
import shlex

import pytest

from xskit.abi import netlink as nl
from xskit.emulator.portkinds import LINK_TYPES, PORT_KINDS, Admission, rule
from xskit.netconf.interfaces import Interface

NONE = 0xFFFE


def interface(kind="", *, link_type=nl.ARPHRD_ETHER, driver="", arp=True, lower="", **options: int) -> Interface:
    """As the kernel would describe it; options are attributes by number, `_1=4`."""
    return Interface(
        name="xkp",
        index=7,
        mac="02:00:00:00:00:01",
        mtu=1500,
        max_mtu=65535,
        up=True,
        carrier=True,
        loopback=link_type == nl.ARPHRD_LOOPBACK,
        promiscuous=False,
        arp=arp,
        link_type=link_type,
        kind=kind,
        options={int(name[1:]): value.to_bytes(4, "little") for name, value in options.items()},
        lower=lower,
        master="",
        driver=driver,
        rx_queues=1,
        tx_queues=1,
    )


TAKEN, WARNED, REFUSED = Admission.TAKEN, Admission.WARNED, Admission.REFUSED


@pytest.mark.parametrize(
    ("given", "admission", "clause"),
    [
        (interface(), TAKEN, ""),
        (interface(driver="igb"), TAKEN, ""),
        (interface("veth"), TAKEN, ""),
        (interface("tun"), TAKEN, ""),
        (interface("tun", link_type=NONE), REFUSED, "is a tun, whose packets have no Ethernet header"),
        (
            interface("macvlan", _1=4),
            REFUSED,
            "is a macvlan in bridge mode, which accepts only packets to its own MAC address, even in promiscuous mode",
        ),
        (interface("macvlan", _1=1), REFUSED, "is a macvlan in private mode, which accepts"),
        (interface("macvlan", _1=2), REFUSED, "is a macvlan in vepa mode, which accepts"),
        (interface("macvlan", _1=16), REFUSED, "is a macvlan in source mode, which accepts only packets from the MAC"),
        (interface("macvlan", _1=8), TAKEN, ""),
        (interface("macvtap", _1=8), REFUSED, "is a tap on another interface (of kind macvtap), which connects"),
        (interface("ipvtap", _1=1), REFUSED, "is a tap on another interface (of kind ipvtap), which connects"),
        (interface("ipvlan", _1=0), REFUSED, "is an ipvlan, which accepts packets by IP address"),
        (interface("ipvlan", _1=1), REFUSED, "is an ipvlan, which"),
        (interface("netkit", _5=0), TAKEN, ""),
        (interface("netkit", _5=1), REFUSED, "is a netkit device in l3 mode, which carries IP packets"),
        (interface("vlan"), TAKEN, ""),
        (interface("macsec"), TAKEN, ""),
        (interface("bridge"), WARNED, "is a bridge, which also hands over copies"),
        (interface("bond", _1=1), TAKEN, ""),
        (interface("bond", _1=5), WARNED, "is a bond in balance-tlb mode, which replaces"),
        (interface("bond", _1=6), WARNED, "is a bond in balance-alb mode, which replaces"),
        (interface("vxlan", _25=0), TAKEN, ""),
        (interface("vxlan", _25=1), REFUSED, "is a tunnel of kind vxlan in external mode, whose packets each need"),
        (interface("geneve"), TAKEN, ""),
        (interface("geneve", _6=0), REFUSED, "is a tunnel of kind geneve in external mode"),
        (interface("gretap"), TAKEN, ""),
        (interface("ip6gretap", _18=0), REFUSED, "is a tunnel of kind ip6gretap in external mode"),
        (interface("erspan"), WARNED, "is an ERSPAN tunnel"),
        (interface("erspan", _18=0), REFUSED, "is a tunnel of kind erspan in external mode"),
        (interface("dummy", arp=False), REFUSED, "is a dummy, which gets no packets and drops what is sent to it"),
        (interface("ifb", arp=False), REFUSED, "is an ifb, which accepts only packets that tc redirects to it"),
        (interface("vrf", arp=False), REFUSED, "is a VRF, which routes IP packets"),
        (interface("wireguard", link_type=NONE), REFUSED, "is a link of kind wireguard, whose packets have no"),
        (interface("ipoib", link_type=32), REFUSED, "is a link of kind ipoib, whose packets have no Ethernet header"),
        (interface("vcan", link_type=280), REFUSED, "is a link of kind vcan, whose packets have no Ethernet header"),
        (
            interface("lo", link_type=nl.ARPHRD_LOOPBACK),
            REFUSED,
            "is a loopback interface, which gives no packets to AF_XDP",
        ),
        (
            interface(driver="qmi_wwan", link_type=NONE),
            REFUSED,
            "has the link type 'none': its packets have no Ethernet",
        ),
        (interface(link_type=803), REFUSED, "has the link type 'IEEE 802.11 with radiotap headers': its packets have"),
        (interface("newkind", link_type=12345), REFUSED, "has the link type '12345': its packets have no Ethernet"),
        (interface("bond", link_type=32), REFUSED, "has the link type 'InfiniBand': its packets have no Ethernet"),
        (interface("newkind"), WARNED, "is of the kind 'newkind', which xskit does not know: check that packets from"),
        (interface(arp=False), WARNED, "says that it needs no ARP (NOARP)"),
        (interface("veth", arp=False), TAKEN, ""),
        (interface(driver="hv_netvsc"), WARNED, "is a Hyper-V adapter, whose switch drops packets"),
        (interface(driver="ena"), WARNED, "is a cloud adapter (ena), whose network drops packets"),
        (interface(driver="iavf"), WARNED, "is a virtual function (iavf), whose NIC drops packets"),
        (interface("vlan", driver="ena"), TAKEN, ""),  # a kind's driver is its own
    ],
    ids=lambda value: (
        f"{value.kind or value.driver or 'nic'}-{value.link_type}" if isinstance(value, Interface) else ""
    ),
)
def test_what_the_table_says(given, admission, clause):
    ruling = rule(given)
    assert ruling.admission is admission
    assert ruling.clause.startswith(clause)
    assert bool(ruling.clause) == (admission is not TAKEN)
    assert (ruling.remedy is not None) == (admission is REFUSED)


def test_a_wireless_client_is_refused_and_an_access_point_is_not():
    refused = rule(interface(driver="iwlwifi"), alone=True)
    assert refused.admission is REFUSED
    assert refused.clause == "is a wireless client, whose frames carry only its own MAC address"
    assert refused.remedy == "iw dev xkp set 4addr on"
    assert rule(interface(driver="iwlwifi"), "blue", alone=True).remedy == (
        "ip netns exec blue iw dev xkp set 4addr on"
    )
    assert rule(interface(driver="iwlwifi")).admission is TAKEN


def test_a_remedy_names_the_interface_below_and_the_namespace():
    assert rule(interface("macvlan", _1=4, lower="eth1")).remedy == (
        "ip link del xkp && ip link add link eth1 name xkp type macvlan mode passthru"
    )
    assert rule(interface("macvlan", _1=4, lower="eth1"), "blue").remedy == (
        "ip -n blue link del xkp && ip -n blue link add link eth1 name xkp type macvlan mode passthru"
    )
    # What is below is in another namespace.
    assert rule(interface("macvlan", _1=4)).remedy == "ip link add xk0 type veth peer name xk1"


@pytest.mark.parametrize("number", LINK_TYPES)
def test_what_has_no_ethernet_header_is_refused_whatever_its_kind(number):
    for kind in ("", "bridge", "bond", "tun", "team", "newkind"):
        assert rule(interface(kind, link_type=number)).admission is REFUSED


def test_every_row_can_be_reached_and_says_why():
    """A row that stands behind one that fits all it does would never decide."""
    for row in PORT_KINDS:
        options = {f"_{row.option.number}": value for value in row.option.values} if row.option else {}
        kinds = [interface(kind, link_type=NONE if row.ethernet is False else 1, **options) for kind in row.kinds]
        drivers = [interface(driver=driver, **options) for driver in row.drivers]
        made = [*kinds, *drivers] or [interface(driver="iwlwifi")]
        deciding = [next(one for one in PORT_KINDS if one.fits(given, alone=row.alone)) for given in made]
        if row.title == "a tun":
            continue  # which only its link type tells from a tap
        assert row in deciding, row.title
        assert bool(row.reason) == (row.admission is not TAKEN)
        assert (row.instead != "") == (row.admission is REFUSED)


def test_every_remedy_can_be_typed():
    for row in PORT_KINDS:
        if row.instead:
            words = shlex.split(row.instead.format(ip="ip -n blue", run="", name="xkp", lower="eth1", kind="vxlan"))
            assert words[0] in ("ip", "iw")
            assert not re.search(r"[{}<>A-Z]", " ".join(words))


def test_kinds_are_named_once():
    """Except where an option or the link type tells two rows apart."""
    last = {kind: row for row in PORT_KINDS for kind in row.kinds}
    for row in PORT_KINDS:
        for kind in row.kinds:
            assert row is last[kind] or row.option is not None or row.ethernet is not None, kind
