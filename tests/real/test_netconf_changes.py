"""Changes of the network set-up, really made and really put back; asked of the kernel by iproute2, not by xskit."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from xskit.errors import DeviceError
from xskit.netconf import interfaces, netdev
from xskit.netconf.changes import (
    AddRoute,
    CreateNamespace,
    CreateVeth,
    Fate,
    SetAddress,
    SetLinkUp,
    SetMtu,
    SetOffload,
    SetPromiscuous,
    SetSysctl,
    TemporaryFile,
    VethEnd,
)
from xskit.netconf.ethtool import Feature, features
from xskit.netconf.interfaces import Glance, LinkState, RefusedError, Watch
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import MissingError, inside
from xskit.netconf.peers import FarEnd, far_end

pytestmark = pytest.mark.root

A, B = f"xkca{os.getpid()}", f"xkcb{os.getpid()}"


def ip(*words: str, namespace: str = A) -> list[dict]:
    answer = subprocess.run(["ip", "-j", "-d", "-n", namespace, *words], check=True, capture_output=True, text=True)
    return json.loads(answer.stdout or "[]")


def sh(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def offloads(interface: str, namespace: str = A) -> dict[str, Feature]:
    with inside(namespace), interfaces.control_socket() as control:
        return features(control, interface)


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path / "run"))
    with Journal.open() as journal:
        yield journal


@pytest.fixture
def pair(journal):
    """va in A, vb in B."""
    journal.apply(CreateNamespace(A))
    journal.apply(CreateNamespace(B))
    journal.apply(CreateVeth(VethEnd("va", A, mac="02:00:00:00:00:0a", mtu=1600, queues=3), VethEnd("vb", B)))
    return journal


def test_veth_is_born_as_asked(pair):
    (va,) = ip("link", "show", "va")
    assert (va["address"], va["mtu"], va["num_rx_queues"], va["num_tx_queues"]) == ("02:00:00:00:00:0a", 1600, 3, 3)
    assert va["linkinfo"]["info_kind"] == "veth"
    assert "UP" not in va["flags"]
    (vb,) = ip("link", "show", "vb", namespace=B)
    assert (vb["mtu"], vb["num_rx_queues"]) == (1500, 1)
    assert {name for _, name in socket.if_nameindex()}.isdisjoint({"va", "vb"})
    with inside(A):
        facts = interfaces.look("va")
    assert (facts.index, facts.mac, facts.mtu, facts.kind, facts.driver) == (
        va["ifindex"],
        "02:00:00:00:00:0a",
        1600,
        "veth",
        "veth",
    )
    assert (facts.rx_queues, facts.tx_queues, facts.up, facts.carrier) == (3, 3, False, False)


def test_veth_is_gone_after_restore(pair):
    pair.restore()
    assert not (Path("/run/netns") / A).exists()
    assert not (Path("/run/netns") / B).exists()


def test_veth_in_the_journals_own_namespace(journal):
    name = f"xkc{os.getpid()}"
    veth = CreateVeth(VethEnd(f"{name}a"), VethEnd(f"{name}b"))
    journal.apply(veth)
    with pytest.raises(DeviceError, match=f"there is already a veth pair {name}b and {name}c"):
        journal.apply(CreateVeth(VethEnd(f"{name}b"), VethEnd(f"{name}c")))
    assert journal.undo(veth).fate is Fate.RESTORED
    assert not interfaces.exists(f"{name}a")


def test_a_veth_that_somebody_else_made_instead_is_left_alone(pair):
    with inside(A):
        interfaces.delete("va")
    sh("ip", "-n", A, "link", "add", "va", "type", "veth", "peer", "name", "vx")
    fates = {str(fate) for fate in pair.restore()}
    assert any(fate.startswith("veth pair va") and "another interface now" in fate for fate in fates)


def test_refused_veth_leaves_nothing(journal):
    journal.apply(CreateNamespace(A))
    with pytest.raises(RefusedError, match="making the veth pair"):
        journal.apply(CreateVeth(VethEnd("va", A, mtu=10), VethEnd("vb", A)))
    with inside(A):
        assert not interfaces.exists("va")
    assert [type(change) for change in journal.pending] == [CreateNamespace]


def test_address(pair):
    for text in ("10.9.0.1/24", "fd09::1/64"):
        address = SetAddress("va", text, namespace=A)
        assert pair.apply(address)
        assert address.check()
        assert not pair.apply(SetAddress("va", text, namespace=A))
        found = [f"{each['local']}/{each['prefixlen']}" for each in ip("addr", "show", "va")[0]["addr_info"]]
        assert text in found
        assert pair.undo(address).fate is Fate.RESTORED
        assert not address.check()


def test_an_address_that_is_gone_already(pair):
    for text in ("10.9.0.1/24", "fd09::1/64"):
        address = SetAddress("va", text, namespace=A)
        pair.apply(address)
        sh("ip", "-n", A, "addr", "del", text, "dev", "va")
        assert pair.undo(address).fate is Fate.GONE


def test_an_address_works_at_once(pair):
    """No IPv6 duplicate address detection, which would take a second."""
    pair.apply(SetLinkUp("va", namespace=A))
    pair.apply(SetLinkUp("vb", namespace=B))
    pair.apply(SetAddress("va", "fd09::1/64", namespace=A))
    (address,) = [each for each in ip("addr", "show", "va")[0]["addr_info"] if each["local"] == "fd09::1"]
    assert "tentative" not in address


def test_mtu(pair):
    mtu = SetMtu("va", 9000, namespace=A)
    pair.apply(mtu)
    assert ip("link", "show", "va")[0]["mtu"] == 9000
    assert pair.undo(mtu).fate is Fate.RESTORED
    assert ip("link", "show", "va")[0]["mtu"] == 1600


def test_mtu_that_somebody_else_changed_stays(pair):
    mtu = SetMtu("va", 9000, namespace=A)
    pair.apply(mtu)
    sh("ip", "-n", A, "link", "set", "va", "mtu", "2000")
    assert str(pair.undo(mtu)) == "MTU 9000 of va: left alone (somebody else set it to 2000)"
    assert ip("link", "show", "va")[0]["mtu"] == 2000


def test_mtu_that_cannot_be(pair):
    with pytest.raises(RefusedError, match="^the MTU of va cannot be 70000: ") as caught:
        pair.apply(SetMtu("va", 70000, namespace=A))
    assert caught.value.number == 22
    assert ip("link", "show", "va")[0]["mtu"] == 1600


def test_link_up_and_what_the_watch_sees(pair):
    with inside(A):
        watch = Watch()
    up_a, up_b = SetLinkUp("va", namespace=A), SetLinkUp("vb", namespace=B)
    with watch:
        assert watch.state("va") is LinkState.DOWN
        pair.apply(up_a)
        assert watch.state("va") is LinkState.DOWN  # no carrier yet
        pair.apply(up_b)
        assert watch.wait("va", timeout_s=5) is LinkState.UP
        with inside(B), Watch() as other:  # at once, although IFF_RUNNING of the second one follows a second later
            assert other.state("vb") is LinkState.UP
        assert pair.undo(up_b).fate is Fate.RESTORED
        assert watch.state("va") is LinkState.DOWN
        assert watch.wait("va", timeout_s=0.01) is LinkState.DOWN
        with inside(A):
            interfaces.delete("va")
        assert watch.state("va") is LinkState.GONE
    assert pair.undo(up_a).fate is Fate.GONE


def test_offload(pair):
    before = offloads("va")
    assert before["tx-checksum-ip-generic"].active
    assert before["tx-tcp-segmentation"].active
    assert before["tx-generic-segmentation"].active
    change = SetOffload("va", {"tx": False, "gso": False}, namespace=A)
    assert pair.apply(change)
    now = offloads("va")
    assert not now["tx-checksum-ip-generic"].active
    assert not now["tx-tcp-segmentation"].active  # the kernel drags it along
    assert not now["tx-generic-segmentation"].active
    assert not pair.apply(SetOffload("va", {"tx-checksumming": False}, namespace=A))
    assert pair.undo(change).fate is Fate.RESTORED
    assert offloads("va") == before


def test_offloads_of_an_interface_that_has_another_name_by_now(pair):
    before = offloads("va")
    change = SetOffload("va", {"tx": False}, namespace=A)
    pair.apply(change)
    sh("ip", "-n", A, "link", "set", "va", "name", "vz")
    sh("ip", "-n", A, "link", "add", "va", "type", "veth", "peer", "name", "vc")
    other = offloads("va")
    assert pair.undo(change).fate is Fate.RESTORED
    assert offloads("vz") == before
    assert offloads("va") == other
    sh("ip", "-n", A, "link", "set", "vz", "name", "vy")
    sh("ip", "-n", A, "link", "del", "vy")
    with pytest.raises(MissingError):
        change.restore()


def test_a_glance_follows_an_interface_by_its_index(pair):
    with inside(A):
        index = interfaces.index("va")
        watch = Watch()
    with watch:
        assert watch.glance(index) == Glance("va", LinkState.DOWN, 1600)
        sh("ip", "-n", A, "link", "set", "va", "name", "vz", "mtu", "1700")
        assert watch.glance(index) == Glance("vz", LinkState.DOWN, 1700)
        sh("ip", "-n", A, "link", "del", "vz")
        assert watch.glance(index) is None


def test_offloads_that_were_off_before_stay_off(pair):
    first = SetOffload("va", {"tso": False}, namespace=A)
    pair.apply(first)
    middle = offloads("va")
    second = SetOffload("va", {"tx": False, "tso": False}, namespace=A)
    pair.apply(second)
    pair.undo(second)
    assert offloads("va") == middle
    assert not middle["tx-tcp-segmentation"].active
    assert middle["tx-checksum-ip-generic"].active


def test_offload_with_a_fixed_feature(pair):
    fixed = next(feature for feature in offloads("va").values() if feature.fixed and not feature.active)
    with pytest.raises(DeviceError, match=f"^va keeps {fixed.name} off\n  try: ethtool -k va"):
        pair.apply(SetOffload("va", {fixed.name: True}, namespace=A))
    with pytest.raises(DeviceError, match="va has no offload nonsense"):
        pair.apply(SetOffload("va", {"nonsense": True}, namespace=A))
    assert not pair.apply(SetOffload("va", {"nonsense": False}, namespace=A))  # what is not there is off


def test_routes(pair):
    pair.apply(SetLinkUp("va", namespace=A))
    pair.apply(SetLinkUp("vb", namespace=B))
    pair.apply(SetAddress("va", "10.9.0.1/24", namespace=A))
    pair.apply(SetAddress("va", "fd09::1/64", namespace=A))
    for route in (
        AddRoute("default", via="10.9.0.2", namespace=A),
        AddRoute("10.77.0.0/16", via="10.9.0.2", interface="va", namespace=A, metric=5),
        AddRoute("10.78.0.0/16", interface="va", namespace=A),
        AddRoute("default6", via="fd09::2", namespace=A),
        AddRoute("fd77::/32", interface="va", namespace=A),
    ):
        assert pair.apply(route), route
        assert route.check(), route
        family = "-6" if ":" in route.destination or route.destination == "default6" else "-4"
        shown = route.destination.removesuffix("6") if route.destination.startswith("default") else route.destination
        assert shown in {each["dst"] for each in ip(family, "route", "show", "table", "main")}, route
        assert not pair.apply(route), route
        assert pair.undo(route).fate is Fate.RESTORED, route
        assert not route.check(), route
    with pytest.raises(RefusedError, match=r"the route to default via 10\.200\.0\.1 cannot be set: .*unreachable"):
        pair.apply(AddRoute("default", via="10.200.0.1", namespace=A))


def test_sysctl_of_one_namespace(pair):
    key = "net/ipv6/conf/va/accept_dad"
    change = SetSysctl(key, "0", namespace=A)
    assert pair.apply(change)
    assert not SetSysctl("net.ipv6.conf.va.accept_dad", "1", namespace=A).check()
    assert SetSysctl("net.ipv6.conf.va.accept_dad", "0", namespace=A).check()
    sh("ip", "netns", "exec", A, "sysctl", "-q", "-w", "net.ipv6.conf.va.accept_dad=2")
    assert pair.undo(change).fate is Fate.KEPT
    forward = SetSysctl("net.ipv4.ip_forward", "1", namespace=A)
    here = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    assert pair.apply(forward)
    assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == here
    assert pair.undo(forward).fate is Fate.RESTORED
    with pytest.raises(MissingError, match="this kernel has no parameter net/nonsense"):
        pair.apply(SetSysctl("net/nonsense", "1", namespace=A))
    with pytest.raises(RefusedError, match="cannot be set to x: Invalid argument"):
        pair.apply(SetSysctl("net.ipv4.ip_forward", "x", namespace=A))


def test_promiscuous_is_counted(pair):
    first, second = SetPromiscuous("va", namespace=A), SetPromiscuous("va", namespace=A)
    pair.apply(first)
    pair.apply(second)
    assert ip("link", "show", "va")[0]["promiscuity"] == 2
    assert pair.undo(first).fate is Fate.RESTORED
    assert pair.undo(first).fate is Fate.GONE
    assert ip("link", "show", "va")[0]["promiscuity"] == 1
    with inside(A):
        assert interfaces.look("va").promiscuous
    pair.undo(second)
    assert ip("link", "show", "va")[0]["promiscuity"] == 0


def test_a_refused_wish_to_be_promiscuous_leaves_no_socket(pair, monkeypatch):
    change = SetPromiscuous("va", namespace=A)
    monkeypatch.setattr(interfaces, "index", lambda name: 1 << 30)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(RefusedError, match="^va cannot be made promiscuous: ") as caught:
        pair.apply(change)
    assert os.listdir("/proc/self/fd") == before
    assert caught.value.number == errno.ENODEV
    assert not change.check()


def test_the_far_end_of_a_veth(pair, monkeypatch):
    assert far_end("va", A) == FarEnd("vb", B)
    monkeypatch.setattr(interfaces, "_name", lambda control, index: None)
    with pytest.raises(MissingError, match="there is no interface with index"):
        far_end("va", A)


def test_temporary_file(journal, tmp_path):
    path = tmp_path / "file"
    file = TemporaryFile(str(path), "text\n")
    journal.apply(file)
    assert path.read_text() == "text\n"
    with pytest.raises(DeviceError, match="there is already a file"):
        journal.apply(TemporaryFile(str(path)))
    assert journal.undo(file).fate is Fate.RESTORED
    assert not path.exists()
    journal.apply(file)
    path.rename(tmp_path / "kept")
    path.write_text("somebody else's")
    assert journal.undo(file).fate is Fate.KEPT
    assert path.exists()


def test_everything_when_the_namespace_is_gone_already(pair):
    pair.apply(SetLinkUp("va", namespace=A))
    pair.apply(SetAddress("va", "10.9.0.1/24", namespace=A))
    pair.apply(SetOffload("va", {"tx": False}, namespace=A))
    pair.apply(SetSysctl("net.ipv4.ip_forward", "1", namespace=A))
    pair.apply(SetMtu("va", 2000, namespace=A))
    sh("ip", "netns", "delete", A)
    sh("ip", "netns", "delete", B)
    assert {fate.fate for fate in pair.restore()} == {Fate.GONE}


def test_device_features(pair):
    with inside(A):
        veth, loopback = netdev.device_features("va"), netdev.device_features("lo")
        with pytest.raises(MissingError):
            netdev.device_features("nonsense")
    if veth is None:
        pytest.skip("the kernel has no netdev family (6.3)")
    assert netdev.abi.XdpFeature.BASIC | netdev.abi.XdpFeature.REDIRECT in veth.xdp
    assert not veth.zero_copy
    assert loopback.xdp == netdev.abi.XdpFeature(0)
