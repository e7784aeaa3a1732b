"""What a NIC can be told by the ethtool ioctl: channels, ring sizes, and rules that steer packets to queues."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from socket import socket

from xskit.abi import ethtool as abi
from xskit.netconf.ethtool import call

__all__ = ["FlowRule", "channels", "delete_rule", "insert_rule", "rule", "set_channels", "set_rings"]


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
    """Packets of an EtherType go to a queue (ethtool -N DEV flow-type ether proto TYPE action QUEUE loc LOCATION)."""

    ether_type: int
    queue: int
    location: int

    def pack(self) -> bytes:
        """As an ethtool_rxnfc that inserts it: only the type is compared."""
        header = abi.FLOW_ETHER.pack(b"", b"", struct.pack("!H", self.ether_type))
        mask = abi.FLOW_ETHER.pack(b"", b"", b"\xff\xff")
        return abi.FLOW.pack(
            abi.ETHTOOL_SRXCLSRLINS, 0, abi.ETHER_FLOW, header, b"", mask, b"", self.queue, self.location, 0
        )

    @classmethod
    def unpack(cls, answer: bytes) -> FlowRule | None:
        """From what the driver says; None for a rule of another kind."""
        _, _, kind, header, _, mask, _, queue, location, _ = abi.FLOW.unpack(answer)
        if kind != abi.ETHER_FLOW or abi.FLOW_ETHER.unpack_from(mask)[2] != b"\xff\xff":
            return None
        return cls(int.from_bytes(abi.FLOW_ETHER.unpack_from(header)[2], "big"), queue, location)


def insert_rule(control: socket, interface: str, wanted: FlowRule) -> None:
    """Add a rule, in place of another at its location. Raises OSError."""
    call(control, interface, wanted.pack())


def delete_rule(control: socket, interface: str, location: int) -> None:
    """Remove the rule at a location. Raises OSError."""
    call(control, interface, _at(abi.ETHTOOL_SRXCLSRLDEL, location))


def rule(control: socket, interface: str, location: int) -> FlowRule | None:
    """The rule at a location, None where there is none. Raises OSError where the driver knows no rules."""
    try:
        return FlowRule.unpack(call(control, interface, _at(abi.ETHTOOL_GRXCLSRULE, location)))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _at(command: int, location: int) -> bytes:
    return abi.FLOW.pack(command, 0, 0, b"", b"", b"", b"", 0, location, 0)
