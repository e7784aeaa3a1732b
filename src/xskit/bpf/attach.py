"""Attaching programs by bpf_link: what is attached goes when the link is closed or the process dies.

All of it happens in the network namespace of the calling thread.
"""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from enum import IntEnum
from weakref import WeakSet

from xskit._fork import not_inherited
from xskit.abi.bpf import AttachType
from xskit.abi.netlink import XdpAttachFlag
from xskit.bpf import netlink, syscall
from xskit.bpf.attach_errors import Circumstances, attach_error
from xskit.bpf.handle import Handle
from xskit.bpf.occupants import occupants
from xskit.bpf.program import Program
from xskit.errors import XskitError
from xskit.netlink import NetlinkError

__all__ = ["BpfLink", "XdpMode", "attach", "attach_tcx_egress", "detach_all"]

_links: WeakSet[BpfLink] = WeakSet()


class XdpMode(IntEnum):
    """Where in the receive path an XDP program runs."""

    NATIVE = XdpAttachFlag.DRV_MODE
    """In the driver, before the kernel makes its own packet structure: fast, not with every driver."""
    GENERIC = XdpAttachFlag.SKB_MODE
    """In the network stack, with every device, about a third as fast."""

    def __str__(self) -> str:
        return self.name.lower()


class BpfLink(Handle):
    """A program attached to an interface, until closed.  (The kernel's bpf_link, not a link between two ports.)"""

    def __init__(self, fd: int, program: str, ifindex: int, where: str) -> None:
        super().__init__(fd)
        self.program = program
        self.ifindex = ifindex
        self.where = where
        _links.add(self)
        not_inherited(self, BpfLink.close)  # it stays attached as long as the parent wants

    @property
    def id(self) -> int:
        """The kernel's number for it, as `bpftool link` shows it."""
        return int(struct.unpack_from("=I", syscall.object_info(self.fd, 8), 4)[0])

    @property
    def attached(self) -> bool:
        """Whether the program is still on the interface: anybody with CAP_SYS_ADMIN may detach it (BPF_LINK_DETACH)."""
        try:
            (ifindex,) = struct.unpack_from("=I", syscall.object_info(self.fd, 20), 16)  # bpf_link_info, xdp or tcx
        except (OSError, ValueError):
            if self.closed:  # perhaps only now, by another thread
                return False
            raise
        return bool(ifindex)

    def __repr__(self) -> str:
        return f"<BpfLink {self.program} on {self.ifindex}, {self.where}{', closed' if self.closed else ''}>"


def detach_all() -> None:
    """Detach what this process has attached."""
    for link in list(_links):
        link.close()


def attach(program: Program, ifindex: int, mode: XdpMode) -> BpfLink:
    """Attach an XDP program to an interface (BPF_LINK_CREATE, Linux 5.9; CAP_NET_ADMIN).

    Raises AttachError with the kernel's own words, or PrivilegeError.
    """
    try:
        fd = syscall.link_create(program.fd, ifindex, AttachType.XDP, mode)
    except OSError as error:
        raise _explained(error.errno or 0, program, ifindex, str(mode), _words(program, ifindex, mode, error)) from None
    return BpfLink(fd, program.spec.name, ifindex, str(mode))


def attach_tcx_egress(program: Program, ifindex: int) -> BpfLink:
    """Attach a SCHED_CLS program where packets leave the stack for an interface (tcx, Linux 6.6; CAP_NET_ADMIN).

    It is the last of the programs there.  Packets sent by AF_XDP do not pass it.  Raises as `attach` does.
    """
    try:
        fd = syscall.link_create(program.fd, ifindex, AttachType.TCX_EGRESS, 0)
    except OSError as error:
        raise _explained(error.errno or 0, program, ifindex, "tcx egress", None) from None
    return BpfLink(fd, program.spec.name, ifindex, "tcx egress")


def _words(program: Program, ifindex: int, mode: XdpMode, error: OSError) -> str | None:
    """The kernel's sentence, had by trying the same over netlink; should that work, it is undone at once."""
    if error.errno in (errno.EPERM, errno.ENODEV):
        return None
    flags = XdpAttachFlag(mode)
    try:
        netlink.set_xdp(ifindex, program.fd, flags | XdpAttachFlag.UPDATE_IF_NOEXIST)
    except NetlinkError as refusal:
        return refusal.words
    except OSError:
        return None
    with suppress(OSError):
        netlink.set_xdp(ifindex, -1, flags | XdpAttachFlag.REPLACE, expected_fd=program.fd)
    return None


def _explained(number: int, program: Program, ifindex: int, where: str, words: str | None) -> XskitError:
    interface = netlink.interface(ifindex)
    if interface is None:
        return attach_error(number, Circumstances(program.spec.name, None, ifindex, where))
    peer = netlink.interface(interface.peer_ifindex) if interface.peer_ifindex is not None else None
    return attach_error(
        number,
        Circumstances(
            program=program.spec.name,
            interface=interface.name,
            ifindex=ifindex,
            mode=where,
            kind=interface.kind,
            mtu_bytes=interface.mtu_bytes,
            peer=peer.name if peer else None,
            words=words,
            occupants=occupants(ifindex),
        ),
    )
