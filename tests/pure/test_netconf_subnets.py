"""Which networks are in use, as the kernel answers, also one without IPv6."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_network

import pytest

from xskit.abi import netlink as nl
from xskit.netconf import subnets
from xskit.netlink import NetlinkError, attribute


def address(text: str, prefix: int, kind: int) -> bytes:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    return nl.ADDRESS_HEADER.pack(family, prefix, 0, 0, 1) + attribute(kind, socket.inet_pton(family, text))


def route(text: str | None, prefix: int, family: int) -> bytes:
    header = nl.ROUTE_HEADER.pack(family, prefix, 0, 0, nl.RT_TABLE_MAIN, 0, 0, 0, 0)
    return header if text is None else header + attribute(nl.RTA_DST, socket.inet_pton(family, text))


ANSWERS = {
    (nl.RTM_GETADDR, socket.AF_INET): [address("10.1.2.3", 24, nl.IFA_LOCAL)],
    (nl.RTM_GETADDR, socket.AF_INET6): [address("fd00::5", 64, nl.IFA_ADDRESS)],
    (nl.RTM_GETROUTE, socket.AF_INET): [route(None, 0, socket.AF_INET), route("10.8.0.0", 16, socket.AF_INET)],
    (nl.RTM_GETROUTE, socket.AF_INET6): [route("2001:db8::", 32, socket.AF_INET6), route(None, 0, socket.AF_INET6)],
}
IPV4, IPV6 = ["10.1.2.0/24", "10.8.0.0/16"], ["fd00::/64", "2001:db8::/32"]


@pytest.fixture
def kernel(monkeypatch):
    """What it answers to a question about addresses or routes of a family."""
    answers = dict(ANSWERS)

    class Kernel:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def request(self, kind, body, flags):
            found = answers[kind, body[0]]
            if isinstance(found, Exception):
                raise found
            return found

    monkeypatch.setattr(subnets, "Netlink", Kernel)
    return answers


def in_use() -> set:
    return set(subnets.networks_in_use())


@pytest.mark.usefixtures("kernel")
def test_networks_of_addresses_and_routes_but_the_default_ones():
    assert in_use() == set(map(ip_network, IPV4 + IPV6))


def test_a_kernel_without_ipv6_answers_with_what_it_has(kernel):
    for kind in (nl.RTM_GETADDR, nl.RTM_GETROUTE):  # rtnl_dump_all in net/core/rtnetlink.c
        kernel[kind, socket.AF_INET6] = [*ANSWERS[kind, socket.AF_INET], bytes([28]) + bytes(11)]
    assert in_use() == set(map(ip_network, IPV4))


def test_a_namespace_without_a_table_of_routes(kernel):
    kernel[nl.RTM_GETROUTE, socket.AF_INET] = NetlinkError(errno.ENOENT)
    assert in_use() == {ip_network("10.1.2.0/24"), *map(ip_network, IPV6)}


def test_what_the_kernel_refuses_is_not_passed_over(kernel):
    kernel[nl.RTM_GETROUTE, socket.AF_INET6] = NetlinkError(errno.EPERM)
    with pytest.raises(NetlinkError):
        in_use()


@pytest.mark.parametrize(("text", "off"), [("0\n", False), ("1\n", True), (None, False)])
def test_the_administrator_decides(monkeypatch, text, off):
    def read_text(path, **_):
        assert str(path) == "/proc/sys/net/ipv6/conf/default/disable_ipv6"
        if text is None:
            raise FileNotFoundError
        return text

    monkeypatch.setattr(subnets.Path, "read_text", read_text)
    assert subnets.ipv6_switched_off() is off


@pytest.mark.parametrize("has", [True, False])
def test_a_kernel_has_ipv6_when_it_makes_a_socket_of_it(monkeypatch, has):
    def make(family, _kind):
        assert family == socket.AF_INET6
        if not has:
            raise OSError(errno.EAFNOSUPPORT, "")
        return real(socket.AF_INET, socket.SOCK_DGRAM)

    real = socket.socket
    monkeypatch.setattr(subnets.socket, "socket", make)
    assert subnets.kernel_has_ipv6() is has
