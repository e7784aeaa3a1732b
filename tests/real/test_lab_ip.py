"""IPv4 and IPv6 in labs: addresses and names, links that have one of them, and neighbours on slow links."""

from __future__ import annotations

import json
import socket

import pytest

from tests.real.lab_rig import pair, wait_until
from xskit.emulator.mistakes import SettingsError
from xskit.errors import UsageError
from xskit.lab import Lab, traffic
from xskit.netconf.subnets import networks_in_use

pytestmark = pytest.mark.root


def told(host, *argv):
    """What a command of ip(8) on a host says, as JSON."""
    return json.loads(host.run("ip", "-json", *argv, capture_output=True, text=True, check=True).stdout or "[]")


def flags(host, address):
    """The flags of an address of a host, the lifetimes included."""
    found = [one for link in told(host, "address") for one in link["addr_info"] if one["local"] == address]
    return found[0]


def permanent(host):
    """The permanent neighbours of a host, and their MAC addresses."""
    return {one["dst"]: one["lladdr"] for one in told(host, "neighbour") if "PERMANENT" in one["state"]}


def names(host, name):
    lines = host.run("getent", "ahosts", name, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split()[0] for line in lines if "STREAM" in line]


def test_hosts_have_both_at_once():
    with pair() as made:
        assert made.link.addresses == ("198.18.1.1", "198.18.1.2")
        assert made.link.addresses6 == ("fd78:736b:6974:1::1", "fd78:736b:6974:1::2")
        assert (made.a.addresses6, made.a.address6) == ([made.link.addresses6[0]], made.link.addresses6[0])
        for host in (made.a, made.b):
            own = flags(host, host.address6)
            assert "tentative" not in own
            assert own["deprecated"] is True  # names lead to IPv4 first
            with host.inside(), socket.create_server(("::1", 7000), family=socket.AF_INET6):  # loopback has IPv6, too
                pass
        assert names(made.a, "b") == [made.b.address, made.b.address6]
        (route,) = told(made.a, "-6", "route", "get", made.b.address6)
        assert route["prefsrc"] == made.a.address6


def test_test_traffic_goes_over_ipv6():
    with pair(owd="2ms") as made:
        result = traffic.udp(made.a, made.b, packets=100, interval_ns=50_000, frame_bytes=1000, ipv6=True)
        assert (result.sent, result.received, result.reordered) == (100, 100, 0)
        assert result.owd_ns[0] >= 2_000_000
        assert min(traffic.ping(made.a, made.b, count=2, interval_ns=1_000_000, ipv6=True)) >= 4_000_000
        assert made.link.report().links[0].directions[0].bytes["received"] == 100 * 1000 + 2 * (14 + 40 + 16)


@pytest.mark.parametrize("ipv6", [False, True])
def test_tcp_in_an_ipv6_only_lab(ipv6, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with Lab(ip=6) as lab:
        a, b = lab.host("a"), lab.host("b")
        link = lab.link(a, b, rate="100Mbit")
        assert link.addresses == link.addresses6 == ("fd78:736b:6974:1::1", "fd78:736b:6974:1::2")
        assert (a.address, a.address6) == (link.addresses[0], link.addresses[0])
        assert names(a, "b") == [b.address]
        assert "deprecated" not in flags(a, a.address)
        assert told(a, "-4", "address", "show", a.interfaces[0]) == []
        bps, _ = traffic.tcp(a, b, seconds=0.1, ipv6=ipv6)
        assert 0 < bps < 100_000_000


def test_a_lab_with_ipv4_only():
    with Lab(ip=4) as lab:
        a, b = lab.host("a"), lab.host("b")
        link = lab.link(a, b)
        assert (link.addresses6, a.addresses6) == (None, [None])
        with pytest.raises(UsageError, match=r"^host a has no IPv6 address: none of its links has IPv6$"):
            _ = a.address6
        assert told(a, "-6", "address") == []
        assert names(a, "b") == [b.address]
        assert link.report().warnings == []


def test_an_mtu_that_is_too_small_for_ipv6():
    with Lab() as lab:
        a, b = lab.host("a"), lab.host("b")
        link = lab.link(a, b, mtu=1000)
        assert (link.addresses6, a.addresses6) == (None, [None])
        assert told(a, "-6", "address", "show", "dev", a.interfaces[0]) == []
        cause = "IPv6 needs an MTU of at least 1280 bytes, not 1000"
        assert link.report().warnings == [f"link a-b has no IPv6: {cause}"]
        second = lab.link(a, lab.host("c"))
        assert a.address6 == second.addresses6[0]
    with Lab(ip=6) as lab:
        with pytest.raises(SettingsError, match=f"^{cause}\n.*mtu=1280$"):
            lab.link(lab.host("a"), lab.host("b"), mtu=1000)
        assert networks_in_use() is not None
        lab.link(lab.hosts["a"], lab.hosts["b"], mtu=1280)


# -- neighbours ----------------------------------------------------------------------------------------------------

SLOW = "link a-b: a round trip takes 1s or more"


def test_an_update_to_a_slow_link_finds_neighbours_that_never_expire():
    with pair(owd="10ms") as made:
        macs = [told(host, "link", "show", host.interfaces[0])[0]["address"] for host in (made.a, made.b)]
        for host, other, mac in ((made.a, made.b, macs[1]), (made.b, made.a, macs[0])):
            (link_local,) = [
                one["local"] for one in told(other, "address", "show", other.interfaces[0])[0]["addr_info"]
                if one["scope"] == "link"
            ]  # fmt: skip
            assert permanent(host) == {other.address: mac, other.address6: mac, link_local: mac}
        assert made.link.report().warnings == []
        made.link.forward.update(owd="500ms")
        made.link.reverse.update(owd="499ms")
        assert made.link.report().warnings == []
        made.link.update(owd="1500ms")
        made.link.update(owd="2s")
        (warning,) = made.link.report().warnings
        assert warning.startswith(SLOW)
        with made.a.inside():
            sockets = [made.socket(made.a), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)]
        with sockets[1]:
            for one, address in zip(sockets, (made.b.address, made.b.address6), strict=True):
                one.sendto(b"?", (address, 7000))
        direction = made.link.forward.live.pipeline.counters
        wait_until(lambda: direction.received_bytes >= (42 + 1) + (62 + 1), "both datagrams are on their way")
        assert (direction.received, direction.received_bytes) == (2, (42 + 1) + (62 + 1))  # and no question


def test_neighbours_that_the_kernel_asks_for():
    with Lab(neighbours="kernel") as lab:
        a, b = lab.host("a"), lab.host("b")
        link = lab.link(a, b)
        assert permanent(a) == permanent(b) == {}
        for ipv6 in (False, True):
            assert len(traffic.ping(a, b, count=1, interval_ns=0, ipv6=ipv6)) == 1
        assert {a.address, a.address6} <= {one["dst"] for one in told(b, "neighbour")}
        link.update(owd="2s")
        syn, asking = (one for one in link.report().warnings if "a round trip takes" in one)
        assert syn.startswith(SLOW)
        assert (
            asking
            == "link a-b: a round trip takes 3s or more, but ARP and ND give up after 3s: set neighbours to permanent"
        )
