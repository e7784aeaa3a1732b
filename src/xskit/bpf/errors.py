"""What can go wrong with bpf(2), as sentences."""

from __future__ import annotations

import errno as codes
import os
import sys

from xskit.errors import DeviceError, KernelError, PrivilegeError, XskitError

__all__ = ["AttachError", "BpfError", "VerifierError", "errno_name", "lacks_capability", "refused"]


class BpfError(KernelError):
    """bpf(2) failed; `errno` says how."""

    def __init__(self, cause: str, errno: int, *, remedy: str | None = None) -> None:
        super().__init__(cause, remedy=remedy)
        self.errno = errno


class VerifierError(BpfError):
    """The kernel's verifier refused a program; `log` is all that it said."""

    def __init__(self, cause: str, errno: int, log: str) -> None:
        super().__init__(cause, errno)
        self.log = log

    def __str__(self) -> str:
        return f"{self.cause}\n{self.log.rstrip()}"


class AttachError(DeviceError):
    """A program could not be attached; `errno` says how, `words` is the kernel's own explanation, if it gave one."""

    def __init__(self, cause: str, errno: int, *, words: str | None = None, remedy: str | None = None) -> None:
        super().__init__(cause, remedy=remedy)
        self.errno = errno
        self.words = words


def errno_name(errno: int) -> str:
    """`EBUSY` for 16."""
    return _NAMES.get(errno) or codes.errorcode.get(errno, str(errno))


# 524 has no name outside the kernel; Python's table has the C library's second name for 95.
_NAMES = {524: "ENOTSUPP", codes.EOPNOTSUPP: "EOPNOTSUPP"}


def lacks_capability(doing: str) -> PrivilegeError:
    """For EPERM: which capabilities `doing` needs, and how to get them."""
    python = os.path.realpath(sys.executable)
    return PrivilegeError(
        f"{doing} needs CAP_BPF and CAP_NET_ADMIN in the initial user namespace, and this process lacks them",
        remedy=f"run as root, or sudo setcap cap_bpf,cap_net_admin,cap_net_raw,cap_ipc_lock+ep {python}",
    )


def refused(doing: str, error: OSError, *, why: str | None = None, remedy: str | None = None) -> XskitError:
    """The error for a bpf(2) call that failed: `doing` ("creating map x") and, where it is known, `why`."""
    number = error.errno or 0
    if number == codes.EPERM:
        return lacks_capability(doing)
    if number == codes.ENOSYS:
        return BpfError(f"{doing} failed: this kernel, or the sandbox around this process, has no bpf(2)", number)
    if number in (codes.EMFILE, codes.ENFILE):
        remedy = "ulimit -n 65536"
    return BpfError(f"{doing} failed: {errno_name(number)}: {why or os.strerror(number)}", number, remedy=remedy)
