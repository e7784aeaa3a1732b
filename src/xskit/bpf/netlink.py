"""What is attached to an interface, and the kernel's words when it refuses, by netlink.

BPF_LINK_CREATE gives an errno and nothing more; the same attach over netlink gives the driver's sentence with it
(extended ack, Linux 4.12).  Both act in the network namespace of the calling thread.
"""

from __future__ import annotations

import errno
import struct
import sys
from dataclasses import dataclass

from xskit.abi import netlink as nl
from xskit.abi.netlink import XdpAttachFlag, XdpAttribute
from xskit.netlink import Netlink, NetlinkError, attribute, attributes, nest, u32

__all__ = ["AttachTarget", "interface", "parse_interface", "set_xdp"]

_PROGRAM_ATTRIBUTES = {
    XdpAttribute.DRV_PROG_ID: "native",
    XdpAttribute.SKB_PROG_ID: "generic",
    XdpAttribute.HW_PROG_ID: "offloaded",
}


@dataclass(frozen=True, slots=True)
class AttachTarget:
    """What RTM_GETLINK says of an interface, as far as attaching a program depends on it."""

    name: str
    kind: str | None
    """`veth`, `bridge`, ...; None for a physical device."""
    mtu_bytes: int
    peer_ifindex: int | None
    """The other end of a veth, where it is in the same network namespace."""
    programs: tuple[tuple[str, int], ...]
    """Attached XDP programs as (mode, program id)."""


def interface(ifindex: int) -> AttachTarget | None:
    """Ask for an interface; None when there is none of that index.  Raises OSError for anything else."""
    with Netlink() as netlink:
        try:
            return parse_interface(netlink.request(nl.RTM_GETLINK, nl.LINK_HEADER.pack(0, 0, ifindex, 0, 0))[0])
        except NetlinkError as error:
            if error.errno == errno.ENODEV:
                return None
            raise


def set_xdp(ifindex: int, program_fd: int, flags: XdpAttachFlag, expected_fd: int | None = None) -> None:
    """Attach a program by netlink (-1: detach).  Such a program survives this process.

    Raises NetlinkError with the kernel's own words.
    """
    parts = [attribute(XdpAttribute.FD, struct.pack("=i", program_fd)), u32(XdpAttribute.FLAGS, flags)]
    if expected_fd is not None:
        parts.append(attribute(XdpAttribute.EXPECTED_FD, struct.pack("=i", expected_fd)))
    with Netlink() as netlink:
        netlink.request(nl.RTM_SETLINK, nl.LINK_HEADER.pack(0, 0, ifindex, 0, 0) + nest(nl.IFLA_XDP, parts))


def parse_interface(body: bytes) -> AttachTarget:
    """Read the body of an RTM_NEWLINK."""
    found = attributes(body, nl.LINK_HEADER.size)
    info = attributes(found.get(nl.IFLA_LINKINFO, b""))
    xdp = attributes(found.get(nl.IFLA_XDP, b""))
    kind = info.get(nl.IFLA_INFO_KIND)
    local = nl.IFLA_LINK in found and nl.IFLA_LINK_NETNSID not in found
    return AttachTarget(
        name=found[nl.IFLA_IFNAME].rstrip(b"\0").decode(errors="replace"),
        kind=kind.rstrip(b"\0").decode() if kind else None,
        mtu_bytes=_number(found[nl.IFLA_MTU]),
        peer_ifindex=_number(found[nl.IFLA_LINK]) if local else None,
        programs=tuple((mode, _number(xdp[key])) for key, mode in _PROGRAM_ATTRIBUTES.items() if key in xdp),
    )


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, sys.byteorder)
