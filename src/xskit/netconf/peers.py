"""The far end of a veth pair: what it is called, and in which network namespace it is.

The kernel tells the far end's index, and its namespace by a number that means something only in the near end's
namespace (rtnetlink's nsid). So every namespace that a name or a process holds is asked for its number there.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from xskit.abi import netlink as nl
from xskit.errors import XskitError
from xskit.netconf import interfaces
from xskit.netconf.namespaces import FOLDER, MissingError, holders, identity, inside
from xskit.netlink import Netlink, NetlinkError, attributes, text, u32

__all__ = ["FarEnd", "far_end", "moved_to"]


@dataclass(frozen=True, slots=True)
class FarEnd:
    """The other end of a veth pair. `namespace` as `inside` takes it."""

    name: str
    namespace: str | None


def far_end(name: str, namespace: str | None = None) -> FarEnd | None:
    """The far end of the veth `name`, which is in `namespace`; None when it is no veth.

    Raises:
        MissingError: there is no such interface, or the far end is in a namespace that no process and no name holds.
    """
    with inside(namespace), Netlink() as netlink:
        try:
            request = nl.LINK_HEADER.pack(0, 0, 0, 0, 0) + text(nl.IFLA_IFNAME, name)
            body = netlink.request(nl.RTM_GETLINK, request)[0]
        except NetlinkError as error:
            raise interfaces.refusal(f"{name} cannot be read", error, name) from error
        found = attributes(body, nl.LINK_HEADER.size)
        if attributes(found.get(nl.IFLA_LINKINFO, b"")).get(nl.IFLA_INFO_KIND, b"").rstrip(b"\0") != b"veth":
            return None
        index = int.from_bytes(found[nl.IFLA_LINK], "little")
        if nl.IFLA_LINK_NETNSID not in found:  # both ends are in the same namespace
            return FarEnd(interfaces.name(index), namespace)
        number = int.from_bytes(found[nl.IFLA_LINK_NETNSID], "little", signed=True)
        for place, fd in _namespaces():
            if _number(netlink, fd) == number:
                with inside(fd):
                    return FarEnd(interfaces.name(index), place)
    raise MissingError(f"the far end of {name} is in a network namespace that no process and no name holds")


def moved_to(name: str, index: int, mac: str, home: int | None) -> tuple[str, str] | None:
    """The name and the namespace, as `inside` takes it, of an interface that left the namespace with the number `home`.

    None if it is not found. A moved interface keeps its MAC address, and its name or its index, unless that is taken
    there.
    """
    for place, fd in _namespaces():
        with suppress(XskitError, OSError), inside(fd):
            if identity() == home:
                continue
            for number, other in socket.if_nameindex():
                if (other == name or number == index) and interfaces.look(other).mac == mac:
                    return other, place
    return None


def _namespaces() -> Iterator[tuple[str, int]]:
    """Every namespace that can be found, once: how `inside` knows it, and a descriptor that is open meanwhile."""
    seen = set()
    paths = list(holders())
    for path in sorted(paths, key=lambda path: path.parent != FOLDER):  # a name is easier to type than a number
        inode = identity(path)
        if inode is None or inode in seen:
            continue
        seen.add(inode)
        with suppress(OSError), _opened(path) as fd:
            yield path.name if path.parent == FOLDER else f"net:[{inode}]", fd


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _number(netlink: Netlink, fd: int) -> int | None:
    """What the socket's namespace calls another one; None if it has no name for it."""
    try:
        (body,) = netlink.request(nl.RTM_GETNSID, nl.NSID_HEADER.pack(0) + u32(nl.NETNSA_FD, fd))
    except NetlinkError:
        return None
    (number,) = struct.unpack("=i", attributes(body, nl.NSID_HEADER.size)[nl.NETNSA_NSID])
    return None if number < 0 else int(number)
