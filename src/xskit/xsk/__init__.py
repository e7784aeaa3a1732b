"""AF_XDP: packet memory, rings, sockets, ports, and errors that explain.

Each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xskit.xsk.batch import Batch
    from xskit.xsk.errors import PortError, SocketError
    from xskit.xsk.packet import Packet
    from xskit.xsk.path.owner import FrameError, Owner
    from xskit.xsk.port import Port
    from xskit.xsk.socket import Socket
    from xskit.xsk.umem import Umem

_HOME = {
    "Batch": "batch",
    "FrameError": "path.owner",
    "Owner": "path.owner",
    "Packet": "packet",
    "Port": "port",
    "PortError": "errors",
    "Socket": "socket",
    "SocketError": "errors",
    "Umem": "umem",
}

__all__ = ["Batch", "FrameError", "Owner", "Packet", "Port", "PortError", "Socket", "SocketError", "Umem"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'xskit.xsk' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"xskit.xsk.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
