"""Changes of a NIC's hardware: channels, ring sizes, and rules that steer packets to queues."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from xskit.errors import DeviceError
from xskit.netconf import ethtool, hardware, interfaces
from xskit.netconf.changes.base import Change, Fate, Restored, Setting
from xskit.netconf.namespaces import inside

__all__ = ["AddFlowRule", "SetChannels", "SetRings"]


@contextmanager
def _asking(interface: str, doing: str) -> Iterator[socket.socket]:
    with interfaces.control_socket() as control:
        try:
            yield control
        except OSError as error:
            raise interfaces.refusal(doing, error, interface) from error


@dataclass
class SetChannels(Setting):
    """How many combined channels (pairs of an RX and a TX queue) a NIC uses."""

    interface: str
    combined: int

    def __str__(self) -> str:
        return f"{self.combined} channels of {self.interface}"

    def wanted(self) -> int:
        return self.combined

    def read(self) -> int:
        with _asking(self.interface, f"the channels of {self.interface} cannot be read") as control:
            return hardware.channels(control, self.interface)

    def write(self, value: int) -> None:
        with _asking(self.interface, f"{self.interface} cannot have {value} channels") as control:
            hardware.set_channels(control, self.interface, value)


@dataclass
class SetRings(Setting):
    """How many entries each RX and each TX ring of a NIC has; a driver may round up, and then it is an error."""

    interface: str
    rx: int
    tx: int

    def __str__(self) -> str:
        return f"rings of {self.rx} and {self.tx} entries on {self.interface}"

    def wanted(self) -> list[int]:
        return [self.rx, self.tx]

    def read(self) -> list[int]:
        with interfaces.control_socket() as control:
            found = ethtool.rings(control, self.interface)
        if found is None:
            raise DeviceError(
                f"the driver of {self.interface} does not tell its ring sizes", remedy=f"ethtool -g {self.interface}"
            )
        return list(found)

    def write(self, value: list[int]) -> None:
        rx, tx = value
        with _asking(self.interface, f"{self.interface} cannot have rings of {rx} and {tx} entries") as control:
            hardware.set_rings(control, self.interface, rx, tx)
        if self.read() != value:
            got = " and ".join(map(str, self.read()))
            raise DeviceError(
                f"{self.interface} made rings of {got} entries instead of {rx} and {tx}",
                remedy=f"ethtool -g {self.interface}",
            )


@dataclass
class AddFlowRule(Change):
    """Packets of an EtherType go to a queue. The NIC must have its ntuple offload on.

    What lies at the location already is somebody else's, and an error.
    """

    exclusive: ClassVar[bool] = True

    interface: str
    ether_type: int
    queue: int
    location: int = 0
    namespace: str | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return f"rule {self.location} of {self.interface}: EtherType {self.ether_type:#06x} to queue {self.queue}"

    @property
    def _rule(self) -> hardware.FlowRule:
        return hardware.FlowRule(self.ether_type, self.queue, self.location)

    def _read(self) -> hardware.FlowRule | None:
        with _asking(self.interface, f"the rules of {self.interface} cannot be read") as control:
            return hardware.rule(control, self.interface, self.location)

    def check(self) -> bool:
        with inside(self.namespace):
            return self._read() is not None

    def apply(self) -> None:
        with inside(self.namespace), _asking(self.interface, f"the {self} cannot be set") as control:
            hardware.insert_rule(control, self.interface, self._rule)

    def restore(self) -> Restored:
        with inside(self.namespace):
            now = self._read()
            if now is None:
                return self._fate(Fate.GONE)
            if now != self._rule:
                return self._fate(Fate.KEPT, f"somebody else's is there: {now}")
            with _asking(self.interface, f"the {self} cannot be removed") as control:
                hardware.delete_rule(control, self.interface, self.location)
        return self._fate(Fate.RESTORED)
