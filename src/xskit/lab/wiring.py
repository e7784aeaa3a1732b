"""What joins two hosts before a link runs between them: veth pairs, addresses, routes and neighbours.

Both ends of a link belong to the lab, so each knows the other's MAC address from the start. Thus a link too slow for
ARP and neighbour discovery, which give up after 3 s, works too, and no packet on it is an ARP or ND packet.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address

from xskit.emulator.offloads import CUTTING, PUTTING_IN, SUMMING
from xskit.lab.host import Host
from xskit.lab.subnets import addresses, subnet
from xskit.netconf.changes import (
    AddRoute,
    CreateVeth,
    SetAddress,
    SetLinkUp,
    SetNeighbour,
    SetOffload,
    SetSysctl,
    VethEnd,
)
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import MissingError

__all__ = ["LinkEnd", "attach", "connect", "link_local", "prepare", "route_by", "without_ipv6"]

OFFLOADS_OFF = dict.fromkeys((*SUMMING, *CUTTING, *PUTTING_IN), False)
"""At an owned host's end, so that checksums are finished, segments cut and VLAN tags inserted before packets leave."""

QUIET = {
    "disable_ipv6": "0",
    "accept_dad": "0",
    "dad_transmits": "0",
    "router_solicitations": "0",
    "accept_ra": "0",
    "addr_gen_mode": "0",
    "keep_addr_on_down": "1",
}
"""IPv6 of a host's interface. It sends neither probes for duplicate addresses nor router solicitations, so that its
addresses are usable at once, and the only packets of a test are its own. The link-local address is derived from the MAC
address, so that the neighbour knows it. Addresses stay when the interface is set down, as those of IPv4 do."""


@dataclass(frozen=True)
class LinkEnd:
    """A host's end of a link: its interface, and the lab's port at the far end of that veth pair."""

    host: Host
    interface: str
    mac: str
    port: str
    room: str


def link_local(mac: str) -> str:
    """The IPv6 address that the kernel makes of a MAC address (RFC 4291 appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + bytes([octets[0] ^ 2]) + octets[1:3] + b"\xff\xfe" + octets[3:]))


def without_ipv6(journal: Journal, namespace: str | None, *scopes: str) -> None:
    """Turn IPv6 off for an interface; with "all" and "default" for a whole namespace."""
    for scope in scopes:
        with contextlib.suppress(MissingError):  # a kernel without IPv6, or an MTU below 1280
            journal.apply(SetSysctl(f"net/ipv6/conf/{scope}/disable_ipv6", "1", namespace=namespace))


def prepare(journal: Journal, namespace: str, *, ipv6: bool) -> None:
    """Make a new namespace ready for interfaces: without IPv6, or with an IPv6 that sends nothing by itself."""
    if not ipv6:
        without_ipv6(journal, namespace, "all", "default")
        return
    _set_ipv6(journal, namespace, "default", QUIET)
    _set_ipv6(journal, namespace, "all", {key: QUIET[key] for key in ("disable_ipv6", "accept_dad")})


def _set_ipv6(journal: Journal, namespace: str | None, scope: str, values: Mapping[str, str]) -> None:
    for key, value in values.items():
        with contextlib.suppress(MissingError):
            journal.apply(SetSysctl(f"net/ipv6/conf/{scope}/{key}", value, namespace=namespace))


def attach(journal: Journal, host: Host, interface: str, port: str, room: str, *, mtu: int, ipv6: bool) -> LinkEnd:
    """A veth pair between a host and the lab's own namespace, both ends down.

    The MACs are chosen here, so that an interface that somebody else makes at the same moment is not mistaken for ours.

    Raises:
        DeviceError, RefusedError: somebody else has made an interface of this name.
    """
    macs = [f"02:{secrets.token_bytes(5).hex(':')}" for _ in range(2)]
    ends = (VethEnd(interface, host.namespace, macs[0], mtu), VethEnd(port, room, macs[1], mtu))
    journal.apply(CreateVeth(*ends, macs=macs))
    journal.apply(SetOffload(interface, OFFLOADS_OFF, namespace=host.namespace))
    if not ipv6:
        without_ipv6(journal, host.namespace, interface)
    elif host.namespace is None:
        _set_ipv6(journal, None, interface, QUIET)
    return LinkEnd(host, interface, macs[0], port, room)


def connect(
    journal: Journal, ends: tuple[LinkEnd, LinkEnd], number: int, versions: Collection[int], *, permanent: bool
) -> list[dict[int, str]]:
    """Give both ends their addresses and set them up; returns each end's address by IP version.

    Beside IPv4, IPv6 addresses are not preferred, so that names resolve to IPv4 first. The route to the other end sets
    the source address, because the host may have preferred addresses elsewhere.

    Args:
        number: of the link.
        permanent: the ends know each other's MAC address.
    """
    by_version = {version: addresses(number, version) for version in versions}
    found = [{version: pair[side] for version, pair in by_version.items()} for side in (0, 1)]
    for end, own in zip(ends, found, strict=True):
        for version, one in own.items():
            text = f"{one}/{subnet(number, version).prefixlen}"
            preferred = version == 4 or len(by_version) == 1
            journal.apply(SetAddress(end.interface, text, namespace=end.host.namespace, preferred=preferred))
        journal.apply(SetLinkUp(end.port, True, namespace=end.room))
        journal.apply(SetLinkUp(end.interface, True, namespace=end.host.namespace))
    for side, (end, other) in enumerate((ends, ends[::-1])):
        own, theirs = found[side], found[1 - side]
        if 6 in own:
            route = AddRoute(f"{theirs[6]}/128", None, end.interface, source=own[6], namespace=end.host.namespace)
            journal.apply(route)
        if permanent:
            for one in (*theirs.values(), *((link_local(other.mac),) if 6 in own else ())):
                journal.apply(SetNeighbour(end.interface, one, other.mac, namespace=end.host.namespace))
    return found


def route_by(journal: Journal, end: LinkEnd, routers: Mapping[int, str]) -> None:
    """Give a host its default routes, by the addresses of the machine at the other end."""
    for version, router in routers.items():
        destination = "default" if version == 4 else "default6"
        journal.apply(AddRoute(destination, router, namespace=end.host.namespace))
