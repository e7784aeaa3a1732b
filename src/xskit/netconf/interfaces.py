"""Facts about an interface of the calling thread's namespace, and the few values that are set by ioctl.

All by netlink and ioctl: /sys/class/net shows the namespace in which /sys was mounted, not the thread's.
"""

from __future__ import annotations

import difflib
import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum

from xskit.abi import ethtool as abi
from xskit.abi import netlink as nl
from xskit.closing import Closing
from xskit.errors import DeviceError, KernelError
from xskit.netconf import ethtool
from xskit.netconf.names import check_interface_name, request_name, shown
from xskit.netconf.namespaces import MissingError
from xskit.netconf.privileges import require
from xskit.netlink import Netlink, NetlinkError, attributes, text

__all__ = [
    "Glance",
    "Interface",
    "LinkState",
    "RefusedError",
    "Watch",
    "control_socket",
    "delete",
    "exists",
    "index",
    "is_up",
    "look",
    "missing",
    "mtu",
    "name",
    "refusal",
    "set_mtu",
    "set_up",
]

_LOOK_EVERY_S = 0.001
_NAME_AND_FLAGS = struct.Struct("=16sH22x")  # ifreq with ifr_flags
_NAME_AND_NUMBER = struct.Struct("=16si20x")  # ifreq with ifr_mtu, or ifr_ifindex


class RefusedError(KernelError):
    """The kernel refused a change of an interface; `number` is its errno."""

    def __init__(self, cause: str, number: int, *, remedy: str | None = None) -> None:
        super().__init__(cause, remedy=remedy)
        self.number = number


class LinkState(Enum):
    """What `Watch` sees."""

    UP = "up"
    DOWN = "down"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Glance:
    """What `Watch` sees of an interface that it follows by index; `mtu` in bytes without the Ethernet header."""

    name: str
    state: LinkState
    mtu: int


@dataclass(frozen=True, slots=True)
class Interface:
    """What the kernel says of one interface.

    `mtu` and `max_mtu` in bytes without the Ethernet header. `rx_queues` and `tx_queues` are those in use
    (channels), not those allocated. `link_type` is ARPHRD_* (linux/if_arp.h): 1 where packets have an Ethernet header.
    `kind` is "veth", "bridge", ... and "" for hardware; `options` are the kind's own attributes (IFLA_INFO_DATA);
    `lower` is the interface of this namespace that it lies on, or is the other end of, or ""; `master` is the bridge,
    bond or team that it is part of, or ""; `driver` as in ethtool -i.
    """

    name: str
    index: int
    mac: str
    mtu: int
    max_mtu: int
    up: bool
    carrier: bool
    loopback: bool
    promiscuous: bool
    arp: bool
    link_type: int
    kind: str
    options: Mapping[int, bytes]
    lower: str
    master: str
    driver: str
    rx_queues: int
    tx_queues: int


def look(name: str) -> Interface:
    """All facts of the interface `name`.

    Raises:
        UsageError: no interface can have this name.
        MissingError: there is none of this name.
    """
    body = _get(name)
    _, link_type, number, flags, _ = nl.LINK_HEADER.unpack_from(body)
    found = attributes(body, nl.LINK_HEADER.size)
    with control_socket() as control:
        queues = ethtool.queues(control, name)
        driver = ethtool.driver(control, name)
        lower = None if nl.IFLA_LINK_NETNSID in found else _name(control, _number(found, nl.IFLA_LINK))
        master = _name(control, _number(found, nl.IFLA_MASTER))
    rx_queues, tx_queues = queues or (_number(found, nl.IFLA_NUM_RX_QUEUES), _number(found, nl.IFLA_NUM_TX_QUEUES))
    info = attributes(found.get(nl.IFLA_LINKINFO, b""))
    return Interface(
        name=name,
        index=number,
        mac=found.get(nl.IFLA_ADDRESS, b"").hex(":"),
        mtu=_number(found, nl.IFLA_MTU),
        max_mtu=_number(found, nl.IFLA_MAX_MTU),
        up=bool(flags & nl.LinkFlag.UP),
        carrier=bool(found.get(nl.IFLA_CARRIER, b"\0")[0]),
        loopback=bool(flags & nl.LinkFlag.LOOPBACK),
        promiscuous=_number(found, nl.IFLA_PROMISCUITY) > 0,
        arp=not flags & nl.LinkFlag.NOARP,
        link_type=link_type,
        kind=info.get(nl.IFLA_INFO_KIND, b"").rstrip(b"\0").decode(),
        options=attributes(info.get(nl.IFLA_INFO_DATA, b"")),
        lower=lower or "",
        master=master or "",
        driver=driver,
        rx_queues=rx_queues,
        tx_queues=tx_queues,
    )


def exists(name: str) -> bool:
    """Whether there is an interface `name`."""
    try:
        index(name)
    except MissingError:
        return False
    return True


def index(name: str) -> int:
    """The number of the interface `name`.

    Raises:
        MissingError: there is none of this name.
    """
    with control_socket() as control:
        try:
            answer = fcntl.ioctl(control, abi.SIOCGIFINDEX, _NAME_AND_NUMBER.pack(request_name(name), 0))
        except OSError as error:
            raise missing(name) from error
    return int(_NAME_AND_NUMBER.unpack(answer)[1])


def name(number: int) -> str:
    """What the interface with this index is called now.

    Raises:
        MissingError: there is none.
    """
    with control_socket() as control:
        found = _name(control, number)
    if found is None:
        raise MissingError(f"there is no interface with index {number}", remedy="ip -brief link")
    return found


