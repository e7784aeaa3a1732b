"""Changes of a NIC's hardware: channels, ring sizes, and rules that steer packets to queues."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from xskit.errors import DeviceError
from xskit.netconf import ethtool, hardware, interfaces
from xskit.netconf.changes.base import Change, Fate, Restored, ValueChange
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
class SetChannels(ValueChange):
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
class SetRings(ValueChange):
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

    def apply(self) -> None:
        super().apply()
        with inside(self.namespace):
            got = self.read()
            if got != self.wanted():
                self.write(self.before)  # `restore` would take the driver's sizes for somebody else's
                raise DeviceError(
                    f"{self.interface} made rings of {got[0]} and {got[1]} entries instead of {self.rx} and {self.tx}",
                    remedy=f"ethtool -g {self.interface}",
                )


@dataclass
class AddFlowRule(Change):
    """Packets of an EtherType go to a queue. The NIC must have its ntuple offload on.

    What lies at `location` already is somebody else's, and an error. None leaves the choice to the driver, where it can
    choose; `chosen` says then what it chose, and `before` where rules lay already: so the new one is found even if
    xskit was killed before the choice was written down.
    """

    interface: str
    ether_type: int
    queue: int
    location: int | None = 0
    namespace: str | None = field(default=None, kw_only=True)
    before: list[int] = field(default_factory=list, kw_only=True)
    chosen: int | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        number = "" if self.location is None else f" {self.location}"
        return f"rule{number} of {self.interface}: {self._rule(self.location)}"

    def check(self) -> bool:
        with inside(self.namespace), self._reading() as control:
            now = None if self.location is None else hardware.rule(control, self.interface, self.location)
        if now is not None:
            raise DeviceError(
                f"{self.interface} has a rule at location {self.location} already: {now}",
                remedy=f"ethtool -n {self.interface}",
            )
        return False

    def remember(self) -> None:
        if self.location is None:
            with inside(self.namespace), self._reading() as control:
                self.before = hardware.rule_locations(control, self.interface)

    def apply(self) -> None:
        with inside(self.namespace), _asking(self.interface, f"the {self} cannot be set") as control:
            location = hardware.insert_rule(control, self.interface, self._rule(self.location))
            now = hardware.rule(control, self.interface, location)
            if now != self._rule(location):
                hardware.delete_rule(control, self.interface, location)
                raise DeviceError(
                    f"the driver of {self.interface} took the {self}, and made of it {now or 'none'}",
                    remedy=f"ethtool -n {self.interface}",
                )
            if self.location is None:
                self.chosen = location

    def restore(self) -> Restored:
        with inside(self.namespace), _asking(self.interface, f"the {self} cannot be removed") as control:
            location = self.location if self.chosen is None else self.chosen
            if location is None:
                location = self._found(control)
            now = None if location is None else hardware.rule(control, self.interface, location)
            if location is None or now is None:
                return self._fate(Fate.GONE)
            if now != self._rule(location):
                return self._fate(Fate.KEPT, f"somebody else's is there: {now}")
            hardware.delete_rule(control, self.interface, location)
        return self._fate(Fate.RESTORED)

    def _rule(self, location: int | None) -> hardware.FlowRule:
        return hardware.FlowRule(self.ether_type, self.queue, location)

    def _reading(self) -> AbstractContextManager[socket.socket]:
        return _asking(self.interface, f"the rules of {self.interface} cannot be read")

    def _found(self, control: socket.socket) -> int | None:
        """Where it lies, if the driver chose and did not come to tell."""
        for location in hardware.rule_locations(control, self.interface):
            is_ours = hardware.rule(control, self.interface, location) == self._rule(location)
            if is_ours and location not in self.before:
                return location
        return None
