"""Errors that explain: what the kernel means by an errno, call by call, as a table.

A line of the table says: when `call` fails with `errno` under `condition`, this is the cause and this mends it.
`explain` fills in the facts. The meanings are those of net/xdp/xsk.c, xsk_buff_pool.c and xdp_umem.c (Linux 6.18).
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import Enum

from xskit.errors import DeviceError, KernelError, PrivilegeError, Setting, XskitError

__all__ = ["EXPLANATIONS", "Call", "Explanation", "PortError", "SocketError", "explain"]


class SocketError(KernelError):
    """A system call on an AF_XDP socket failed; `errno` says how."""

    def __init__(self, cause: str, errno: int, *, remedy: str | None = None) -> None:
        super().__init__(cause, remedy=remedy)
        self.errno = errno


class PortError(DeviceError):
    """An interface or one of its queues cannot be used, or not any more; `errno` says why."""

    def __init__(self, cause: str, errno: int, *, remedy: str | None = None) -> None:
        super().__init__(cause, remedy=remedy)
        self.errno = errno


class Call(Enum):
    """What was asked of the kernel."""

    SOCKET = "socket"
    REGISTER = "XDP_UMEM_REG"
    RING = "setting a ring's size"
    MAP = "mapping a ring"
    OPTION = "setsockopt"
    BIND = "bind"
    SEND = "sendto"
    RECEIVE = "recvfrom"


@dataclass(frozen=True, slots=True)
class Explanation:
    """A cause and its remedy, both with the facts of `explain` in braces."""

    cause: str
    remedy: str | None = None
    device: bool = False
    """The interface is to blame, not the call."""


CAPABILITIES = "cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock"

EXPLANATIONS: dict[tuple[Call, int, str], Explanation] = {
    (Call.SOCKET, errno.EPERM, ""): Explanation(
        "opening an AF_XDP socket needs CAP_NET_RAW", f"sudo, or setcap {CAPABILITIES}+ep on the interpreter"
    ),
    (Call.SOCKET, errno.EAFNOSUPPORT, ""): Explanation(
        "this kernel has no AF_XDP sockets", "a kernel built with CONFIG_XDP_SOCKETS=y"
    ),
    (Call.SOCKET, errno.EMFILE, ""): Explanation(
        "this process has no file descriptor left for an AF_XDP socket", "ulimit -n 65536"
    ),
    (Call.REGISTER, errno.EINVAL, "headroom"): Explanation(
        "this kernel refuses a headroom of {headroom} bytes in frames of {frame_size}: it keeps 256 bytes before the "
        "packet and up to 448 behind it",
        "headroom={largest_headroom} or less",
    ),
    (Call.REGISTER, errno.EINVAL, "metadata"): Explanation(
        "this kernel has no TX metadata: it came with Linux 6.8", "tx_metadata_bytes=0"
    ),
    (Call.REGISTER, errno.EINVAL, ""): Explanation(
        "the kernel refuses packet memory of {frames} frames of {frame_size} bytes, for a reason xskit does not know",
        "dmesg",
    ),
    (Call.REGISTER, errno.EFAULT, ""): Explanation("the packet memory is not mapped, or not writable"),
    (Call.REGISTER, errno.ENOBUFS, ""): Explanation(
        "registering the packet memory locks {needed} bytes, and this user may lock {allowed} (RLIMIT_MEMLOCK)",
        "ulimit -l {needed_kib} (systemd: LimitMEMLOCK={needed}), or give CAP_IPC_LOCK",
    ),
    (Call.REGISTER, errno.ENOMEM, "list of pages"): Explanation(
        "this kernel cannot register {needed} bytes of packet memory: before Linux 5.14 it takes 2 GiB at most",
        "2 GiB of packet memory (fewer frames), or Linux 5.14",
    ),
    (Call.REGISTER, errno.ENOMEM, ""): Explanation(
        "the kernel cannot pin {needed} bytes of packet memory",
        "less packet memory (fewer frames), or a larger memory limit of the cgroup",
    ),
    (Call.REGISTER, errno.EBUSY, ""): Explanation("this socket has packet memory already"),
    (Call.RING, errno.EINVAL, ""): Explanation(
        "the {ring} ring cannot have {entries} entries: a power of two is needed", "{ring_argument}={nearest}"
    ),
    (Call.RING, errno.ENOMEM, ""): Explanation(
        "the kernel has no memory for a {ring} ring of {entries} entries", Setting("{ring_argument}", 2048)
    ),
    (Call.RING, errno.EBUSY, ""): Explanation("the {ring} ring must be made before the socket is bound"),
    (Call.MAP, errno.EINVAL, ""): Explanation("the {ring} ring is not there to be mapped"),
    (Call.MAP, errno.EAGAIN, ""): Explanation("mapping the {ring} ring would lock more memory than this process may"),
    (Call.OPTION, errno.ENOPROTOOPT, ""): Explanation("this kernel does not know the option {option}"),
    (Call.OPTION, errno.EACCES, "budget"): Explanation(
        "a transmit budget of {budget} packets is not between 32 and the TX ring's {entries} entries"
    ),
    (Call.BIND, errno.EINVAL, "no such queue"): Explanation(
        "{interface} has no queue {queue}: its queues are {queue_range}",
        "ethtool -L {interface} combined {needed_queues}",
        True,
    ),
    (Call.BIND, errno.EINVAL, "shared"): Explanation(
        "queue {queue} of {interface} cannot share the packet memory of the other socket: sockets of one queue share "
        "FILL and COMPLETION, others bring their own"
    ),
    (Call.BIND, errno.EINVAL, "multi-buffer"): Explanation(
        "packets of several frames are refused on queue {queue} of {interface}: multi-buffer came with Linux 6.6",
        Setting("multi_buffer", False),
        True,
    ),
    (Call.BIND, errno.EINVAL, "zero copy"): Explanation(
        "{interface} refuses zero copy on queue {queue}: an MTU too large for frames of {frame_size} bytes, or a "
        "driver that has it only in some configurations",
        Setting("mode", "native"),
        True,
    ),
    (Call.BIND, errno.EINVAL, ""): Explanation(
        "queue {queue} of {interface} cannot be bound: a ring is missing, or the driver refuses the MTU, the frame "
        "size ({frame_size} bytes) or the queue",
        "ip -details link show {interface}",
        True,
    ),
    (Call.BIND, errno.EOPNOTSUPP, ""): Explanation(
        "the driver of {interface} has no zero copy on queue {queue}", Setting("mode", "native"), True
    ),
    (Call.BIND, errno.EBUSY, ""): Explanation(
        "queue {queue} of {interface} is in use{holders}", "end that process, or use another queue", True
    ),
    (Call.BIND, errno.ENODEV, ""): Explanation(
        "there is no interface {interface} in this network namespace", "ip -brief link", True
    ),
    (Call.BIND, errno.ENETDOWN, ""): Explanation("{interface} is down", "ip link set {interface} up", True),
    (Call.BIND, errno.ENXIO, ""): Explanation(
        "the driver of {interface} gives queue {queue} to AF_XDP only under a native program",
        Setting("mode", "native"),
        True,
    ),
    (Call.BIND, errno.ENOMEM, ""): Explanation(
        "the kernel has no memory to describe {frames} frames on queue {queue} of {interface}: each takes 128 bytes",
        "less packet memory (fewer frames)",
    ),
    (Call.BIND, errno.EBADF, ""): Explanation("the socket whose packet memory is to be shared is not bound"),
    (Call.SEND, errno.ENETDOWN, ""): Explanation("{interface} is down", "ip link set {interface} up", True),
    (Call.SEND, errno.ENXIO, ""): Explanation(
        "{interface} is gone, or its driver has ended zero copy", "ip -brief link; then open the socket again", True
    ),
    (Call.SEND, errno.EINVAL, ""): Explanation("the TX metadata of a packet asks for what the kernel does not know"),
    (Call.RECEIVE, errno.ENETDOWN, ""): Explanation("{interface} is down", "ip link set {interface} up", True),
    (Call.RECEIVE, errno.ENXIO, ""): Explanation(
        "{interface} is gone", "ip -brief link; then open the socket again", True
    ),
}
"""(call, errno, condition) -> explanation; condition "" is the plain case."""


def explain(call: Call, error: OSError | int, condition: str = "", **facts: object) -> XskitError:
    """The error to raise for an errno of `call`.

    Args:
        call: what was tried.
        error: what the kernel answered.
        condition: a special case that the caller has recognised; falls back to the plain one.
        facts: what the sentence names: interface, queue, entries, ...
    """
    number = error if isinstance(error, int) else error.errno or 0
    found = EXPLANATIONS.get((call, number, condition)) or EXPLANATIONS.get((call, number, ""))
    if found is None:
        where = f" on {facts['interface']}" if "interface" in facts else ""
        name = errno.errorcode.get(number, str(number))
        return SocketError(f"{call.value} failed{where}: {name}: {os.strerror(number)}", number)
    cause = found.cause.format(**facts)
    remedy = found.remedy
    if isinstance(remedy, Setting):
        remedy = Setting(remedy.name.format(**facts), remedy.value, remedy.words)
    elif remedy:
        remedy = remedy.format(**facts)
    if number == errno.EPERM:
        return PrivilegeError(cause, remedy=remedy)
    if found.device:
        return PortError(cause, number, remedy=remedy)
    return SocketError(cause, number, remedy=remedy)
