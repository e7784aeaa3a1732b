"""Hosts that are not xskit's: namespaces and veth pairs made by hand, with all the offloads that Linux turns on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from xskit.emulator.emulator import Emulator, LinkSpec, PortSpec
from xskit.emulator.settings import EngineSettings, link_settings

ADDRESSES = ("198.18.255.1", "198.18.255.2")


def ip(*words: str) -> None:
    """Run ip(8)."""
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def _forget(name: str) -> None:
    if os.path.exists(f"/run/netns/{name}"):
        ip("netns", "del", name)


def told(emulator: Emulator) -> list[str]:
    """What a report warns of, except lateness and time in the kernel: those depend on the machine."""
    return [sentence for sentence in emulator.report().warnings if "(allowed: " not in sentence]


@dataclass
class Foreign:
    """Two namespaces with an address each, and the ports that their veth pairs end in."""

    namespaces: tuple[str | int, str | int]
    room: str
    ports: tuple[PortSpec, PortSpec]
    stack: ExitStack

    def forget_names(self) -> None:
        """Take the names of the two namespaces away; they are open descriptors from now on."""
        for name in self.namespaces:
            fd = os.open(f"/run/netns/{name}", os.O_RDONLY)
            self.stack.callback(os.close, fd)
            ip("netns", "del", str(name))
            self.namespaces = (self.namespaces[1], fd)

    @contextmanager
    def emulator(self, engine: dict[str, Any] | None = None, **settings: Any) -> Iterator[Emulator]:
        """A running link between the ports, which xskit does not own."""
        spec = LinkSpec("wan", self.ports, link_settings(settings))
        with Emulator([spec], EngineSettings(**(engine or {}))) as running:
            yield running


@contextmanager
def foreign_hosts(mtu: int = 1500) -> Iterator[Foreign]:
    """Make them, and take them away."""
    tag = f"xkf{os.getpid():x}"
    names = (f"{tag}-a", f"{tag}-b", f"{tag}-room")
    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(_forget, name)
            quiet = ["ip", "netns", "exec", name, "sysctl", "-qw"]
            subprocess.run([*quiet, "net.ipv6.conf.all.disable_ipv6=1"], check=True, timeout=30)
            subprocess.run([*quiet, "net.ipv6.conf.default.disable_ipv6=1"], check=True, timeout=30)
        room = names[2]
        ports = []
        for name, address, port in zip(names, ADDRESSES, ("xkp0", "xkp1"), strict=False):
            size = ("mtu", str(mtu))
            ip("-n", name, "link", "add", "xk0", *size, "type", "veth", "peer", "name", port, *size, "netns", room)
            ip("-n", name, "address", "add", f"{address}/24", "dev", "xk0")
            ip("-n", room, "link", "set", port, "up")
            ip("-n", name, "link", "set", "xk0", "up")
            ports.append(PortSpec(port, namespace=room))
        yield Foreign((names[0], names[1]), room, (ports[0], ports[1]), stack)
