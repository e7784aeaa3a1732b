"""Route netlink in its rawest form: what is attached to an interface, and the kernel's words when it refuses.

BPF_LINK_CREATE gives an errno and nothing more; the same attach over netlink gives the driver's sentence with it
(extended ack, Linux 4.12).  Both act in the network namespace of the calling thread.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from xskit.abi import netlink as nl
from xskit.abi.netlink import XdpAttachFlag, XdpAttribute

__all__ = ["Interface", "Refusal", "interface", "parse_interface", "parse_refusal", "set_xdp"]

_ANSWER_BYTES = 1 << 16
_TIMEOUT_S = 10.0
_PROGRAM_ATTRIBUTES = {
    XdpAttribute.DRV_PROG_ID: "native",
    XdpAttribute.SKB_PROG_ID: "generic",
    XdpAttribute.HW_PROG_ID: "offloaded",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that failed: the errno, and the kernel's sentence if it gave one."""

    errno: int
    words: str | None


@dataclass(frozen=True, slots=True)
class Interface:
    """What RTM_GETLINK says of an interface, as far as attaching a program depends on it."""

    name: str
    kind: str | None
    """`veth`, `bridge`, ...; None for a physical device."""
    mtu_bytes: int
    peer_ifindex: int | None
    """The other end of a veth, where it is in the same network namespace."""
    programs: tuple[tuple[str, int], ...]
    """Attached XDP programs as (mode, program id)."""


def interface(ifindex: int) -> Interface | None:
    """Ask for an interface; None when there is none of that index.  Raises OSError for anything else."""
    answer = _ask(nl.RTM_GETLINK, nl.NLM_F_REQUEST, nl.LINK_HEADER.pack(0, 0, ifindex, 0, 0))
    if _header(answer)[0] == nl.NLMSG_ERROR:
        return None
    return parse_interface(answer)


def set_xdp(ifindex: int, program_fd: int, flags: XdpAttachFlag, expected_fd: int | None = None) -> Refusal | None:
    """Attach a program by netlink (-1: detach); None when it worked.  Such a program survives this process."""
    nested = _attribute(XdpAttribute.FD, struct.pack("=i", program_fd))
    nested += _attribute(XdpAttribute.FLAGS, struct.pack("=I", flags))
    if expected_fd is not None:
        nested += _attribute(XdpAttribute.EXPECTED_FD, struct.pack("=i", expected_fd))
    body = nl.LINK_HEADER.pack(0, 0, ifindex, 0, 0) + _attribute(nl.IFLA_XDP | nl.NLA_F_NESTED, nested)
    return parse_refusal(_ask(nl.RTM_SETLINK, nl.NLM_F_REQUEST | nl.NLM_F_ACK, body))


def parse_refusal(message: bytes) -> Refusal | None:
    """Read an NLMSG_ERROR; None when it is an acknowledgement."""
    kind, flags = _header(message)
    (result,) = struct.unpack_from("=i", message, nl.MESSAGE_HEADER.size)
    if kind != nl.NLMSG_ERROR or result == 0:
        return None
    # The header of the request follows, without its body (CAP_ACK), then the attributes.
    start = nl.MESSAGE_HEADER.size + 4 + nl.MESSAGE_HEADER.size
    words = None
    if flags & nl.NLM_F_ACK_TLVS:
        words = dict(_attributes(message[start:])).get(nl.NLMSGERR_ATTR_MSG)
    return Refusal(-result, words.rstrip(b"\0").decode(errors="replace") if words else None)


def parse_interface(message: bytes) -> Interface:
    """Read an RTM_NEWLINK."""
    found = dict(_attributes(message[nl.MESSAGE_HEADER.size + nl.LINK_HEADER.size :]))
    info = dict(_attributes(found.get(nl.IFLA_LINKINFO, b"")))
    xdp = dict(_attributes(found.get(nl.IFLA_XDP, b"")))
    kind = info.get(nl.IFLA_INFO_KIND)
    local = nl.IFLA_LINK in found and nl.IFLA_LINK_NETNSID not in found
    return Interface(
        name=found[nl.IFLA_IFNAME].rstrip(b"\0").decode(errors="replace"),
        kind=kind.rstrip(b"\0").decode() if kind else None,
        mtu_bytes=_u32(found[nl.IFLA_MTU]),
        peer_ifindex=_u32(found[nl.IFLA_LINK]) if local else None,
        programs=tuple((mode, _u32(xdp[key])) for key, mode in _PROGRAM_ATTRIBUTES.items() if key in xdp),
    )


def _ask(kind: int, flags: int, body: bytes) -> bytes:
    """Send one request in the calling thread's network namespace, and return the first message of the answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, nl.NETLINK_ROUTE) as netlink:
        netlink.settimeout(_TIMEOUT_S)
        netlink.setsockopt(nl.SOL_NETLINK, nl.NETLINK_EXT_ACK, 1)
        netlink.setsockopt(nl.SOL_NETLINK, nl.NETLINK_CAP_ACK, 1)
        netlink.bind((0, 0))
        netlink.send(nl.MESSAGE_HEADER.pack(nl.MESSAGE_HEADER.size + len(body), kind, flags, 1, 0) + body)
        answer = netlink.recv(_ANSWER_BYTES)
    (length,) = struct.unpack_from("=I", answer)
    return answer[:length]


def _header(message: bytes) -> tuple[int, int]:
    """(type, flags)."""
    _, kind, flags, _, _ = nl.MESSAGE_HEADER.unpack_from(message)
    return kind, flags


def _attribute(kind: int, payload: bytes) -> bytes:
    header = nl.ATTRIBUTE_HEADER.pack(nl.ATTRIBUTE_HEADER.size + len(payload), kind)
    return (header + payload).ljust(_aligned(len(header) + len(payload)), b"\0")


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, payload) of each attribute in a run of them."""
    at = 0
    while at + nl.ATTRIBUTE_HEADER.size <= len(data):
        length, kind = nl.ATTRIBUTE_HEADER.unpack_from(data, at)
        if length < nl.ATTRIBUTE_HEADER.size:
            return
        yield kind & nl.NLA_TYPE_MASK, data[at + nl.ATTRIBUTE_HEADER.size : at + length]
        at += _aligned(length)


def _aligned(size: int) -> int:
    return -(-size // 4) * 4


def _u32(raw: bytes) -> int:
    return int.from_bytes(raw, "little" if struct.pack("=H", 1)[0] else "big")
