"""What xskit says over netlink, read by pyroute2; and the records of changes, written and read again."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack

import pytest
from pyroute2.netlink import rtnl
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.nsidmsg import nsidmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from xskit.abi import netlink as nl
from xskit.netconf import changes as all_changes
from xskit.netconf import interfaces, peers
from xskit.netconf.changes import (
    AddFlowRule,
    AddRoute,
    Change,
    CreateNamespace,
    CreateVeth,
    SetAddress,
    SetChannels,
    SetLinkUp,
    SetMtu,
    SetNapi,
    SetNeighbour,
    SetOffload,
    SetPromiscuous,
    SetRings,
    SetSysctl,
    StartedProcess,
    TemporaryFile,
    VethEnd,
    addresses,
    neighbours,
    routes,
    veth,
)
from xskit.netlink import Netlink

EXAMPLES = [
    CreateNamespace("xka", inode=12),
    CreateVeth(VethEnd("xkva", mac="02:00:00:00:00:01", mtu=9000, queues=4), VethEnd("b", "xkb"), macs=["1", "2"]),
    SetAddress("va", "10.0.0.1/24", namespace="xka"),
    SetAddress("va", "fd00::1/64", preferred=False),
    SetLinkUp("va", False, before=True),
    SetMtu("va", 9000, namespace="xka", before=1500),
    SetOffload("va", {"tx": False, "tso": True}, before={"tx-checksum-ip-generic": True}, index=7),
    SetPromiscuous("va"),
    SetChannels("va", 4, before=2),
    SetRings("va", 512, 256, before=[256, 256], namespace="xka"),
    AddFlowRule("va", 0x88B5, 1, 3),
    AddFlowRule("va", 0x88B5, 1, None, before=[0, 7], chosen=2),
    SetNapi("va", "gro_flush_timeout", 200_000, before=0),
    SetNeighbour("va", "fd00::2", "02:00:00:00:00:01", namespace="xka"),
    SetSysctl("net.ipv4.ip_forward", "1", namespace="xka", before="0"),
    AddRoute("10.0.0.0/8", via="10.1.0.1", metric=5, namespace="xka"),
    AddRoute("default", interface="va"),
    AddRoute("fd00::2/128", interface="va", source="fd00::1"),
    StartedProcess(["ping", "peer"], "xka", pid=12, start=34),
    TemporaryFile("/tmp/xk", "text", inode=5),
]


def decoded(kind, body: bytes):
    """The message as pyroute2 reads it."""
    message = kind(nl.MESSAGE_HEADER.pack(nl.MESSAGE_HEADER.size + len(body), 0, 0, 1, 0) + body)
    message.decode()
    return message


class Recorder(Netlink):
    """A netlink socket that sends nothing."""

    said: list[tuple[int, bytes, int]]

    def __init__(self):
        self.said = Recorder.said

    def request(self, kind, body, flags=0):
        self.said.append((kind, body, flags))
        return []

    def close(self):
        pass


@pytest.fixture
def said(monkeypatch):
    Recorder.said = []
    for module in (addresses, neighbours, routes):
        monkeypatch.setattr(module, "Netlink", Recorder)
    monkeypatch.setattr(interfaces, "index", lambda name: 42)
    return Recorder.said


def test_veth():
    with ExitStack() as stack:
        left = VethEnd("xkva", mac="02:00:00:00:00:01", mtu=9000, queues=4)
        body = veth._request(left, VethEnd("xkvb", queues=2), stack)
        message = decoded(ifinfmsg, body)
    assert message.get_attr("IFLA_IFNAME") == "xkva"
    assert message.get_attr("IFLA_ADDRESS") == "02:00:00:00:00:01"
    assert message.get_attr("IFLA_MTU") == 9000
    assert message.get_attr("IFLA_NUM_TX_QUEUES") == message.get_attr("IFLA_NUM_RX_QUEUES") == 4
    assert message.get_attr("IFLA_NET_NS_FD") is not None
    info = message.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == "veth"
    peer = info.get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    assert peer.get_attr("IFLA_IFNAME") == "xkvb"
    assert peer.get_attr("IFLA_NUM_RX_QUEUES") == 2
    assert peer.get_attr("IFLA_ADDRESS") is None


@pytest.mark.parametrize(
    ("address", "family", "prefix", "text"),
    [("10.0.0.1/24", socket.AF_INET, 24, "10.0.0.1"), ("fd00::1/64", socket.AF_INET6, 64, "fd00::1")],
)
def test_address(said, address, family, prefix, text):
    change = SetAddress("va", address)
    change.apply()
    change.restore()
    assert [(kind, flags) for kind, _, flags in said] == [
        (nl.RTM_NEWADDR, nl.NLM_F_CREATE | nl.NLM_F_EXCL),
        (nl.RTM_DELADDR, 0),
    ]
    for _, body, _ in said:
        message = decoded(ifaddrmsg, body)
        assert (message["family"], message["prefixlen"], message["index"]) == (family, prefix, 42)
        assert message.get_attr("IFA_LOCAL") == message.get_attr("IFA_ADDRESS") == text


@pytest.mark.parametrize(("preferred", "lifetimes"), [(True, None), (False, (0, 0xFFFF_FFFF))])
def test_an_address_that_is_not_preferred(said, preferred, lifetimes):
    SetAddress("va", "fd00::1/64", preferred=preferred).apply()
    message = decoded(ifaddrmsg, said[0][1])
    assert message.get_attr("IFA_FLAGS") == nl.IFA_F_NODAD
    found = message.get_attr("IFA_CACHEINFO")
    assert (found and (found["ifa_preferred"], found["ifa_valid"])) == lifetimes


@pytest.mark.parametrize(("address", "family"), [("10.0.0.2", socket.AF_INET), ("fd00::2", socket.AF_INET6)])
def test_neighbour(said, address, family):
    change = SetNeighbour("va", address, "02:00:00:00:00:01")
    change.apply()
    change.write(None)
    assert [(kind, flags) for kind, _, flags in said] == [
        (nl.RTM_NEWNEIGH, nl.NLM_F_CREATE | nl.NLM_F_REPLACE),
        (nl.RTM_DELNEIGH, 0),
    ]
    made, removed = (decoded(ndmsg, body) for _, body, _ in said)
    for message in (made, removed):
        assert (message["family"], message["ifindex"], message.get_attr("NDA_DST")) == (family, 42, address)
    assert (made["state"], made.get_attr("NDA_LLADDR")) == (0x80, "02:00:00:00:00:01")
    assert removed.get_attr("NDA_LLADDR") is None


def test_the_source_of_a_route(said):
    AddRoute("fd00::2/128", interface="va", source="fd00::1").apply()
    message = decoded(rtmsg, said[0][1])
    assert (message["dst_len"], message.get_attr("RTA_PREFSRC")) == (128, "fd00::1")


@pytest.mark.parametrize(
    ("change", "length", "destination", "gateway", "out", "metric"),
    [
        (AddRoute("10.0.0.0/8", via="10.1.0.1"), 8, "10.0.0.0", "10.1.0.1", None, None),
        (AddRoute("default", interface="va", metric=7), 0, None, None, 42, 7),
        (AddRoute("default6", via="fe80::1", interface="va"), 0, None, "fe80::1", 42, None),
    ],
)
def test_route(said, change, length, destination, gateway, out, metric):
    change.apply()
    message = decoded(rtmsg, said[0][1])
    assert (message["dst_len"], message["table"]) == (length, nl.RT_TABLE_MAIN)
    assert message.get_attr("RTA_DST") == destination
    assert message.get_attr("RTA_GATEWAY") == gateway
    assert message.get_attr("RTA_OIF") == out
    assert message.get_attr("RTA_PRIORITY") == metric


def test_the_number_of_a_namespace():
    Recorder.said = []
    with pytest.raises(ValueError, match="not enough values"):  # nobody answers
        peers._number(Recorder(), 7)
    ((kind, body, _),) = Recorder.said
    assert kind == rtnl.RTM_GETNSID
    assert decoded(nsidmsg, body).get_attr("NETNSA_FD") == 7


def test_every_kind_has_an_example():
    kinds = {name for name in all_changes.__all__ if name not in {"Change", "Fate", "Restored", "VethEnd"}}
    assert {type(change).__name__ for change in EXAMPLES} == kinds


@pytest.mark.parametrize("change", EXAMPLES, ids=lambda change: type(change).__name__)
def test_a_record_comes_back(change):
    record = json.loads(json.dumps(change.record()))
    again = Change.kinds[type(change).__name__].from_record(record)
    assert again == change
    assert again.record() == record
    assert str(again) == str(change)


@pytest.mark.parametrize("change", EXAMPLES, ids=lambda change: type(change).__name__)
def test_what_lies_in_the_journals_own_namespace_says_so(change):
    expected = {CreateNamespace: False, StartedProcess: False, TemporaryFile: False, CreateVeth: True}
    here = getattr(change, "namespace", None) is None
    assert change.touches_home() == expected.get(type(change), here)


def test_looking_at_loopback():
    facts = interfaces.look("lo")
    assert (facts.name, facts.index, facts.loopback, facts.kind) == ("lo", socket.if_nametoindex("lo"), True, "")
    assert facts.mtu == interfaces.mtu("lo")
    assert facts.up == interfaces.is_up("lo")
