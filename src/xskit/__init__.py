"""AF_XDP for Python: XDP sockets, a network link emulator built on them, and benchmarks that prove both.

The public names. Each is imported when it is first used, so that `import xskit` costs nothing and only what moves
packets loads the compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xskit.emulator.emulator import Emulator
    from xskit.emulator.link import Link, LinkDirection
    from xskit.emulator.packet_mix import PacketMix
    from xskit.emulator.plan import LinkPlan, plan
    from xskit.emulator.ports import LinkSpec, PortSpec
    from xskit.emulator.report import Report
    from xskit.emulator.settings import DirectionSettings, EngineSettings, LinkSettings
    from xskit.errors import DeviceError, KernelError, PrivilegeError, UsageError, XskitError
    from xskit.lab.host import Host
    from xskit.lab.lab import Lab, LabLink
    from xskit.xsk.batch import Batch
    from xskit.xsk.packet import Packet
    from xskit.xsk.port import Port
    from xskit.xsk.socket import Socket
    from xskit.xsk.umem import Umem

_HOME = {
    "Batch": "xskit.xsk.batch",
    "DeviceError": "xskit.errors",
    "DirectionSettings": "xskit.emulator.settings",
    "Emulator": "xskit.emulator.emulator",
    "EngineSettings": "xskit.emulator.settings",
    "Host": "xskit.lab.host",
    "KernelError": "xskit.errors",
    "Lab": "xskit.lab.lab",
    "LabLink": "xskit.lab.lab",
    "Link": "xskit.emulator.link",
    "LinkDirection": "xskit.emulator.link",
    "LinkPlan": "xskit.emulator.plan",
    "LinkSettings": "xskit.emulator.settings",
    "LinkSpec": "xskit.emulator.ports",
    "Packet": "xskit.xsk.packet",
    "PacketMix": "xskit.emulator.packet_mix",
    "Port": "xskit.xsk.port",
    "PortSpec": "xskit.emulator.ports",
    "PrivilegeError": "xskit.errors",
    "Report": "xskit.emulator.report",
    "Socket": "xskit.xsk.socket",
    "Umem": "xskit.xsk.umem",
    "UsageError": "xskit.errors",
    "XskitError": "xskit.errors",
    "plan": "xskit.emulator.plan",
}

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "DeviceError",
    "DirectionSettings",
    "Emulator",
    "EngineSettings",
    "Host",
    "KernelError",
    "Lab",
    "LabLink",
    "Link",
    "LinkDirection",
    "LinkPlan",
    "LinkSettings",
    "LinkSpec",
    "Packet",
    "PacketMix",
    "Port",
    "PortSpec",
    "PrivilegeError",
    "Report",
    "Socket",
    "Umem",
    "UsageError",
    "XskitError",
    "__version__",
    "plan",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'xskit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
