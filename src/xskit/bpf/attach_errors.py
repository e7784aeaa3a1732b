"""Why a program could not be attached: every errno of the kernel and its drivers, as one sentence and one remedy.

Pure: what is known of the interface comes in as `Circumstances`, so that every sentence can be tested without one.
Sources: net/core/dev.c (dev_xdp_attach), drivers/net/veth.c (veth_xdp_set) and the ndo_bpf of other drivers.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from xskit.bpf.errors import AttachError, errno_name, lacks_capability
from xskit.bpf.occupants import Occupant
from xskit.errors import Setting, XskitError

__all__ = ["MAX_VETH_MTU_BYTES", "Circumstances", "attach_error"]

MAX_VETH_MTU_BYTES = 3506
"""What a veth takes with a native program without frags, where pages have 4096 bytes (measured on 6.18)."""


_GENERIC = Setting("mode", "generic")
_MERGING = re.compile(r"\b[lg]ro(_hw)?\b")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What was tried, and what is known of the interface."""

    program: str
    interface: str | None
    """Name of the interface, None when there is none."""
    ifindex: int
    mode: str
    """`native`, `generic`, or `tcx egress`."""
    kind: str | None = None
    mtu_bytes: int = 0
    peer: str | None = None
    """Name of the other end of a veth, when it is in the same network namespace."""
    words: str | None = None
    """The kernel's own sentence."""
    occupants: tuple[Occupant, ...] = ()


def attach_error(number: int, at: Circumstances) -> XskitError:
    """The error for a failed attach: AttachError, or PrivilegeError for EPERM."""
    if number == errno.EPERM:
        return lacks_capability(f'attaching program "{at.program}"')
    if at.interface is None:
        cause = f"there is no interface with index {at.ifindex} in this network namespace"
        return AttachError(cause, number, remedy="ip link show")
    why, remedy = _reason(number, at)
    quoted = f' (the kernel: "{at.words}")' if at.words else ""
    cause = f'cannot attach program "{at.program}" to {at.interface} ({at.mode}): {errno_name(number)}: {why}{quoted}'
    return AttachError(cause, number, words=at.words, remedy=remedy)


def _reason(number: int, at: Circumstances) -> tuple[str, str | None]:
    """(why, remedy)."""
    words = (at.words or "").lower()
    match number:
        case errno.EBUSY | errno.EEXIST if at.occupants:
            return _occupied(at)
        case errno.EEXIST if "upper device" in words:
            return f"the bond or team above {at.interface} already has an XDP program", "attach to that device instead"
        case errno.EBUSY | errno.EEXIST:
            return "another XDP program was attached, and is gone by now", "try again"
        case errno.ERANGE if at.kind == "veth":
            return _veth_mtu(at)
        case errno.ENOSPC if at.kind == "veth":
            why = f"the peer of {at.interface} has more TX queues than {at.interface} has RX queues"
            return why, f"ethtool -L {at.peer or '<the peer>'} tx 1"
        case errno.ENOTCONN if at.kind == "veth":
            return f"the peer of {at.interface} is gone", f"ip link del {at.interface}, and make the pair anew"
        case errno.ENOMEM | errno.ENOSPC:
            return (
                "the driver has too few queues left for XDP, or the kernel no memory",
                f"ethtool -L {at.interface} combined <half of what ethtool -l shows>",
            )
        case errno.EOPNOTSUPP | errno.EINVAL if _MERGING.search(words):
            return "receive offloads are on that merge packets", f"ethtool -K {at.interface} lro off rx-gro-hw off"
        case errno.EOPNOTSUPP if at.mode == "native":
            return (
                f"the driver of {at.interface} has no native XDP, or not with the present settings",
                _GENERIC,
            )
        case errno.EINVAL | errno.ERANGE | errno.E2BIG if at.mode == "native" and at.mtu_bytes > 1500:
            return (
                f"the driver refuses, most likely because of the MTU of {at.mtu_bytes} bytes",
                Setting("mode", "generic", f"ip link set dev {at.interface} mtu 1500, or {{}}"),
            )
        case errno.EINVAL if at.mode.startswith("tcx"):
            return "this kernel has no tcx (it came with Linux 6.6)", "boot Linux 6.6 or later"
        case errno.EINVAL if at.mode == "native":
            return "the driver refuses its present settings, and does not say which", _GENERIC
        case errno.ENETDOWN:
            return f"{at.interface} is down, and this driver wants it up", f"ip link set dev {at.interface} up"
    return "the kernel gives no reason", None if at.mode != "native" else _GENERIC


def _occupied(at: Circumstances) -> tuple[str, str]:
    occupant = at.occupants[0]
    why = f"another XDP program ({occupant}) is attached to {at.interface}"
    if occupant.mode != at.mode and occupant.mode != "offloaded":
        why += ", and native and generic XDP exclude each other"
    if occupant.link_id is None:
        mode = {"native": "xdpdrv", "generic": "xdpgeneric", "offloaded": "xdpoffload"}[occupant.mode]
        return why, f"ip link set dev {at.interface} {mode} off"
    others = [(pid, name) for pid, name in occupant.holders if name != "this process"]
    if others:
        why += ", held there by " + " and ".join(f"process {pid} ({name})" for pid, name in others)
        return why, "kill " + " ".join(str(pid) for pid, _ in others)
    if occupant.holders:
        return why + ", held there by this process itself", "close the link of that program first"
    return why, f"bpftool link detach id {occupant.link_id}"


def _veth_mtu(at: Circumstances) -> tuple[str, str]:
    peer = at.peer or f"the peer of {at.interface}"
    why = (
        f"the MTU of {peer} is above the {MAX_VETH_MTU_BYTES} bytes that fit into one page, "
        "and the program does not take multi-buffer packets"
    )
    return why, f"ip link set dev {at.peer or '<the peer>'} mtu {MAX_VETH_MTU_BYTES}, or load the program with frags"
