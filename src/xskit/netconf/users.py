"""Who uses an interface of the calling thread's namespace: the interfaces on top of it, and its own IP addresses."""

from __future__ import annotations

import ipaddress
import socket

from xskit.abi import netlink as nl
from xskit.netconf import interfaces
from xskit.netlink import Netlink, NetlinkError, attributes

__all__ = ["own_addresses", "upper_interfaces"]

_PAIRS = (b"veth", b"netkit")
"""Kinds whose IFLA_LINK is the other end of a pair, not an interface below."""


def upper_interfaces(index: int) -> list[str]:
    """The VLANs, macvlans and so on above the interface with this index (their IFLA_LINK).

    Those in other network namespaces are not found.

    Raises:
        RefusedError: the kernel refused.
    """
    found = []
    for body in _dump(nl.RTM_GETLINK, nl.LINK_HEADER.pack(0, 0, 0, 0, 0), "the interfaces"):
        parts = attributes(body, nl.LINK_HEADER.size)
        kind = attributes(parts.get(nl.IFLA_LINKINFO, b"")).get(nl.IFLA_INFO_KIND, b"").rstrip(b"\0")
        below = int.from_bytes(parts.get(nl.IFLA_LINK, b""), "little")
        if below == index and nl.IFLA_LINK_NETNSID not in parts and kind not in _PAIRS:
            found.append(parts[nl.IFLA_IFNAME].rstrip(b"\0").decode(errors="surrogateescape"))
    return found


def own_addresses(index: int) -> list[str]:
    """The IPv4 and IPv6 addresses of the interface with this index; without link-local ones.

    Raises:
        RefusedError: the kernel refused.
    """
    found = []
    for body in _dump(nl.RTM_GETADDR, nl.ADDRESS_HEADER.pack(socket.AF_UNSPEC, 0, 0, 0, 0), "the addresses"):
        family, _, _, scope, number = nl.ADDRESS_HEADER.unpack_from(body)
        if number != index or scope >= nl.RT_SCOPE_LINK or family not in (socket.AF_INET, socket.AF_INET6):
            continue
        parts = attributes(body, nl.ADDRESS_HEADER.size)
        packed = parts.get(nl.IFA_LOCAL) or parts[nl.IFA_ADDRESS]
        found.append(str(ipaddress.ip_address(packed)))
    return found


def _dump(kind: int, request: bytes, what: str) -> list[bytes]:
    with Netlink() as netlink:
        try:
            return netlink.request(kind, request, nl.NLM_F_DUMP)
        except NetlinkError as error:
            raise interfaces.refusal(f"{what} cannot be listed", error) from error
