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
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from xskit._fork import require_parent
from xskit.arguments import literal
from xskit.emulator.emulator import Emulator, LinkSpec, PortSpec
from xskit.emulator.link import LinkDirection
from xskit.emulator.report import Report
from xskit.emulator.settings import EngineSettings, LabSettings, link_settings, read
from xskit.emulator.sizing import check_mtu
from xskit.errors import DeviceError, UsageError, XskitError
from xskit.lab.host import Host
from xskit.lab.report import LabReport
from xskit.lab.subnets import free_numbers
from xskit.lab.versions import Versions, every_subnet_taken, versions
from xskit.lab.wiring import LinkEnd, attach, connect, prepare, route_by
from xskit.netconf.changes import CreateNamespace, StartedProcess
from xskit.netconf.interfaces import RefusedError, exists
from xskit.netconf.journal import Journal, restore_dead
from xskit.netconf.privileges import require
from xskit.netconf.subnets import Network, kernel_has_ipv6, networks_in_use

_numbers = itertools.count(1)

NEEDED = ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF")

_NAME = re.compile(r"[A-Za-z0-9._-]{1,40}")
"""Of a host: it becomes a part of a network namespace's name, and a word in /etc/hosts."""

_ROOM = "lab"


class LabLink:
    """A running link of a lab.

    Attributes:
        name: of the link.
        hosts: its two ends.
        addresses: theirs, on this link: IPv4, or IPv6 if the link has only that.
        addresses6: their IPv6 addresses; None if the link has IPv4 only.
        emulator: that runs it.
    """

    def __init__(
        self,
        name: str,
        hosts: tuple[Host, Host],
        addresses: tuple[str, str],
        addresses6: tuple[str, str] | None,
        emulator: Emulator,
        lab: Lab,
    ) -> None:
        self._lab = lab  # lives as long as its links and hosts are used
        self.name = name
        self.hosts = hosts
        self.addresses = addresses
        self.addresses6 = addresses6
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

    A process forked from the one that made the lab can start commands on its hosts and be `inside` them. Any attempt to
    change the lab raises UsageError.

    A lab is closed, with a ResourceWarning, when neither it nor any of its hosts and links is referenced any more.

    Args:
        ip: 4, 6 or "both": the IP versions of its links. With "both", a link has IPv4 only if the kernel, this machine
            or an MTU below 1280 does not allow IPv6; its report then says why.
        neighbours: "permanent": the ends of a link know each other's MAC address from the start, so that no link is too
            slow for ARP and ND; "kernel": they resolve it by ARP and ND. Use "kernel" to test these, or to change MAC
            addresses.
        on_compile: as of Emulator.
        engine: fields of EngineSettings for all links: seed=7, spin=True, memory="1GiB", ...

    Raises:
        SettingsError: an unknown field of EngineSettings, or an impossible value.
        PrivilegeError: capabilities are missing.
    """

    def __init__(
        self,
        *,
        ip: Literal[4, 6, "both"] = "both",
        neighbours: Literal["permanent", "kernel"] = "permanent",
        on_compile: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
        **engine: Any,
    ) -> None:
        self.settings = read(LabSettings, {"ip": ip, "neighbours": neighbours}, "Lab")
        self.engine = read(EngineSettings, engine, "Lab")
        require(NEEDED, "a lab of network namespaces")
        self.hosts: dict[str, Host] = {}
        self.links: dict[str, LabLink] = {}
        self._names: dict[str, list[str]] = {}
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
        prepare(self._journal, namespace, ipv6=self.settings.ip != 4 and kernel_has_ipv6())
        self.hosts[name] = Host(name, namespace, self._journal, self._names, self)
        return self.hosts[name]

    def machine(self, name: str = "peer") -> Host:
        """This machine as a host: the network namespace in which the lab was made, with all that is in it.

        The lab changes nothing that exists there. A host that is linked with this machine has its default routes to it.

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

    def link(self, first: Host, second: Host, *, name: str | None = None, mtu: int = 1500, **settings: Any) -> LabLink:
        """Join two hosts by an emulated link, and start it.

        Args:
            first, second: `forward` goes from first to second.
            name: of the link; "first-second" when left out.
            mtu: bytes, of all four interfaces.
            settings: as of LinkSettings: owd="20ms", rate="100Mbit", forward={"loss": "1%"}, ...

        Raises:
            SettingsError: an unknown key, an impossible value, an MTU that no interface can have, or one below 1280 for
                a link that has only IPv6.
            UsageError: there is a link of this name, or both ends are the same host.
            DeviceError: no subnet is free on this machine, or the link has only IPv6 and IPv6 is not available.
        """
        self._require_ours()
        for host in (first, second):
            if not isinstance(host, Host):
                raise UsageError(f"a link joins two hosts that Lab.host() returned, not {literal(host)}")
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
        hosts = (first, second)
        networks = networks_in_use() if self._machine in hosts else []
        found = versions(self.settings, mtu, used=self._numbers, networks=networks, machine=self._machine in hosts)
        with self._whole_or_not(hosts):
            ends, addresses = self._wire(hosts, mtu, found, networks)
            first_port, second_port = (PortSpec(end.port, end.room, owned=True) for end in ends)
            remarks = () if found.remark is None else (f"link {title} has no IPv6: {found.remark}",)
            known = self.settings.neighbours == "permanent"
            spec = LinkSpec(title, (first_port, second_port), wanted, neighbours_known=known, remarks=remarks)
            emulator = Emulator([spec], self.engine, on_compile=self._on_compile)
            self._stack.callback(emulator.close)
            emulator.start()
        pairs = {version: (addresses[0][version], addresses[1][version]) for version in found.numbers}
        self.links[title] = LabLink(title, hosts, pairs[found.numbers[0]], pairs.get(6), emulator, self)
        return self.links[title]

    @contextlib.contextmanager
    def _whole_or_not(self, hosts: tuple[Host, Host]) -> Iterator[None]:
        """A link that could not be made leaves nothing: what the block changed is put back."""
        before = self._journal.pending
        count = [len(host.interfaces) for host in hosts]
        numbers, names = set(self._numbers), set(self._names)
        try:
            yield
        except BaseException:
            for change in reversed(self._journal.pending):
                if not isinstance(change, StartedProcess) and not any(change is earlier for earlier in before):
                    with contextlib.suppress(XskitError):  # the first error is the one to show; close() tries again
                        self._journal.undo(change)
            for host, number in zip(hosts, count, strict=True):
                del host.interfaces[number:], host.addresses[number:], host.addresses6[number:]
            self._numbers = numbers
            for name in set(self._names) - names:
                del self._names[name]
            raise

    def _wire(
        self, hosts: tuple[Host, Host], mtu: int, found: Versions, networks: Sequence[Network]
    ) -> tuple[tuple[LinkEnd, LinkEnd], list[dict[int, str]]]:
        """Everything of a link but the emulator; returns its ends, and the address of each by IP version."""
        number, ends = self._attach(hosts, mtu, found, networks)
        self._numbers.add(number)
        permanent = self.settings.neighbours == "permanent"
        addresses = connect(self._journal, ends, number, found.numbers, permanent=permanent)
        for end, own, other, theirs in zip(ends, addresses, ends[::-1], addresses[::-1], strict=True):
            end.host.interfaces.append(end.interface)
            end.host.addresses.append(own[found.numbers[0]])
            end.host.addresses6.append(own.get(6))
            self._names.setdefault(end.host.name, list(own.values()))
            if other.host is self._machine and len(end.host.addresses) == 1:
                route_by(self._journal, end, theirs)
        return ends, addresses

    def _attach(
        self, hosts: tuple[Host, Host], mtu: int, found: Versions, networks: Sequence[Network]
    ) -> tuple[int, tuple[LinkEnd, LinkEnd]]:
        """Both veth pairs of a link, and its number: the first that is free.

        The machine's pair comes first, because the name of its interface reserves the number. If another lab is faster,
        the next number is tried.
        """
        room = self._own_namespace()
        for number in free_numbers(self._numbers, networks, found.numbers):
            made: dict[Host, LinkEnd] = {}
            sides = dict(zip(hosts, "ab", strict=True))
            for host in sorted(hosts, key=lambda one: one is not self._machine):
                machine = host is self._machine
                interface = f"xkpeer{number}" if machine else f"xk{len(host.interfaces)}"
                port, ipv6 = f"xk{number}{sides[host]}", 6 in found.numbers
                try:
                    made[host] = attach(self._journal, host, interface, port, room, mtu=mtu, ipv6=ipv6)
                except (DeviceError, RefusedError):
                    if machine and exists(interface):
                        break
                    raise
            else:
                return number, (made[hosts[0]], made[hosts[1]])
        raise every_subnet_taken(found.numbers[0])

    def _own_namespace(self) -> str:
        if self._room is None:
            self._room = self._namespace(_ROOM)
            prepare(self._journal, self._room, ipv6=False)
        return self._room

    # -- ending ----------------------------------------------------------------------------------------------------

    def report(self) -> LabReport:
        """The reports of all links: a list of LinkReport that is `valid` if all of them are."""
        return LabReport(link.report() for link in self.links.values())

    def close(self) -> None:
        """End all processes, stop the links, remove the hosts; twice is fine.

        Raises:
            UsageError: this process was forked from the one that made the lab.
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
