"""Programs on the kernel's raw tracepoints: called with the tracepoint's own arguments, 64 bits each."""

from __future__ import annotations

import errno

from xskit.bpf import syscall
from xskit.bpf.errors import refused
from xskit.bpf.handle import Handle
from xskit.bpf.program import Program

__all__ = ["attach_tracepoint"]

_REFUSALS: dict[int | None, str] = {
    errno.ENOENT: "this kernel has no such tracepoint",
    errno.EINVAL: "the kernel was built without CONFIG_BPF_EVENTS",
}


def attach_tracepoint(program: Program, name: str) -> Handle:
    """Call a program of type RAW_TRACEPOINT whenever the tracepoint is passed, until the handle is closed.

    Raises:
        BpfError: there is no such tracepoint.
        PrivilegeError: CAP_PERFMON is missing.
    """
    try:
        return Handle(syscall.raw_tracepoint_open(name, program.fd))
    except OSError as error:
        raise refused(f"attaching to tracepoint {name}", error, why=_REFUSALS.get(error.errno)) from None
