"""Changes of one interface: up or down, MTU."""

from __future__ import annotations

from dataclasses import dataclass

from xskit.netconf import interfaces
from xskit.netconf.changes.base import Setting

__all__ = ["SetLinkUp", "SetMtu"]


@dataclass
class SetLinkUp(Setting):
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
class SetMtu(Setting):
    """The largest packet an interface sends, in bytes, without the Ethernet header."""

    interface: str
    mtu: int

    def __str__(self) -> str:
        return f"MTU {self.mtu} of {self.interface}"

    def wanted(self) -> int:
        return self.mtu

    def read(self) -> int:
        return interfaces.mtu(self.interface)

    def write(self, value: int) -> None:
        interfaces.set_mtu(self.interface, value)
