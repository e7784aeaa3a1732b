"""The change that adds a route to the main table."""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass, field

from xskit.abi import netlink as nl
from xskit.errors import UsageError
from xskit.netconf import interfaces
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.namespaces import inside
from xskit.netlink import Netlink, NetlinkError, attribute, attributes, u32

__all__ = ["AddRoute"]


@dataclass
class AddRoute(Change):
    """The way to `destination` ("10.1.0.0/16", "default", "default6"): a router, or straight out of `interface`.

    `source` is the address from which the host sends on this route, unless the sender chooses one.
    """

    destination: str
    via: str | None = None
    interface: str | None = None
    namespace: str | None = field(default=None, kw_only=True)
    metric: int | None = field(default=None, kw_only=True)
    source: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        network = {"default": "0.0.0.0/0", "default6": "::/0"}.get(self.destination, self.destination)
        try:
            parsed = ipaddress.ip_network(network)
            router, source = (ipaddress.ip_address(one) if one is not None else None for one in (self.via, self.source))
        except ValueError as error:
            raise UsageError(f"the {self} cannot be meant: {error}") from error
        if router is None and self.interface is None:
            raise UsageError(f"the {self} names neither a router nor an interface")
        if any(one is not None and one.version != parsed.version for one in (router, source)):
            raise UsageError(f"the {self} mixes IPv4 and IPv6")
        self._family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
        self._prefix = parsed.prefixlen
        self._network = parsed.network_address.packed
        self._router = router.packed if router is not None else b""
        self._source = source.packed if source is not None else b""

    def __str__(self) -> str:
        via = f" via {self.via}" if self.via is not None else ""
        out = f" out of {self.interface}" if self.interface is not None else ""
        return f"route to {self.destination}{via}{out}"

    def check(self) -> bool:
        with inside(self.namespace), Netlink() as netlink:
            request = nl.ROUTE_HEADER.pack(self._family, 0, 0, 0, nl.RT_TABLE_MAIN, 0, 0, 0, 0)
            return any(map(self._is_this, netlink.request(nl.RTM_GETROUTE, request, nl.NLM_F_DUMP)))

    def apply(self) -> None:
        self._ask(nl.RTM_NEWROUTE, nl.NLM_F_CREATE | nl.NLM_F_EXCL)

    def restore(self) -> Restored:
        try:
            self._ask(nl.RTM_DELROUTE, 0)
        except interfaces.RefusedError as error:
            if error.number == errno.ESRCH:
                return self._fate(Fate.GONE)
            raise
        return self._fate(Fate.RESTORED)

    def _ask(self, kind: int, flags: int) -> None:
        with inside(self.namespace):
            scope = nl.RT_SCOPE_UNIVERSE if self._router or self._family == socket.AF_INET6 else nl.RT_SCOPE_LINK
            body = nl.ROUTE_HEADER.pack(
                self._family, self._prefix, 0, 0, nl.RT_TABLE_MAIN, nl.RTPROT_STATIC, scope, nl.RTN_UNICAST, 0
            )
            if self._prefix:
                body += attribute(nl.RTA_DST, self._network)
            if self._router:
                body += attribute(nl.RTA_GATEWAY, self._router)
            if self.interface is not None:
                body += u32(nl.RTA_OIF, interfaces.index(self.interface))
            if self._source:
                body += attribute(nl.RTA_PREFSRC, self._source)
            if self.metric is not None:
                body += u32(nl.RTA_PRIORITY, self.metric)
            with Netlink() as netlink:
                try:
                    netlink.request(kind, body, flags)
                except NetlinkError as error:
                    raise interfaces.refusal(f"the {self} cannot be set", error) from error

    def _is_this(self, body: bytes) -> bool:
        family, prefix, _, _, table, *_ = nl.ROUTE_HEADER.unpack_from(body)
        found = attributes(body, nl.ROUTE_HEADER.size)
        return (
            (family, prefix, table) == (self._family, self._prefix, nl.RT_TABLE_MAIN)
            and found.get(nl.RTA_DST, bytes(len(self._network))) == self._network
            and found.get(nl.RTA_GATEWAY, b"") == self._router
            and (not self._source or found.get(nl.RTA_PREFSRC, b"") == self._source)
            and (self.interface is None or _number(found, nl.RTA_OIF) == interfaces.index(self.interface))
            and (self.metric is None or _number(found, nl.RTA_PRIORITY) == self.metric)
        )


def _number(found: dict[int, bytes], kind: int) -> int:
    return int.from_bytes(found.get(kind, b""), "little")
