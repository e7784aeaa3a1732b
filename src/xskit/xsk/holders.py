"""Which processes have AF_XDP sockets: named when a queue is busy.

Whoever uses such a socket has mapped its rings, and /proc/PID/maps shows them by offset. That also finds a process
that closed the socket and forgot a ring, which keeps the queue busy. The kernel tells only by sock_diag which queue a
socket is bound to, and that is often not built in (CONFIG_XDP_SOCKETS_DIAG): so these are the suspects, not the proof.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from xskit.abi.xdp import PageOffset

__all__ = ["holders"]

_OFFSETS = {f"{page:08x}" for page in (PageOffset.TX_RING, PageOffset.FILL_RING, PageOffset.COMPLETION_RING)}


def holders() -> list[str]:
    """`name (pid 123)` for each process with AF_XDP rings in its memory, as far as this process may look."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            if _has_rings(Path(entry.path)):
                name = Path(entry.path, "comm").read_text().strip()
                found.append((int(entry.name), "this process" if int(entry.name) == os.getpid() else name))
    return [f"{name} (pid {pid})" for pid, name in sorted(found)]


def _has_rings(process: Path) -> bool:
    with Path(process, "maps").open() as lines:
        return any("socket:[" in line and line.split()[2] in _OFFSETS for line in lines)
