"""The lab: hosts in network namespaces, joined by emulated links.

    host a                       the lab's own namespace                      host b
    [xk0] ---- veth ---- [xk1a]  port, AF_XDP, emulator, port  [xk1b] ---- veth ---- [xk0]

Every link has a subnet of its own out of 198.18.0.0/15, which RFC 2544 sets aside for benchmarks.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from xskit.emulator.emulator import Emulator, LinkSpec, PortSpec
from xskit.emulator.link import LinkDirection
from xskit.emulator.report import LinkReport, Report
from xskit.emulator.settings import EngineSettings, link_settings, read
from xskit.errors import UsageError
from xskit.lab.host import Host
from xskit.netconf.changes import CreateNamespace, CreateVeth, SetAddress, SetLinkUp, SetOffload, SetSysctl, VethEnd
from xskit.netconf.journal import Journal, restore_dead

_numbers = itertools.count(1)

OFFLOADS_OFF = {"tx": False}
"""On an owned host's end: checksums are then finished before packets leave, and segmentation goes with them."""


class LabLink:
    """A running link of a lab.

    Attributes:
        name: of the link.
        hosts: its two ends.
        addresses: theirs, on this link.
        emulator: that runs it.
    """

    def __init__(self, name: str, hosts: tuple[Host, Host], addresses: tuple[str, str], emulator: Emulator) -> None:
        self.name = name
        self.hosts = hosts
        self.addresses = addresses
        self.emulator = emulator

    @property
    def forward(self) -> LinkDirection:
        """From the first host to the second."""
        return self.emulator.links[self.name].forward

    @property
    def reverse(self) -> LinkDirection:
        """From the second host to the first."""
        return self.emulator.links[self.name].reverse

    def update(self, **changes: Any) -> None:
        """Change settings of both directions while packets are inside, as LinkDirection.update."""
        self.emulator.links[self.name].update(**changes)

    def report(self) -> Report:
        """Asked against achieved, now; after close, as it was at the end."""
        return self.emulator.report()

    def close(self) -> Report | None:
        """Stop this link; what is inside is lost. Returns the final report."""
        return self.emulator.close()


class Lab:
    """Hosts and links of one experiment; a context manager that takes everything back.

    Args:
        on_compile: as of Emulator.
        engine: fields of EngineSettings for all links: seed=7, spin=True, memory="1GiB", ...

    Raises:
        SettingsError: an unknown field of EngineSettings.
    """

    def __init__(
        self,
        *,
        on_compile: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
        **engine: Any,
    ) -> None:
        self.engine = read(EngineSettings, engine, "Lab")
        self.hosts: dict[str, Host] = {}
        self.links: dict[str, LabLink] = {}
        self._names: dict[str, str] = {}
        self._on_compile = on_compile
        self._tag = f"xk{os.getpid():x}x{next(_numbers)}"
        self._room: str | None = None
        self._stack = contextlib.ExitStack()
        restore_dead()
        self._journal = self._stack.enter_context(Journal.open())

    # -- building --------------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """A new host: an empty network namespace with loopback up.

        Raises:
            UsageError: there is one of this name.
        """
        if name in self.hosts:
            raise UsageError(f"there is a host {name} already")
        namespace = self._namespace(name)
        self.hosts[name] = Host(name, namespace, self._journal, self._names)
        return self.hosts[name]

    def _namespace(self, name: str) -> str:
        namespace = f"{self._tag}-{name}"
        self._journal.apply(CreateNamespace(namespace))
        self._quiet(namespace)
        return namespace

    def _quiet(self, namespace: str) -> None:
        """No IPv6: its neighbour and router messages would be counted among the packets of a test."""
        for scope in ("all", "default"):
            with contextlib.suppress(UsageError):
                self._journal.apply(SetSysctl(f"net/ipv6/conf/{scope}/disable_ipv6", "1", namespace=namespace))

    def link(self, first: Host, second: Host, *, name: str | None = None, mtu: int = 1500, **settings: Any) -> LabLink:
        """Join two hosts by an emulated link, and start it.

        Args:
            first, second: `forward` goes from first to second.
            name: of the link; "first-second" when left out.
            mtu: bytes, of all four interfaces.
            settings: as of LinkSettings: owd="20ms", rate="100Mbit", forward={"loss": "1%"}, ...

        Raises:
            SettingsError: an unknown key or an impossible value.
        """
        title = name or f"{first.name}-{second.name}"
        if title in self.links:
            raise UsageError(f"there is a link {title} already")
        wanted = link_settings(settings, f"link {title}")
        number = len(self.links) + 1
        ports = tuple(self._attach(host, number, side, mtu) for host, side in ((first, "a"), (second, "b")))
        emulator = Emulator([LinkSpec(title, (ports[0], ports[1]), wanted)], self.engine, on_compile=self._on_compile)
        self._stack.callback(emulator.close)
        emulator.start()
        addresses = (first.addresses[-1], second.addresses[-1])
        self.links[title] = LabLink(title, (first, second), addresses, emulator)
        return self.links[title]

    def _attach(self, host: Host, number: int, side: str, mtu: int) -> PortSpec:
        """A veth pair between a host and the lab's own namespace; returns the lab's end as a port."""
        room = self._own_namespace()
        interface = f"xk{len(host.interfaces)}"
        port = f"xk{number}{side}"
        host_end = VethEnd(interface, host.namespace, mtu=mtu)
        self._journal.apply(CreateVeth(host_end, VethEnd(port, room, mtu=mtu)))
        self._journal.apply(SetOffload(interface, OFFLOADS_OFF, namespace=host.namespace))
        address = f"198.18.{number}.{1 if side == 'a' else 2}"
        self._journal.apply(SetAddress(interface, f"{address}/24", namespace=host.namespace))
        self._journal.apply(SetLinkUp(port, True, namespace=room))
        self._journal.apply(SetLinkUp(interface, True, namespace=host.namespace))
        host.interfaces.append(interface)
        host.addresses.append(address)
        self._names.setdefault(host.name, address)
        return PortSpec(port, namespace=room, owned=True)

    def _own_namespace(self) -> str:
        if self._room is None:
            self._room = self._namespace("lab")
        return self._room

    # -- ending ----------------------------------------------------------------------------------------------------

    def report(self) -> list[LinkReport]:
        """The reports of all links."""
        return [report for link in self.links.values() for report in link.report().links]

    def close(self) -> None:
        """End all processes, stop the links, remove the hosts; twice is fine."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
