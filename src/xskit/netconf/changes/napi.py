"""The change of a number that a network device keeps in sysfs: how its NAPI defers interrupts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xskit.netconf import interfaces
from xskit.netconf.changes.base import ValueChange
from xskit.netconf.namespaces import MissingError

__all__ = ["SetNapi"]


@dataclass
class SetNapi(ValueChange):
    """napi_defer_hard_irqs (rounds without work before the interrupt is on again, Linux 5.8) or gro_flush_timeout (ns).

    Only for interfaces of the namespace in which /sys was mounted: sysfs shows no others
    (Documentation/networking/napi.rst, "IRQ mitigation").
    """

    interface: str
    key: Literal["napi_defer_hard_irqs", "gro_flush_timeout"]
    value: int

    def __post_init__(self) -> None:
        self._path = Path("/sys/class/net", self.interface, self.key)

    def __str__(self) -> str:
        return f"{self.key} {self.value} of {self.interface}"

    def wanted(self) -> int:
        return self.value

    def read(self) -> int:
        try:
            return int(self._path.read_text())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingError(f"{self._path} is not there", remedy=f"ls /sys/class/net/{self.interface}") from error
        except OSError as error:
            raise interfaces.refusal(f"{self.key} of {self.interface} cannot be read", error) from error

    def write(self, value: int) -> None:
        try:
            self._path.write_text(str(value))
        except OSError as error:
            raise interfaces.refusal(f"{self.key} of {self.interface} cannot be {value}", error) from error