def is_up(name: str) -> bool:
    """Whether `name` is administratively up. Raises MissingError."""
    with control_socket() as control:
        return bool(_flags(control, name) & nl.LinkFlag.UP)


def set_up(name: str, up: bool) -> None:
    """Set `name` administratively up or down. Raises MissingError, PrivilegeError, RefusedError."""
    with control_socket() as control:
        flags = _flags(control, name)
        wanted = flags | nl.LinkFlag.UP if up else flags & ~nl.LinkFlag.UP
        with _explained(f"{name} cannot be set {'up' if up else 'down'}", name):
            fcntl.ioctl(control, abi.SIOCSIFFLAGS, _NAME_AND_FLAGS.pack(request_name(name), wanted))


def mtu(name: str) -> int:
    """The MTU of `name` in bytes. Raises MissingError."""
    with control_socket() as control:
        return _mtu(control, name)


def set_mtu(name: str, size_bytes: int) -> None:
    """Set the MTU of `name`. Raises MissingError, PrivilegeError, RefusedError."""
    with control_socket() as control, _explained(f"the MTU of {name} cannot be {size_bytes}", name):
        fcntl.ioctl(control, abi.SIOCSIFMTU, _NAME_AND_NUMBER.pack(request_name(name), size_bytes))


def delete(name: str) -> None:
    """Remove the (virtual) interface `name`. Raises MissingError, PrivilegeError, RefusedError."""
    with Netlink() as netlink:
        try:
            netlink.request(nl.RTM_DELLINK, nl.LINK_HEADER.pack(0, 0, index(name), 0, 0))
        except NetlinkError as error:
            raise refusal(f"{name} cannot be removed", error, name) from error


def missing(name: str) -> MissingError:
    """The error for an interface that is not there, with the names that look like it."""
    close = difflib.get_close_matches(name, [other for _, other in socket.if_nameindex()])
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    return MissingError(
        f"there is no interface {shown(name)} in this network namespace{meant}", remedy="ip -brief link"
    )


def refusal(doing: str, error: OSError, name: str | None = None) -> DeviceError | RefusedError:
    """The error for a refused request: `doing` ("the MTU of va cannot be 9"), then the kernel's words."""
    if error.errno in (errno.ENODEV, errno.ENXIO) and name is not None:
        return missing(name)
    if error.errno in (errno.EPERM, errno.EACCES):
        require("CAP_NET_ADMIN", "changing the network set-up")
    return RefusedError(f"{doing}: {error.strerror}", error.errno or 0)


class Watch(Closing):
    """A cheap look at interfaces from any thread: one ioctl on a socket that stays in the namespace of its making."""

    def __init__(self) -> None:
        self._control = control_socket()

    def state(self, name: str) -> LinkState:
        """UP when it is up and has a carrier, DOWN when not, GONE when there is no such interface.

        Not by IFF_RUNNING alone, which follows the carrier up to one second late.
        """
        try:
            flags = _flags(self._control, name)
        except MissingError:
            return LinkState.GONE
        if not flags & nl.LinkFlag.UP:
            return LinkState.DOWN
        carrier = ethtool.carrier(self._control, name)
        return LinkState.UP if (flags & nl.LinkFlag.RUNNING if carrier is None else carrier) else LinkState.DOWN

    def glance(self, number: int) -> Glance | None:
        """The interface with this index, whatever it is called by now; None when it is gone."""
        while True:
            name = _name(self._control, number)
            if name is None:
                return None
            state = self.state(name)
            with suppress(MissingError):  # or renamed in the middle of this
                size_bytes = _mtu(self._control, name)
                if state is not LinkState.GONE:
                    return Glance(name, state, size_bytes)

    def wait(self, name: str, wanted: LinkState = LinkState.UP, *, timeout_s: float) -> LinkState:
        """Look every millisecond until the state is the wanted one or the time is over; the last state."""
        deadline = time.monotonic() + timeout_s
        while (state := self.state(name)) is not wanted and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        return state

    def close(self) -> None:
        """Give the socket back."""
        self._control.close()


def control_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


def _flags(control: socket.socket, name: str) -> int:
    with _explained(f"the flags of {name} cannot be read", name):
        answer = fcntl.ioctl(control, abi.SIOCGIFFLAGS, _NAME_AND_FLAGS.pack(request_name(name), 0))
    return int(_NAME_AND_FLAGS.unpack(answer)[1])


def _mtu(control: socket.socket, name: str) -> int:
    with _explained(f"the MTU of {name} cannot be read", name):
        answer = fcntl.ioctl(control, abi.SIOCGIFMTU, _NAME_AND_NUMBER.pack(request_name(name), 0))
    return int(_NAME_AND_NUMBER.unpack(answer)[1])


def _get(name: str) -> bytes:
    check_interface_name(name)
    with Netlink() as netlink:
        try:
            request = nl.LINK_HEADER.pack(0, 0, 0, 0, 0) + text(nl.IFLA_IFNAME, name)
            return netlink.request(nl.RTM_GETLINK, request)[0]
        except NetlinkError as error:
            raise refusal(f"{name} cannot be read", error, name) from error


def _name(control: socket.socket, number: int) -> str | None:
    """None where there is no interface with this index."""
    try:
        answer = fcntl.ioctl(control, abi.SIOCGIFNAME, _NAME_AND_NUMBER.pack(b"", number))
    except OSError:
        return None
    return os.fsdecode(_NAME_AND_NUMBER.unpack(answer)[0].rstrip(b"\0"))


def _number(found: dict[int, bytes], kind: int) -> int:
    return int.from_bytes(found.get(kind, b""), "little")


@contextmanager
def _explained(doing: str, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refusal(doing, error, name) from error
