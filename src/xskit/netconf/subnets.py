"""Which IP networks are in use in a namespace, so that a new link can choose another one; and whether it has IPv6."""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from xskit.abi import netlink as nl
from xskit.netlink import Netlink, NetlinkError, attributes

__all__ = ["Network", "ipv6_switched_off", "kernel_has_ipv6", "networks_in_use"]

Network = IPv4Network | IPv6Network

_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def networks_in_use() -> list[Network]:
    """The networks of all addresses and routes of the calling thread's namespace, except default routes.

    A namespace that never had an IPv4 address has no table of routes (inet_dump_fib in net/ipv4/fib_frontend.c). A
    kernel without IPv6 answers for all families that it has.
    """
    found = []
    with Netlink() as netlink:
        for family in _FAMILIES:
            request = nl.ADDRESS_HEADER.pack(family, 0, 0, 0, 0)
            for body in netlink.request(nl.RTM_GETADDR, request, nl.NLM_F_DUMP):
                which, prefix, _, _, _ = nl.ADDRESS_HEADER.unpack_from(body)
                told = attributes(body, nl.ADDRESS_HEADER.size)
                found.append(_network(which, told.get(nl.IFA_LOCAL, told.get(nl.IFA_ADDRESS)), prefix))
            request = nl.ROUTE_HEADER.pack(family, 0, 0, 0, nl.RT_TABLE_MAIN, 0, 0, 0, 0)
            try:
                routes = netlink.request(nl.RTM_GETROUTE, request, nl.NLM_F_DUMP)
            except NetlinkError as error:
                if error.errno != errno.ENOENT:
                    raise
                routes = []
            for body in routes:
                which, prefix, *_ = nl.ROUTE_HEADER.unpack_from(body)
                found.append(_network(which, attributes(body, nl.ROUTE_HEADER.size).get(nl.RTA_DST), prefix))
    return [network for network in found if network is not None]


def kernel_has_ipv6() -> bool:
    """Whether this kernel speaks IPv6: it was built with it, and not started with ipv6.disable=1."""
    with suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM):
        return True
    return False


def ipv6_switched_off() -> bool:
    """Whether the administrator turned IPv6 off for new interfaces of the calling thread's namespace."""
    with suppress(OSError):
        return Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").read_text(encoding="ascii").strip() != "0"
    return False


def _network(family: int, address: bytes | None, prefix: int) -> Network | None:
    if address is None or family not in _FAMILIES:
        return None
    return ipaddress.ip_network((address, prefix), strict=False)
