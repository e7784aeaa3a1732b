"""The ethtool ioctl: features ("offloads"), channels and driver of an interface, through any socket of its namespace.

A feature is a kernel name such as tx-checksum-ip-generic. ethtool(8)'s own words (tx, tso, tx-checksumming, ...) stand
for patterns of them. Each feature has four bits: *available* (may be changed), *requested*, *active*, *never changed*.
"""

from __future__ import annotations

import ctypes
import fcntl
import struct
from dataclasses import dataclass
from fnmatch import fnmatchcase
from socket import socket

from xskit.abi import ethtool as abi
from xskit.netconf.names import request_name

__all__ = [
    "ALIASES",
    "DriverInfo",
    "Feature",
    "call",
    "carrier",
    "driver",
    "driver_info",
    "features",
    "matching",
    "queues",
    "rings",
    "set_features",
]

#: ethtool(8)'s words and the kernel features they stand for (ethtool.c, off_flag_def).
ALIASES = {
    "rx": "rx-checksum",
    "rx-checksumming": "rx-checksum",
    "tx": "tx-checksum-*",
    "tx-checksumming": "tx-checksum-*",
    "sg": "tx-scatter-gather*",
    "scatter-gather": "tx-scatter-gather*",
    "tso": "tx-tcp*-segmentation",
    "tcp-segmentation-offload": "tx-tcp*-segmentation",
    "gso": "tx-generic-segmentation",
    "generic-segmentation-offload": "tx-generic-segmentation",
    "gro": "rx-gro",
    "generic-receive-offload": "rx-gro",
    "lro": "rx-lro",
    "large-receive-offload": "rx-lro",
    "rxvlan": "rx-vlan-hw-parse",
    "rx-vlan-offload": "rx-vlan-hw-parse",
    "txvlan": "tx-vlan-hw-insert",
    "tx-vlan-offload": "tx-vlan-hw-insert",
    "ntuple": "rx-ntuple-filter",
    "ntuple-filters": "rx-ntuple-filter",
    "rxhash": "rx-hashing",
    "receive-hashing": "rx-hashing",
}


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of one interface: `number` is its bit, `fixed` that nobody can change it now."""

    name: str
    number: int
    requested: bool
    active: bool
    fixed: bool


def features(control: socket, interface: str) -> dict[str, Feature]:
    """All features of `interface` by kernel name. Raises OSError."""
    names = _feature_names(control, interface)
    blocks = (len(names) + 31) // 32
    request = abi.FEATURES_HEADER.pack(abi.ETHTOOL_GFEATURES, blocks) + bytes(abi.GET_BLOCK.size * blocks)
    answer = call(control, interface, request)
    found = {}
    for number, name in enumerate(names):
        available, requested, active, never = (
            word >> (number % 32) & 1
            for word in abi.GET_BLOCK.unpack_from(
                answer, abi.FEATURES_HEADER.size + abi.GET_BLOCK.size * (number // 32)
            )
        )
        if name:
            fixed = bool(never) or not available
            found[name] = Feature(name, number, bool(requested), bool(active), fixed)
    return found


def set_features(control: socket, interface: str, wanted: dict[str, bool]) -> None:
    """Request features by kernel name. The kernel may keep some as they are: read again. Raises OSError."""
    names = _feature_names(control, interface)
    blocks = [[0, 0] for _ in range((len(names) + 31) // 32)]
    for name, on in wanted.items():
        number = names.index(name)
        blocks[number // 32][0] |= 1 << number % 32
        blocks[number // 32][1] |= on << number % 32
    request = abi.FEATURES_HEADER.pack(abi.ETHTOOL_SFEATURES, len(blocks))
    call(control, interface, request + b"".join(abi.SET_BLOCK.pack(*block) for block in blocks))


def matching(word: str, known: dict[str, Feature]) -> list[str]:
    """The kernel names that `word` (ethtool's or the kernel's) stands for on this interface."""
    pattern = ALIASES.get(word, word)
    return [name for name in known if fnmatchcase(name, pattern)]


def queues(control: socket, interface: str) -> tuple[int, int] | None:
    """RX and TX queues in use (ethtool -l), or None where the driver does not say."""
    try:
        answer = call(control, interface, abi.CHANNELS.pack(abi.ETHTOOL_GCHANNELS, *[0] * 8))
    except OSError:
        return None
    *_, rx, tx, _, combined = abi.CHANNELS.unpack(answer)
    return rx + combined, tx + combined


def rings(control: socket, interface: str) -> tuple[int, int] | None:
    """Entries of each RX and TX ring of the hardware (ethtool -g), or None where the driver has none to tell of."""
    try:
        answer = call(control, interface, abi.RINGS.pack(abi.ETHTOOL_GRINGPARAM, *[0] * 8))
    except OSError:
        return None
    _, _, _, _, _, rx, _, _, tx = abi.RINGS.unpack(answer)
    return rx, tx


def carrier(control: socket, interface: str) -> bool | None:
    """Whether there is a carrier now, or None where the driver does not say (or the interface is gone)."""
    try:
        answer = call(control, interface, abi.LINK.pack(abi.ETHTOOL_GLINK, 0))
    except OSError:
        return None
    return bool(abi.LINK.unpack(answer)[1])


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """What ethtool -i says; "" where the driver does not."""

    name: str
    version: str
    firmware: str
    bus: str


def driver_info(control: socket, interface: str) -> DriverInfo:
    """The driver of `interface`, its firmware, and where the device is; all "" where there is no driver."""
    request = struct.pack("=I", abi.ETHTOOL_GDRVINFO).ljust(abi.DRIVER_INFO.size, b"\0")
    try:
        answer = call(control, interface, request)
    except OSError:
        return DriverInfo("", "", "", "")
    words = [raw.split(b"\0")[0].decode(errors="replace") for raw in abi.DRIVER_INFO.unpack(answer)[1:5]]
    return DriverInfo(*words)


def driver(control: socket, interface: str) -> str:
    """The driver's name (ethtool -i), or "" where there is none."""
    return driver_info(control, interface).name


def _feature_names(control: socket, interface: str) -> list[str]:
    request = abi.SET_INFO.pack(abi.ETHTOOL_GSSET_INFO, 0, 1 << abi.ETH_SS_FEATURES, 0)
    count = abi.SET_INFO.unpack(call(control, interface, request))[3]
    header = abi.STRINGS_HEADER.pack(abi.ETHTOOL_GSTRINGS, abi.ETH_SS_FEATURES, count)
    answer = call(control, interface, header + bytes(abi.ETH_GSTRING_LEN * count))
    starts = range(abi.STRINGS_HEADER.size, len(answer), abi.ETH_GSTRING_LEN)
    return [answer[at : at + abi.ETH_GSTRING_LEN].split(b"\0")[0].decode() for at in starts]


def call(control: socket, interface: str, request: bytes) -> bytes:
    """One request by ioctl(2); returns the answer, which has its length. Raises OSError."""
    buffer = ctypes.create_string_buffer(request, len(request))
    name = request_name(interface)
    fcntl.ioctl(control, abi.SIOCETHTOOL, abi.INTERFACE_REQUEST.pack(name, ctypes.addressof(buffer)))
    return buffer.raw
