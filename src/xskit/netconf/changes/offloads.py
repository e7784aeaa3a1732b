"""The change that switches offloads of an interface, by the words of ethtool(8) or the kernel's names."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xskit.errors import DeviceError
from xskit.netconf import ethtool, interfaces
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.changes.moved import origin_of, restore_where_it_is
from xskit.netconf.namespaces import inside

__all__ = ["SetOffload"]


@dataclass
class SetOffload(Change):
    """Offloads on or off: {"tx": False, "tso": False}. `before` holds what was requested, by the kernel's names.

    What the interface does not have counts as off. It is put back by the interface's index, whatever its name is then.
    """

    interface: str
    offloads: dict[str, bool]
    namespace: str | None = field(default=None, kw_only=True)
    before: dict[str, bool] = field(default_factory=dict, kw_only=True)
    index: int | None = field(default=None, kw_only=True)
    origin: dict[str, Any] = field(default_factory=dict, kw_only=True)

    def __str__(self) -> str:
        words = ", ".join(f"{word} {'on' if on else 'off'}" for word, on in self.offloads.items())
        return f"offloads of {self.interface}: {words}"

    def check(self) -> bool:
        with self._inside() as control:
            known = ethtool.features(control, self.interface)
        wanted = self._wanted(known)
        return all(
            known[name].active == on and (known[name].fixed or known[name].requested == on)
            for name, on in wanted.items()
        )

    def remember(self) -> None:
        with self._inside() as control:
            known = ethtool.features(control, self.interface)
        self.origin = origin_of(self.interface, self.namespace)
        self.index = self.origin["index"]
        wanted = self._wanted(known)
        self.before = {name: known[name].requested for name in wanted if not known[name].fixed}

    def apply(self) -> None:
        with self._inside() as control:
            wanted = self._wanted(ethtool.features(control, self.interface))
            ethtool.set_features(control, self.interface, {name: wanted[name] for name in self.before})
            now = ethtool.features(control, self.interface)
        stuck = sorted(name for name, on in wanted.items() if now[name].active != on)
        if stuck:
            state = "off" if wanted[stuck[0]] else "on"
            raise DeviceError(
                f"{self.interface} keeps {', '.join(stuck)} {state}", remedy=f"ethtool -k {self.interface}"
            )

    def restore(self) -> Restored:
        return restore_where_it_is(self, self._restore, index=None)

    def _restore(self) -> Restored:
        with self._inside() as control:
            interface = self.interface if self.index is None else interfaces.name(self.index)
            known = ethtool.features(control, interface)
            changed = {name: on for name, on in self.before.items() if name in known and known[name].requested != on}
            if not changed:
                return self._fate(Fate.GONE)
            ethtool.set_features(control, interface, changed)
            now = ethtool.features(control, interface)
        stuck = sorted(name for name, on in changed.items() if now[name].requested != on)
        if stuck:
            raise DeviceError(f"{interface} does not take back {', '.join(stuck)}")
        return self._fate(Fate.RESTORED)

    def _wanted(self, known: dict[str, ethtool.Feature]) -> dict[str, bool]:
        """The value of every feature that is meant, by the kernel's names; the last word wins."""
        wanted = {}
        for word, on in self.offloads.items():
            found = ethtool.matching(word, known)
            if on and not found:
                raise DeviceError(f"{self.interface} has no offload {word}", remedy=f"ethtool -k {self.interface}")
            wanted.update(dict.fromkeys(found, on))
        return wanted

    @contextmanager
    def _inside(self) -> Iterator[socket.socket]:
        with inside(self.namespace), interfaces.control_socket() as control:
            try:
                yield control
            except OSError as error:
                raise interfaces.refusal(f"the {self} cannot be set", error, self.interface) from error
