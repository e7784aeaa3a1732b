"""The change of a kernel parameter of a network namespace (sysctl(8), proc_sys_net(5))."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from xskit.errors import UsageError
from xskit.netconf import interfaces
from xskit.netconf.changes.base import ValueChange
from xskit.netconf.namespaces import MissingError

__all__ = ["SetSysctl"]


@dataclass
class SetSysctl(ValueChange):
    """A parameter under /proc/sys/net, "net/ipv6/conf/xkva/accept_dad" or with dots, and its value as text.

    The dotted form cannot name an interface that has a dot in its own name.
    """

    key: str
    value: str

    def __post_init__(self) -> None:
        parts = self.key.split("/" if "/" in self.key else ".")
        if parts[0] != "net" or "" in parts or ".." in parts:
            raise UsageError(f"{self.key!r} is not a network parameter such as net/ipv4/ip_forward")
        self._path = Path("/proc/sys", *parts)

    def __str__(self) -> str:
        return f"{self.key} = {self.value}"

    def wanted(self) -> str:
        return " ".join(self.value.split())

    def read(self) -> str:
        try:
            return " ".join(self._path.read_text(encoding="ascii").split())
        except FileNotFoundError as error:
            raise MissingError(f"this kernel has no parameter {self.key}", remedy="sysctl -a") from error
        except OSError as error:
            raise interfaces.refusal(f"{self.key} cannot be read", error) from error

    def write(self, value: str) -> None:
        try:
            self._path.write_text(value, encoding="ascii")
        except OSError as error:
            raise interfaces.refusal(f"{self.key} cannot be set to {value}", error) from error
