"""Which capabilities (capabilities(7)) the calling thread has, and the sentence for one it lacks."""

from __future__ import annotations

import shlex
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

_SUDO_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")  # Debian's secure_path


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
        *others, last = lacking
        needed = f"{', '.join(others)} and {last}" if others else last
        raise PrivilegeError(f"{purpose} needs {needed}", remedy=_with_sudo())


def _with_sudo() -> str:
    """This process's command line as it can be typed: a command by its name, a script with its interpreter."""
    program = Path(sys.argv[0] if sys.argv else "xskit")
    if program.suffix or program.name.startswith("-") or not program.name:  # script.py, -m PACKAGE, -c CODE
        return shlex.join(["sudo", sys.executable or "python3", *sys.orig_argv[1:]])
    # sudo has a PATH of its own, without the virtual environment.
    name = str(program) if "/" in str(program) and str(program.parent) not in _SUDO_PATH else program.name
    return shlex.join(["sudo", name, *sys.argv[1:]])
