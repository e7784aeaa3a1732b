"""Changes of one interface: up or down, MTU, promiscuous mode."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field
from typing import Any

from xskit.abi.packet import PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC, SOL_PACKET
from xskit.netconf import interfaces
from xskit.netconf.changes.base import Change, Fate, Restored, ValueChange
from xskit.netconf.changes.moved import origin_of, restore_where_it_is
from xskit.netconf.namespaces import inside

__all__ = ["SetLinkUp", "SetMtu", "SetPromiscuous"]

_MEMBERSHIP = struct.Struct("=iHH8s")  # packet_mreq: index, type, address length, address


@dataclass
class SetLinkUp(ValueChange):
    """An interface is administratively up (or down)."""

    interface: str
    up: bool = True

    def __str__(self) -> str:
        return f"{self.interface} {'up' if self.up else 'down'}"

    def wanted(self) -> bool:
        return self.up

    def read(self) -> bool:
        return interfaces.is_up(self.interface)

    def write(self, value: bool) -> None:
        interfaces.set_up(self.interface, value)


@dataclass
class SetMtu(ValueChange):
    """The largest packet an interface sends, in bytes, without the Ethernet header."""

    interface: str
    mtu: int
    origin: dict[str, Any] = field(default_factory=dict, kw_only=True)

    def __str__(self) -> str:
        return f"MTU {self.mtu} of {self.interface}"

    def wanted(self) -> int:
        return self.mtu

    def read(self) -> int:
        return interfaces.mtu(self.interface)

    def write(self, value: int) -> None:
        interfaces.set_mtu(self.interface, value)

    def remember(self) -> None:
        super().remember()
        self.origin = origin_of(self.interface, self.namespace)

    def restore(self) -> Restored:
        return restore_where_it_is(self, super().restore)


@dataclass
class SetPromiscuous(Change):
    """An interface also takes packets for other MAC addresses.

    By membership of a packet socket (packet(7)): the kernel counts members, so nobody else's wish is touched, and ends
    the membership with the process, however that ends.
    """

    interface: str
    namespace: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._socket: socket.socket | None = None

    def __str__(self) -> str:
        return f"{self.interface} promiscuous"

    def check(self) -> bool:
        return self._socket is not None

    def apply(self) -> None:
        with inside(self.namespace):
            wish = _MEMBERSHIP.pack(interfaces.index(self.interface), PACKET_MR_PROMISC, 0, b"")
            try:
                self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
                self._socket.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, wish)
            except OSError as error:
                self.restore()
                raise interfaces.refusal(f"{self.interface} cannot be made promiscuous", error) from error

    def restore(self) -> Restored:
        if self._socket is None:
            return self._fate(Fate.GONE)
        self._socket.close()
        self._socket = None
        return self._fate(Fate.RESTORED)
