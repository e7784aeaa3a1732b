"""Packets with TCP and UDP checksums, partial and right, by a sum written a second time from RFC 1071."""

from __future__ import annotations

import struct
from dataclasses import dataclass

TCP, UDP, ICMP = 6, 17, 1
PLACE = {TCP: 16, UDP: 6}


def internet_sum(data: bytes) -> int:
    """RFC 1071: the one's complement sum of 16-bit words in network order, an odd byte padded with zero."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data[: len(data) // 2 * 2]))
    if len(data) % 2:
        total += data[-1] << 8
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@dataclass(frozen=True)
class Spec:
    """A packet to build."""

    version: int = 4
    protocol: int = TCP
    payload: bytes = b"payload"
    tags: tuple[int, ...] = ()
    options: bytes = b""
    fragment: int = 0
    trailer: bytes = b""
    source: bytes = bytes(range(1, 17))
    target: bytes = bytes(range(101, 117))

    @property
    def segment(self) -> bytes:
        """The TCP or UDP packet with a checksum of zero."""
        if self.protocol == UDP:
            return struct.pack(">HHHH", 1000, 2000, 8 + len(self.payload), 0) + self.payload
        return struct.pack(">HHIIBBHHH", 1000, 2000, 1, 2, 0x50, 0x10, 512, 0, 0) + self.payload

    @property
    def addresses(self) -> bytes:
        count = 4 if self.version == 4 else 16
        return self.source[:count] + self.target[:count]

    @property
    def pseudo(self) -> int:
        """The folded sum of the pseudo-header; in each version the same sum as of these bytes."""
        return internet_sum(self.addresses + struct.pack(">HH", self.protocol, len(self.segment)))

    @property
    def right(self) -> int:
        """The finished checksum; UDP has no zero."""
        total = internet_sum(struct.pack(">H", self.pseudo) + self.segment)
        result = total ^ 0xFFFF
        return 0xFFFF if result == 0 and self.protocol == UDP else result

    @property
    def headers(self) -> bytes:
        ether = bytes(12) + b"".join(struct.pack(">HH", tag, 7) for tag in self.tags)
        if self.version == 6:
            return ether + struct.pack(">HIHBB", 0x86DD, 6 << 28, len(self.segment), self.protocol, 64) + self.addresses
        words = 5 + len(self.options) // 4
        length = 4 * words + len(self.segment)
        fixed = struct.pack(">HBBHHHBBH", 0x0800, 0x40 | words, 0, length, 1, self.fragment, 64, self.protocol, 0)
        return ether + fixed + self.addresses + self.options

    def packet(self, checksum: int) -> bytes:
        segment, place = self.segment, PLACE.get(self.protocol, 2)
        whole = segment[:place] + struct.pack(">H", checksum) + segment[place + 2 :]
        return self.headers + whole + self.trailer
