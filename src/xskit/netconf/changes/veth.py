"""The change that makes a veth pair: two interfaces, what goes into one comes out of the other (veth(4))."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from xskit.abi import netlink as nl
from xskit.errors import DeviceError, UsageError
from xskit.netconf import interfaces
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.namespaces import Namespace, inside
from xskit.netlink import Netlink, NetlinkError, attribute, nest, text, u32

__all__ = ["CreateVeth", "VethEnd"]

_NAME = re.compile(r"[A-Za-z0-9._-]{1,15}")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")


@dataclass
class VethEnd:
    """One end, and what it is born with: MAC "02:00:00:00:00:01", MTU in bytes, queues each way."""

    name: str
    namespace: str | None = None
    mac: str | None = None
    mtu: int | None = None
    queues: int = 1

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(f"an interface name has 1 to 15 letters, digits or .-_, not {self.name!r}")
        if not (self.name.startswith("xk") or (self.namespace or "").startswith("xk")):
            raise UsageError(f"a veth of xskit outside its own namespaces is named xk..., not {self.name!r}")
        if self.mac is not None and not _MAC.fullmatch(self.mac):
            raise UsageError(f"{self.mac!r} is not a MAC address such as 02:00:00:00:00:01")
        if self.queues < 1:
            raise UsageError(f"a veth end has at least one queue, not {self.queues}")


@dataclass
class CreateVeth(Change):
    """A veth pair, both ends born in their namespaces, both down."""

    left: VethEnd
    right: VethEnd
    macs: list[str] = field(default_factory=list, kw_only=True)

    exclusive: ClassVar[bool] = True

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        return cls(VethEnd(**record["left"]), VethEnd(**record["right"]), macs=record["macs"])

    def __str__(self) -> str:
        return f"veth pair {_place(self.left)} and {_place(self.right)}"

    def touches_home(self) -> bool:
        return None in (self.left.namespace, self.right.namespace)

    def check(self) -> bool:
        return any(_exists(end) for end in (self.left, self.right))

    def apply(self) -> None:
        with ExitStack() as stack:
            body = _request(self.left, self.right, stack)
            netlink = stack.enter_context(Netlink())
            try:
                netlink.request(nl.RTM_NEWLINK, body, nl.NLM_F_CREATE | nl.NLM_F_EXCL)
            except NetlinkError as error:
                raise interfaces.refusal(f"making the {self}", error) from error
        self.macs = [_mac(end) for end in (self.left, self.right)]

    def restore(self) -> Restored:
        fate = Fate.GONE
        for end, mac in zip((self.left, self.right), self.macs or ["", ""], strict=True):
            try:
                with inside(end.namespace):
                    facts = interfaces.look(end.name)
                    if facts.kind != "veth" or mac not in ("", facts.mac):
                        return self._fate(Fate.KEPT, f"{_place(end)} is another interface now")
                    interfaces.delete(end.name)
            except DeviceError:
                continue
            fate = Fate.RESTORED
        return self._fate(fate)


def _request(left: VethEnd, right: VethEnd, stack: ExitStack) -> bytes:
    header = nl.LINK_HEADER.pack(0, 0, 0, 0, 0)
    peer = nest(nl.VETH_INFO_PEER, [header, *_end_attributes(right, stack)])
    info = nest(nl.IFLA_LINKINFO, [text(nl.IFLA_INFO_KIND, "veth"), nest(nl.IFLA_INFO_DATA, [peer])])
    return b"".join([header, *_end_attributes(left, stack), info])


def _end_attributes(end: VethEnd, stack: ExitStack) -> list[bytes]:
    parts = [
        text(nl.IFLA_IFNAME, end.name),
        u32(nl.IFLA_NUM_TX_QUEUES, end.queues),
        u32(nl.IFLA_NUM_RX_QUEUES, end.queues),
    ]
    if end.mac is not None:
        parts.append(attribute(nl.IFLA_ADDRESS, bytes.fromhex(end.mac.replace(":", ""))))
    if end.mtu is not None:
        parts.append(u32(nl.IFLA_MTU, end.mtu))
    # Always said, because the peer's default would be the namespace of the left end, not that of the caller.
    fd = Namespace(end.namespace).open() if end.namespace else os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    stack.callback(os.close, fd)
    parts.append(u32(nl.IFLA_NET_NS_FD, fd))
    return parts


def _exists(end: VethEnd) -> bool:
    with suppress(DeviceError), inside(end.namespace):
        return interfaces.exists(end.name)
    return False


def _mac(end: VethEnd) -> str:
    with inside(end.namespace):
        return interfaces.look(end.name).mac


def _place(end: VethEnd) -> str:
    return end.name if end.namespace is None else f"{end.name} in {end.namespace}"
