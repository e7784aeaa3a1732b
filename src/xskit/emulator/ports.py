"""What is joined: interfaces by name and network namespace, and whether each can be a port."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from xskit import arguments
from xskit.emulator.mistakes import SettingsError
from xskit.emulator.portkinds import Admission, Ruling, rule
from xskit.emulator.settings import LinkSettings
from xskit.emulator.sizing import PortFacts
from xskit.errors import UsageError
from xskit.netconf import ethtool
from xskit.netconf.interfaces import Interface, control_socket, look
from xskit.netconf.names import check_interface_name, shown
from xskit.netconf.namespaces import MissingError, inside
from xskit.netconf.netdev import device_features
from xskit.netconf.users import own_addresses, upper_interfaces
from xskit.netconf.wireless import wireless
from xskit.xsk.drivers import CAREFUL_UNIT_BYTES, UNIT_BYTES
from xskit.xsk.errors import PortError
from xskit.xsk.opening import BindMode

__all__ = ["LinkSpec", "PortSpec", "check_port", "parse_port", "port_facts", "remarks"]


@dataclass(frozen=True)
class PortSpec:
    """An interface to open.

    Attributes:
        name: of the interface.
        namespace: the network namespace it is in; None is the caller's.
        owned: xskit made the interface and has switched its peer's checksum offload off, so that no partial
            checksum can come in.
    """

    name: str
    namespace: str | None = None
    owned: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        """Raises UsageError if no interface or namespace can have such a name."""
        check_interface_name(self.name)
        if self.namespace is not None and not arguments.text("namespace", self.namespace):
            raise UsageError("namespace must not be empty", remedy="ip netns list")

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{shown(self.namespace)}/{self.name}"


@dataclass(frozen=True)
class LinkSpec:
    """A link to make: `forward` goes from the first port to the second.

    Attributes:
        neighbours_known: the hosts at both ends know each other's MAC address, and never ask for it.
        remarks: sentences for the report.
    """

    name: str
    ports: tuple[PortSpec, PortSpec]
    settings: LinkSettings
    neighbours_known: bool = field(default=False, kw_only=True)
    remarks: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        """Raises UsageError unless these are a name, two ports and settings."""
        if not isinstance(self.name, str) or not self.name.isprintable():
            raise SettingsError(f"a link's name must be printable text, not {arguments.literal(self.name)}")
        ports = self.ports
        if not (isinstance(ports, tuple) and len(ports) == 2 and all(isinstance(port, PortSpec) for port in ports)):
            raise SettingsError(f"ports must be two PortSpec, not {arguments.literal(ports)}")
        if not isinstance(self.settings, LinkSettings):
            raise SettingsError(f"settings must be LinkSettings, not {arguments.literal(self.settings)}")


def parse_port(text: str) -> PortSpec:
    """Read a port as reports show it: `eth1`, or `blue/eth1` for the one in the network namespace `blue`.

    Neither name can have a slash in it (dev_valid_name in net/core/dev.c).

    Raises:
        SettingsError: it is empty, has more than one slash, or no interface can be called that.
    """
    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (slash and namespace in ("", ".", "..")):
        raise SettingsError(f"{text!r} is no port: write eth1, or blue/eth1 for one in the network namespace blue")
    try:
        check_interface_name(name)
    except UsageError as error:
        raise SettingsError(f"{text!r} is no port: {error.cause}", remedy=error.remedy) from None
    return PortSpec(name, namespace or None)


def check_port(spec: PortSpec) -> Interface:
    """The facts of an interface that can be a port.

    Raises:
        MissingError: there is no such interface or namespace.
        PortError: no interface of its kind can be a port (portkinds.py); it is down, or part of a bridge, bond or
            team.
    """
    ip = "ip" if spec.namespace is None else f"ip -n {spec.namespace}"
    with inside(spec.namespace):
        try:
            facts = look(spec.name)
            ruling = _rule(spec, facts)
        except MissingError as error:
            if spec.namespace is None:
                raise
            there = f"in network namespace {spec.namespace}"
            raise MissingError(f"there is no interface {spec.name} {there}", remedy=f"{ip} -brief link") from error
    if ruling.admission is Admission.REFUSED:
        raise PortError(f"{spec} {ruling.clause}", errno.EOPNOTSUPP, remedy=ruling.remedy)
    if facts.master:
        raise PortError(
            f"{spec} is part of {facts.master}, and xskit would take its packets away from there",
            errno.EBUSY,
            remedy=f"{ip} link set {spec.name} nomaster",
        )
    if not facts.up:
        raise PortError(f"{spec} is down", errno.ENETDOWN, remedy=f"{ip} link set {spec.name} up")
    return facts


def _rule(spec: PortSpec, facts: Interface) -> Ruling:
    """What the table says of an interface of the calling thread's namespace."""
    air = None if facts.kind else wireless(facts.index)
    return rule(facts, spec.namespace, alone=air is not None and not air.carries_others)


def remarks(spec: PortSpec) -> list[str]:
    """What the user should know about an interface that is a port now, each in a sentence.

    Raises:
        MissingError: there is no such interface or namespace any more.
    """
    with inside(spec.namespace):
        facts = look(spec.name)
        ruling = _rule(spec, facts)
        addresses, above = own_addresses(facts.index), upper_interfaces(facts.index)
    found = [f"port {spec} {ruling.clause}"] if ruling.admission is Admission.WARNED else []
    if addresses:
        found.append(f"port {spec} has the address {addresses[0]}: this host gets no packets there while the link runs")
    if above:
        found.append(f"port {spec} is below {', '.join(above)}: no packets arrive there while the link runs")
    return found


def port_facts(spec: PortSpec, mode: BindMode) -> PortFacts:
    """What the memory plan must know of a port; raises what check_port does."""
    facts = check_port(spec)
    if not _may_be_zero_copy(spec, mode):
        return PortFacts(mtu=facts.mtu, rx_queues=facts.rx_queues)
    with inside(spec.namespace), control_socket() as control:
        rings = ethtool.rings(control, spec.name)
    return PortFacts(
        mtu=facts.mtu,
        rx_queues=facts.rx_queues,
        hardware_ring=0 if rings is None else rings[0],  # the driver keeps that ring full from FILL
        unit_bytes=UNIT_BYTES.get(facts.driver, CAREFUL_UNIT_BYTES),
    )


def _may_be_zero_copy(spec: PortSpec, mode: BindMode) -> bool:
    """Whether zero copy may come about; where the kernel is too old to say (before 6.3), it may."""
    if mode in ("native", "generic"):
        return False
    with inside(spec.namespace):
        features = device_features(spec.name)
    return features is None or features.zero_copy
