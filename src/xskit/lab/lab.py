"""The lab: hosts in network namespaces, joined by emulated links.

    host a                       the lab's own namespace                      host b
    [xk0] ---- veth ---- [xk1a]  port, AF_XDP, emulator, port  [xk1b] ---- veth ---- [xk0]

This machine, that is the namespace in which the lab was made, can take the place of a host: it keeps all that it has,
and gets one interface more for each link, [xkpeer1], which has a number that no other lab has taken.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from xskit._fork import require_parent
from xskit.arguments import literal
from xskit.emulator.emulator import Emulator, LinkSpec, PortSpec
from xskit.emulator.link import LinkDirection
from xskit.emulator.offloads import CUTTING, PUTTING_IN, SUMMING
from xskit.emulator.report import Report
from xskit.emulator.settings import EngineSettings, link_settings, read
from xskit.emulator.sizing import check_mtu
from xskit.errors import DeviceError, UsageError, XskitError
from xskit.lab.host import Host
from xskit.lab.report import LabReport
from xskit.lab.subnets import NETWORK, addresses, free_numbers
from xskit.netconf.changes import (
    AddRoute,
    CreateNamespace,
    CreateVeth,
    SetAddress,
    SetLinkUp,
    SetOffload,
    SetSysctl,
    StartedProcess,
    VethEnd,
)
from xskit.netconf.interfaces import RefusedError, exists
from xskit.netconf.journal import Journal, restore_dead
from xskit.netconf.namespaces import MissingError
from xskit.netconf.privileges import require
from xskit.netconf.subnets import networks_in_use

_numbers = itertools.count(1)

NEEDED = ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF")

OFFLOADS_OFF = dict.fromkeys((*SUMMING, *CUTTING, *PUTTING_IN), False)
"""On an owned host's end: checksums are then finished, segments cut and VLAN tags put in before packets leave."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,40}")
"""Of a host: it becomes a part of a network namespace's name, and a word in /etc/hosts."""

_ROOM = "lab"


class LabLink:
    """A running link of a lab.

    Attributes:
        name: of the link.
        hosts: its two ends.
        addresses: theirs, on this link.
        emulator: that runs it.
    """

    def __init__(
        self, name: str, hosts: tuple[Host, Host], addresses: tuple[str, str], emulator: Emulator, lab: Lab
    ) -> None:
        self._lab = lab  # lives as long as its links and hosts are used
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
        """Stop this link; what is inside is lost. Returns the final report.

        Raises:
            UsageError: this process was forked from the one in which it runs.
        """
        return self.emulator.close()


