"""The change that gives a host the MAC address of a neighbour, so that it never asks (arp(7), ip-neighbour(8))."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass

from xskit.abi import netlink as nl
from xskit.errors import UsageError
from xskit.netconf import interfaces
from xskit.netconf.changes.base import ValueChange
from xskit.netlink import Netlink, NetlinkError, attribute, attributes

__all__ = ["SetNeighbour"]

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


@dataclass
class SetNeighbour(ValueChange):
    """A permanent neighbour: the owner of the IPv4 or IPv6 `address` behind `interface` has this MAC address.

    The kernel neither asks for a permanent neighbour nor forgets it; setting the interface down removes it.
    """

    interface: str
    address: str
    mac: str

    def __post_init__(self) -> None:
        try:
            parsed = ipaddress.ip_address(self.address)
        except ValueError as error:
            raise UsageError(f"{self.address!r} is not an IP address") from error
        if not _MAC.fullmatch(self.mac):
            raise UsageError(f"{self.mac!r} is not a MAC address such as 02:00:00:00:00:01")
        self._packed = parsed.packed
        self._family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6

    def __str__(self) -> str:
        return f"neighbour {self.address} of {self.interface}"

    def wanted(self) -> str:
        return self.mac

    def read(self) -> str | None:
        """The MAC address of a permanent neighbour; None if there is none, or only one that the kernel has learnt."""
        try:
            answers = self._ask(nl.RTM_GETNEIGH)
        except NetlinkError as error:
            if error.errno == errno.ENOENT:
                return None
            raise interfaces.refusal(f"the {self} cannot be read", error, self.interface) from error
        _, _, state, _, _ = nl.NEIGHBOUR_HEADER.unpack_from(answers[0])
        found = attributes(answers[0], nl.NEIGHBOUR_HEADER.size)
        return found.get(nl.NDA_LLADDR, b"").hex(":") if state & nl.NUD_PERMANENT else None

    def write(self, value: str | None) -> None:
        try:
            if value is None:
                self._ask(nl.RTM_DELNEIGH)
            else:
                mac = attribute(nl.NDA_LLADDR, bytes.fromhex(value.replace(":", "")))
                self._ask(nl.RTM_NEWNEIGH, mac, nl.NUD_PERMANENT, nl.NLM_F_CREATE | nl.NLM_F_REPLACE)
        except NetlinkError as error:
            raise interfaces.refusal(f"the {self} cannot be set", error, self.interface) from error

    def _ask(self, kind: int, more: bytes = b"", state: int = 0, flags: int = 0) -> list[bytes]:
        header = nl.NEIGHBOUR_HEADER.pack(self._family, interfaces.index(self.interface), state, 0, 0)
        with Netlink() as netlink:
            return netlink.request(kind, header + attribute(nl.NDA_DST, self._packed) + more, flags)
