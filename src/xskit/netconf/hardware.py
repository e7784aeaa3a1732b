"""What a NIC can be told by the ethtool ioctl: channels, ring sizes, and rules that steer packets to queues."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from socket import socket

from xskit.abi import ethtool as abi
from xskit.netconf.ethtool import call

__all__ = [
    "FlowRule",
    "OtherRule",
    "channels",
    "delete_rule",
    "insert_rule",
    "rule",
    "rule_locations",
    "set_channels",
    "set_rings",
]


def channels(control: socket, interface: str) -> int:
    """Combined channels in use (ethtool -l). Raises OSError."""
    return int(_channels(control, interface)[8])


def set_channels(control: socket, interface: str, combined: int) -> None:
    """So many combined channels (ethtool -L); the others stay as they are. Raises OSError."""
    values = _channels(control, interface)
    call(control, interface, abi.CHANNELS.pack(abi.ETHTOOL_SCHANNELS, *values[1:8], combined))


def _channels(control: socket, interface: str) -> tuple[int, ...]:
    return abi.CHANNELS.unpack(call(control, interface, abi.CHANNELS.pack(abi.ETHTOOL_GCHANNELS, *[0] * 8)))


def set_rings(control: socket, interface: str, rx: int, tx: int) -> None:
    """Entries of each RX and TX ring (ethtool -G). Raises OSError."""
    values = abi.RINGS.unpack(call(control, interface, abi.RINGS.pack(abi.ETHTOOL_GRINGPARAM, *[0] * 8)))
    request = abi.RINGS.pack(abi.ETHTOOL_SRINGPARAM, *values[1:5], rx, values[6], values[7], tx)
    call(control, interface, request)


@dataclass(frozen=True, slots=True)
class FlowRule:
    """Packets of an EtherType go to a queue (ethtool -N DEV flow-type ether proto TYPE action QUEUE loc LOCATION).

    `location` None, in a rule to insert: the driver chooses.
    """

    ether_type: int
    queue: int
    location: int | None

    def __str__(self) -> str:
        return f"EtherType {self.ether_type:#06x} to queue {self.queue}"

    def pack(self) -> bytes:
        """As an ethtool_rxnfc that inserts it: only the type is compared."""
        header = abi.FLOW_ETHER.pack(b"", b"", struct.pack("!H", self.ether_type))
        location = abi.RX_CLS_LOC_ANY if self.location is None else self.location
        return abi.FLOW.pack(
            abi.ETHTOOL_SRXCLSRLINS, 0, abi.ETHER_FLOW, header, b"", _TYPE_ONLY, b"", self.queue, location, 0
        )


@dataclass(frozen=True, slots=True)
class OtherRule:
    """A rule that compares something else than the EtherType alone; `kind` is its flow_type (linux/ethtool.h)."""

    kind: int
    location: int

    def __str__(self) -> str:
        return f"a rule of another kind (flow type {self.kind:#x})"


_TYPE_ONLY = abi.FLOW_ETHER.pack(b"", b"", b"\xff\xff")


def insert_rule(control: socket, interface: str, wanted: FlowRule) -> int:
    """Add a rule, in place of another at its location; returns where it lies. Raises OSError."""
    return _location(call(control, interface, wanted.pack()))


def delete_rule(control: socket, interface: str, location: int) -> None:
    """Remove the rule at a location. Raises OSError."""
    call(control, interface, _at(abi.ETHTOOL_SRXCLSRLDEL, location))


def rule(control: socket, interface: str, location: int) -> FlowRule | OtherRule | None:
    """The rule at a location, None where there is none. Raises OSError where the driver knows no rules."""
    try:
        answer = call(control, interface, _at(abi.ETHTOOL_GRXCLSRULE, location))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise
    _, _, kind, header, _, mask, _, queue, _, _ = abi.FLOW.unpack(answer)
    if kind != abi.ETHER_FLOW or mask[: abi.FLOW_ETHER.size] != _TYPE_ONLY:
        return OtherRule(kind, _location(answer))
    return FlowRule(int.from_bytes(abi.FLOW_ETHER.unpack_from(header)[2], "big"), queue, _location(answer))


def rule_locations(control: socket, interface: str) -> list[int]:
    """Where rules lie (ethtool -n). Raises OSError: EMSGSIZE when somebody adds one meanwhile."""
    count = _count(call(control, interface, _at(abi.ETHTOOL_GRXCLSRLCNT)))
    request = _at(abi.ETHTOOL_GRXCLSRLALL, count=count).ljust(abi.FLOW_LOCATIONS_OFFSET + 4 * count, b"\0")
    answer = call(control, interface, request)
    return list(struct.unpack_from(f"={_count(answer)}I", answer, abi.FLOW_LOCATIONS_OFFSET))


def _at(command: int, location: int = 0, count: int = 0) -> bytes:
    return abi.FLOW.pack(command, 0, 0, b"", b"", b"", b"", 0, location, count)


def _location(answer: bytes) -> int:
    return int(abi.FLOW.unpack_from(answer)[8])


def _count(answer: bytes) -> int:
    return int(abi.FLOW.unpack_from(answer)[9])
