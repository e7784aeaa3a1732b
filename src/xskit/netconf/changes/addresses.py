"""The change that gives an interface an address."""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import suppress
from dataclasses import dataclass, field

from xskit.abi import netlink as nl
from xskit.errors import UsageError
from xskit.netconf import interfaces
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.namespaces import inside
from xskit.netlink import Netlink, NetlinkError, attribute, attributes, u32

__all__ = ["SetAddress"]


@dataclass
class SetAddress(Change):
    """An IPv4 or IPv6 address with its prefix length, "10.0.0.1/24", on an interface, usable at once.

    An IPv6 address that is not `preferred` has a preferred lifetime of 0 (RFC 4862 section 5.5.4, "deprecated"): it
    works in full, but source and destination selection (RFC 6724, rule 3) prefer others to it, IPv4 ones included.
    """

    interface: str
    address: str
    namespace: str | None = field(default=None, kw_only=True)
    preferred: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        parsed = _parsed(self.address)
        self._packed = parsed.packed
        self._prefix = parsed.network.prefixlen
        self._family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6

    def __str__(self) -> str:
        return f"address {self.address} of {self.interface}"

    def check(self) -> bool:
        with inside(self.namespace):
            index = interfaces.index(self.interface)
            wanted = (self._prefix, index, self._packed)
            request = nl.ADDRESS_HEADER.pack(self._family, 0, 0, 0, index)
            with Netlink() as netlink:
                return wanted in map(_address, netlink.request(nl.RTM_GETADDR, request, nl.NLM_F_DUMP))

    def apply(self) -> None:
        self._ask(nl.RTM_NEWADDR, nl.NLM_F_CREATE | nl.NLM_F_EXCL)

    def restore(self) -> Restored:
        try:
            self._ask(nl.RTM_DELADDR, 0)
        except interfaces.RefusedError as error:
            if error.number in (errno.EADDRNOTAVAIL, errno.ESRCH):
                return self._fate(Fate.GONE)
            raise
        return self._fate(Fate.RESTORED)

    def _ask(self, kind: int, flags: int) -> None:
        with inside(self.namespace):
            index = interfaces.index(self.interface)
            body = nl.ADDRESS_HEADER.pack(self._family, self._prefix, 0, nl.RT_SCOPE_UNIVERSE, index)
            body += attribute(nl.IFA_LOCAL, self._packed) + attribute(nl.IFA_ADDRESS, self._packed)
            if self._family == socket.AF_INET6:
                body += u32(nl.IFA_FLAGS, nl.IFA_F_NODAD)
            if not self.preferred:
                body += attribute(nl.IFA_CACHEINFO, nl.CACHE_INFO.pack(0, nl.FOREVER_S, 0, 0))
            with Netlink() as netlink:
                try:
                    netlink.request(kind, body, flags)
                except NetlinkError as error:
                    raise interfaces.refusal(f"the {self} cannot be set", error) from error


def _parsed(address: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    with suppress(ValueError):
        if "/" in address:
            return ipaddress.ip_interface(address)
    raise UsageError(f"{address!r} is not an address with a prefix length such as 10.0.0.1/24")


def _address(body: bytes) -> tuple[int, int, bytes]:
    _, prefix, _, _, index = nl.ADDRESS_HEADER.unpack_from(body)
    found = attributes(body, nl.ADDRESS_HEADER.size)
    return prefix, index, found.get(nl.IFA_LOCAL, found.get(nl.IFA_ADDRESS, b""))
