"""Which capabilities (capabilities(7)) the calling thread has, and the sentence for one it lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from xskit.errors import PrivilegeError

__all__ = ["CAPABILITIES", "missing", "require"]

#: Bit numbers, linux/capability.h.
CAPABILITIES = {
    "CAP_KILL": 5,
    "CAP_NET_ADMIN": 12,
    "CAP_NET_RAW": 13,
    "CAP_IPC_LOCK": 14,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}


def missing(names: Iterable[str]) -> list[str]:
    """Those of `names` that are not in the calling thread's effective set (/proc/thread-self/status)."""
    status = Path("/proc/thread-self/status").read_text(encoding="ascii", errors="replace")
    effective = int(status.partition("CapEff:")[2].split(maxsplit=1)[0], 16)
    return [name for name in names if not effective >> CAPABILITIES[name] & 1]


def require(names: str | Iterable[str], purpose: str) -> None:
    """Do nothing if all capabilities are there.

    Raises:
        PrivilegeError: "`purpose` needs CAP_NET_ADMIN", with the command that has it.
    """
    lacking = missing([names] if isinstance(names, str) else names)
    if lacking:
        raise PrivilegeError(f"{purpose} needs {' and '.join(lacking)}", remedy=_with_sudo())


def _with_sudo() -> str:
    command = Path(sys.argv[0] or "xskit").name
    if command in {"-c", "__main__.py"}:
        command = "python3 ..."
    return " ".join(["sudo", command, *sys.argv[1:]])
