"""Which IPv4 networks are in use in a namespace, so that a new link can choose another one."""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Network

from xskit.abi import netlink as nl
from xskit.netlink import Netlink, NetlinkError, attributes

__all__ = ["networks_in_use"]


def networks_in_use() -> list[IPv4Network]:
    """The networks of all addresses and routes of the calling thread's namespace, but for the default route.

    A namespace that never had an address has no table of routes, either (inet_dump_fib in net/ipv4/fib_frontend.c).
    """
    found = []
    with Netlink() as netlink:
        request = nl.ADDRESS_HEADER.pack(socket.AF_INET, 0, 0, 0, 0)
        for body in netlink.request(nl.RTM_GETADDR, request, nl.NLM_F_DUMP):
            _, prefix, _, _, _ = nl.ADDRESS_HEADER.unpack_from(body)
            found.append(_network(attributes(body, nl.ADDRESS_HEADER.size).get(nl.IFA_LOCAL), prefix))
        request = nl.ROUTE_HEADER.pack(socket.AF_INET, 0, 0, 0, nl.RT_TABLE_MAIN, 0, 0, 0, 0)
        try:
            routes = netlink.request(nl.RTM_GETROUTE, request, nl.NLM_F_DUMP)
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            routes = []
        for body in routes:
            _, prefix, *_ = nl.ROUTE_HEADER.unpack_from(body)
            found.append(_network(attributes(body, nl.ROUTE_HEADER.size).get(nl.RTA_DST), prefix))
    return [network for network in found if network is not None]


def _network(address: bytes | None, prefix: int) -> IPv4Network | None:
    if address is None:
        return None
    return IPv4Network((int.from_bytes(address, "big"), prefix), strict=False)
