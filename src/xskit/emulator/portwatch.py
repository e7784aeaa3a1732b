"""Watches ports while links run: one may be deleted, moved, renamed, given another MTU, or lose its program.

Memory and limits stay those of the start. If an MTU changes, a warning says what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xskit.emulator.ports import PortSpec
from xskit.emulator.sizing import FRAMING_BYTES
from xskit.netconf import ending
from xskit.netconf.interfaces import look
from xskit.netconf.namespaces import identity, inside
from xskit.netconf.peers import moved_to
from xskit.xsk.port import Port

__all__ = ["PortWatch"]

_DETACHED = "its XDP program was detached while the link was running: its packets bypass the link"


class PortWatch:
    """Looks at ports when asked.

    Args:
        ports: that are open.
        longest: the longest packet that each may send, in bytes with Ethernet header.
        warn: called with sentences for the user; it may get the same one again.
        resized: called with a port and its new MTU.
    """

    def __init__(
        self,
        ports: Mapping[PortSpec, Port],
        longest: Mapping[PortSpec, int],
        warn: Callable[[Sequence[str]], None],
        resized: Callable[[PortSpec, int], None],
    ) -> None:
        self._ports = ports
        self._longest = longest
        self._warn = warn
        self._resized = resized
        self._names = {spec: spec.name for spec in ports}
        self._mtus = {spec: port.mtu for spec, port in ports.items()}
        self._attached = dict.fromkeys(ports, True)
        self._origins = {spec: _origin(spec) for spec in ports}
        self.detached: list[str] = []
        """A sentence for each port that lost its XDP program: packets that come there bypass the link."""

    def __call__(self) -> str | None:
        """Look; returns why the run cannot go on, if it cannot."""
        for spec, port in self._ports.items():
            attached = port.attached  # asked for first: an interface that is deleted loses its program too
            seen = port.glance()
            if ending.is_begun():
                return None
            if seen is None:
                return f"port {spec} {self._loss(spec, port)} while the link was running"
            if seen.name != self._names[spec]:
                self._names[spec] = seen.name
                self._warn([f"port {spec} was renamed to {seen.name} while the link was running"])
            if seen.mtu != self._mtus[spec]:
                self._mtus[spec] = seen.mtu
                self._resized(spec, seen.mtu)
                self._warn([f"port {spec}: {_about(port, seen.mtu, self._longest[spec])}"])
            if not attached and self._attached[spec]:
                self._attached[spec] = False
                self.detached.append(f"port {spec}: {_DETACHED}")
                self._warn(self.detached)
        return None

    def _loss(self, spec: PortSpec, port: Port) -> str:
        """What became of a port that has disappeared."""
        mac, home = self._origins[spec]
        found = moved_to(self._names[spec], port.ifindex, mac, home)
        return "was deleted" if found is None else f"was moved to the network namespace {found[1]}"


def _origin(spec: PortSpec) -> tuple[str, int | None]:
    """The MAC address of a port, and the number of the network namespace that it is in."""
    with inside(spec.namespace):
        return look(spec.name).mac, identity()


def _about(port: Port, mtu: int, longest: int) -> str:
    planned = longest - FRAMING_BYTES
    if mtu in (planned, port.mtu):
        return f"its MTU is {mtu} again"
    changed = f"its MTU changed to {mtu} while the link was running, but the link was planned for {planned}"
    if mtu > planned:
        return f"{changed}: packets of more than {longest} bytes to it are still dropped (egress_mtu)"
    return f"{changed}: longer packets are still sent to it, and may be refused"
