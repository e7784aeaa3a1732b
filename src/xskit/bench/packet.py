"""The packet that is sent: xdpsock's, byte for byte (bpf-examples, AF_XDP-example/xdpsock.c, gen_eth_hdr_data).

    Ethernet | 802.1Q? | IPv4 10.10.10.16 -> 10.10.10.32 | UDP 4096 -> 4096 | pktgen header? | pattern ...
                                                                              magic, number, seconds, microseconds
A size counts the 4 bytes of checksum that a NIC puts behind a packet, as xdpsock's does: 64 is the least that Ethernet
has, and the socket sees 60 bytes of it.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from xskit.arguments import literal, whole
from xskit.errors import UsageError
from xskit.xsk.headers import checksum, ethernet, ipv4, pseudo_header

FCS_BYTES = 4
PKTGEN_MAGIC = 0xBE9BE955
STAMP_BYTES = 16
SOURCE, DESTINATION = "10.10.10.16", "10.10.10.32"
UDP_PORT = 0x1000
DESTINATION_MAC, SOURCE_MAC = "3c:fd:fe:9e:7f:71", "ec:b1:d7:98:3a:c0"
PATTERN = 0x12345678

_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")

_TAG_BYTES, _ETHERNET_BYTES, _IP_BYTES, _UDP_BYTES = 4, 14, 20, 8
_PROTOCOL_UDP = 17


@dataclass(frozen=True)
class PacketSpec:
    """What packets look like. Size in bytes with the NIC's checksum; `vlan` an identifier, None: no tag."""

    size: int = 64
    vlan: int | None = None
    vlan_priority: int = 0
    destination: str = DESTINATION_MAC
    source: str = SOURCE_MAC
    pattern: int = PATTERN
    stamped: bool = False

    def __post_init__(self) -> None:
        least = max(64, self.stamp_offset + STAMP_BYTES + FCS_BYTES if self.stamped else 0)
        whole("--packet-size", self.size, least, 65_535, remedy="--packet-size {}")
        if self.vlan is not None:
            whole("--tx-vlan-id", self.vlan, 1, 4095, remedy="--tx-vlan-id {}")
        whole("--tx-vlan-pri", self.vlan_priority, 0, 7, remedy="--tx-vlan-pri {}")
        whole("--pattern", self.pattern, 0, 0xFFFF_FFFF, remedy="--pattern 0x12345678")
        for option, address in (("--tx-dmac", self.destination), ("--tx-smac", self.source)):
            if not isinstance(address, str) or not _MAC.fullmatch(address):
                raise UsageError(
                    f"{option} must be a MAC address, not {literal(address)}", remedy=f"{option} {DESTINATION_MAC}"
                )

    @property
    def length(self) -> int:
        """Bytes that the socket sees."""
        return self.size - FCS_BYTES

    @property
    def mtu(self) -> int:
        """The MTU that lets it through."""
        return self.length - _ETHERNET_BYTES - (_TAG_BYTES if self.vlan is not None else 0)

    @property
    def stamp_offset(self) -> int:
        """Where the pktgen header begins, or would."""
        return _ETHERNET_BYTES + (_TAG_BYTES if self.vlan is not None else 0) + _IP_BYTES + _UDP_BYTES

    def build(self) -> bytes:
        """The packet. With a pktgen header its UDP checksum is 0, "none" (RFC 768), because number and time change."""
        header = struct.pack("!IIII", PKTGEN_MAGIC, 0, 0, 0) if self.stamped else b""
        room = self.length - self.stamp_offset - len(header)
        word = (self.pattern & 0xFFFF_FFFF).to_bytes(4, "big")
        payload = header + (word * (room // 4 + 1))[:room]
        length = _UDP_BYTES + len(payload)
        bare = struct.pack("!HHHH", UDP_PORT, UDP_PORT, length, 0) + payload
        value = 0
        if not self.stamped:
            value = checksum(pseudo_header(SOURCE, DESTINATION, _PROTOCOL_UDP, length) + bare) or 0xFFFF
        datagram = struct.pack("!HHHH", UDP_PORT, UDP_PORT, length, value) + payload
        inner = ipv4(datagram, SOURCE, DESTINATION)
        tag = None if self.vlan is None else self.vlan | self.vlan_priority << 13
        return ethernet(inner, self.source, self.destination, vlan=tag)