class Lab:
    """Hosts and links of one experiment; a context manager that takes everything back.

    A process that was forked from the one that made it can start commands on its hosts and be `inside` them, and change
    nothing: it gets a UsageError.

    One that nobody uses any more, nor any of its hosts and links, is closed with a ResourceWarning.

    Args:
        on_compile: as of Emulator.
        engine: fields of EngineSettings for all links: seed=7, spin=True, memory="1GiB", ...

    Raises:
        SettingsError: an unknown field of EngineSettings.
        PrivilegeError: capabilities are missing.
    """

    def __init__(
        self,
        *,
        on_compile: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
        **engine: Any,
    ) -> None:
        self.engine = read(EngineSettings, engine, "Lab")
        require(NEEDED, "a lab of network namespaces")
        self.hosts: dict[str, Host] = {}
        self.links: dict[str, LabLink] = {}
        self._names: dict[str, str] = {}
        self._on_compile = on_compile
        self._pid = os.getpid()
        self._tag = f"xk{os.getpid():x}x{next(_numbers)}"
        self._room: str | None = None
        self._machine: Host | None = None
        self._numbers: set[int] = set()
        self._stack = contextlib.ExitStack()
        restore_dead()
        self._journal = self._stack.enter_context(Journal.open())
        self._forgotten = weakref.finalize(self, _forgotten, self._stack, self._tag, os.getpid())
        self._forgotten.atexit = False  # the journal is restored at exit anyway

    # -- building --------------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """A new host: an empty network namespace with loopback up.

        Raises:
            UsageError: there is one of this name, or it is no name.
        """
        self._require_ours()
        self._check_name(name)
        namespace = self._namespace(name)
        self._no_ipv6(namespace, "all", "default")
        self.hosts[name] = Host(name, namespace, self._journal, self._names, self)
        return self.hosts[name]

    def machine(self, name: str = "peer") -> Host:
        """This machine as a host: the network namespace in which the lab was made, with all that is in it.

        Of what is there nothing is changed. A host that is linked with it has its default route there.

        Raises:
            UsageError: it is in the lab already, or there is a host of this name.
        """
        self._require_ours()
        self._check_name(name)
        if self._machine is not None:
            raise UsageError(f"this machine is in the lab already, as {self._machine.name}")
        self._machine = self.hosts[name] = Host(name, None, self._journal, self._names, self)
        return self._machine

    def _require_ours(self) -> None:
        require_parent(self._pid, "the lab belongs to")

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"a host's name is 1 to 40 letters, digits, dots, dashes and underscores, not {name!r}")
        if name in self.hosts:
            raise UsageError(f"there is a host {name} already")
        if name == _ROOM:
            raise UsageError(f"{_ROOM} is the network namespace of the lab itself, and no host")

    def _namespace(self, name: str) -> str:
        namespace = f"{self._tag}-{name}"
        self._journal.apply(CreateNamespace(namespace))
        return namespace

    def _no_ipv6(self, namespace: str | None, *scopes: str) -> None:
        """Its neighbour and router messages would be counted among the packets of a test."""
        for scope in scopes:
            with contextlib.suppress(MissingError):
                self._journal.apply(SetSysctl(f"net/ipv6/conf/{scope}/disable_ipv6", "1", namespace=namespace))

    def link(self, first: Host, second: Host, *, name: str | None = None, mtu: int = 1500, **settings: Any) -> LabLink:
        """Join two hosts by an emulated link, and start it.

        Args:
            first, second: `forward` goes from first to second.
            name: of the link; "first-second" when left out.
            mtu: bytes, of all four interfaces.
            settings: as of LinkSettings: owd="20ms", rate="100Mbit", forward={"loss": "1%"}, ...

        Raises:
            SettingsError: an unknown key or an impossible value, an MTU that no interface has.
            UsageError: there is a link of this name, or both ends are the same host.
            DeviceError: no subnet is free on this machine.
        """
        self._require_ours()
        for host in (first, second):
            if not isinstance(host, Host):
                raise UsageError(f"a link joins two hosts, as Lab.host() gives them, not {literal(host)}")
        if first is second:
            raise UsageError(f"{first.name} cannot be linked to itself")
        if not (name is None or (isinstance(name, str) and name.isprintable())):
            raise UsageError(f"a link's name must be printable text, not {literal(name)}")
        title = name or f"{first.name}-{second.name}"
        if title in self.links:
            raise UsageError(f"there is a link {title} already")
        wanted = link_settings(settings, f"link {title}")
        check_mtu(mtu)
        self._own_namespace()
        with self._whole_or_not((first, second)):
            ports = self._wire((first, second), mtu)
            emulator = Emulator([LinkSpec(title, ports, wanted)], self.engine, on_compile=self._on_compile)
            self._stack.callback(emulator.close)
            emulator.start()
        ends = (first.addresses[-1], second.addresses[-1])
        self.links[title] = LabLink(title, (first, second), ends, emulator, self)
        return self.links[title]

    @contextlib.contextmanager
    def _whole_or_not(self, hosts: tuple[Host, Host]) -> Iterator[None]:
        """A link that could not be made leaves nothing: what the block changed is put back."""
        before = self._journal.pending
        counts = [(host, len(host.interfaces), len(host.addresses)) for host in hosts]
        numbers, names = set(self._numbers), set(self._names)
        try:
            yield
        except BaseException:
            for change in reversed(self._journal.pending):
                if not isinstance(change, StartedProcess) and not any(change is earlier for earlier in before):
                    with contextlib.suppress(XskitError):  # the first error is the one to show; close() tries again
                        self._journal.undo(change)
            for host, interfaces, addresses_before in counts:
                del host.interfaces[interfaces:], host.addresses[addresses_before:]
            self._numbers = numbers
            for name in set(self._names) - names:
                del self._names[name]
            raise

    def _wire(self, hosts: tuple[Host, Host], mtu: int) -> tuple[PortSpec, PortSpec]:
        """Both veth pairs of a link, addresses and routes; returns the lab's ends as ports.

        The machine's pair comes first: the name of its interface is what reserves the number.
        """
        networks = networks_in_use() if self._machine in hosts else []
        for number in free_numbers(self._numbers, networks):
            ends = [(host, f"xk{number}{side}") for host, side in zip(hosts, "ab", strict=True)]
            for host, port in sorted(ends, key=lambda end: end[0] is not self._machine):
                if not self._attach(host, number, port, mtu):
                    break
            else:
                self._numbers.add(number)
                self._address(hosts, number)
                room = self._own_namespace()
                return PortSpec(ends[0][1], room, owned=True), PortSpec(ends[1][1], room, owned=True)
        raise DeviceError(f"every subnet of {NETWORK} is in use on this machine", remedy="ip -4 address; ip -4 route")

    def _attach(self, host: Host, number: int, port: str, mtu: int) -> bool:
        """A veth pair between a host and the lab's own namespace; False when another lab was faster.

        The MACs are chosen here: should somebody else make the same interface at the same moment, it is not mistaken
        for ours.
        """
        room = self._own_namespace()
        interface = f"xkpeer{number}" if host is self._machine else f"xk{len(host.interfaces)}"
        macs = [f"02:{secrets.token_bytes(5).hex(':')}" for _ in range(2)]
        ends = (VethEnd(interface, host.namespace, macs[0], mtu), VethEnd(port, room, macs[1], mtu))
        try:
            self._journal.apply(CreateVeth(*ends, macs=macs))
        except (DeviceError, RefusedError):
            if host is self._machine and exists(interface):
                return False
            raise
        self._journal.apply(SetOffload(interface, OFFLOADS_OFF, namespace=host.namespace))
        if host is self._machine:
            self._no_ipv6(None, interface)
        host.interfaces.append(interface)
        return True

    def _address(self, hosts: tuple[Host, Host], number: int) -> None:
        """Addresses, interfaces up, and the way to the machine."""
        for host, address, side in zip(hosts, addresses(number), "ab", strict=True):
            interface = host.interfaces[-1]
            self._journal.apply(SetAddress(interface, f"{address}/24", namespace=host.namespace))
            self._journal.apply(SetLinkUp(f"xk{number}{side}", True, namespace=self._own_namespace()))
            self._journal.apply(SetLinkUp(interface, True, namespace=host.namespace))
            host.addresses.append(address)
            self._names.setdefault(host.name, address)
        for host, other in (hosts, hosts[::-1]):
            if other is self._machine and len(host.addresses) == 1:
                self._journal.apply(AddRoute("default", other.addresses[-1], namespace=host.namespace))

    def _own_namespace(self) -> str:
        if self._room is None:
            self._room = self._namespace(_ROOM)
            self._no_ipv6(self._room, "all", "default")
        return self._room

    # -- ending ----------------------------------------------------------------------------------------------------

    def report(self) -> LabReport:
        """The reports of all links: a list of LinkReport, `valid` when all of them are."""
        return LabReport(link.report() for link in self.links.values())

    def close(self) -> None:
        """End all processes, stop the links, remove the hosts; twice is fine.

        Raises:
            UsageError: this process was forked from the one whose lab it is.
        """
        self._require_ours()
        self._forgotten.detach()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() == self._pid:  # a forked process that leaves the block leaves the lab as it is
            self.close()


def _forgotten(stack: contextlib.ExitStack, tag: str, pid: int) -> None:
    """Close a lab that was not closed; in a thread of its own, for the collector stops any other one anywhere."""
    if os.getpid() != pid:
        return
    try:
        warnings.warn(f"a lab was not closed: its namespaces {tag}-... are removed now", ResourceWarning, stacklevel=1)
    finally:
        threading.Thread(target=stack.close, name="xskit-forgotten").start()
