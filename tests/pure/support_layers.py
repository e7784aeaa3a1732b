"""Packets inside packets: every way in which a test encloses a packet of `support_checksums`, and SCTP.

Each function takes the bytes of what is inside and gives the bytes with one more header. What is left to a device stays
as it was; UDP headers get a checksum as Linux gives it, which holds once the inner checksum is finished.
"""

from __future__ import annotations

import struct

from tests.pure.support_checksums import internet_sum

SOURCE4, TARGET4 = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
SOURCE6, TARGET6 = bytes(range(16)), bytes(range(100, 116))


def crc32c(data: bytes) -> int:
    """RFC 9260 appendix A, by polynomial division of the reflected bits."""
    remainder = 0xFFFF_FFFF
    for octet in data:
        remainder ^= octet
        for _ in range(8):
            remainder = remainder >> 1 ^ 0x82F6_3B78 if remainder & 1 else remainder >> 1
    return remainder ^ 0xFFFF_FFFF


def ethernet(kind: int, inside: bytes) -> bytes:
    return bytes(range(12)) + struct.pack(">H", kind) + inside


def ipv4(protocol: int, inside: bytes, options: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    head = struct.pack(">BBHHHBBH", 0x40 | words, 0, 4 * words + len(inside), 1, 0x4000, 64, protocol, 0)
    checksum = internet_sum(head + SOURCE4 + TARGET4 + options) ^ 0xFFFF
    return head[:10] + struct.pack(">H", checksum) + SOURCE4 + TARGET4 + options + inside


def ipv6(protocol: int, inside: bytes, target: bytes = TARGET6) -> bytes:
    return struct.pack(">IHBB", 6 << 28, len(inside), protocol, 64) + SOURCE6 + target + inside


def options_header(following: int, words: int = 0) -> bytes:
    """Hop-by-hop or destination options, with padding only."""
    length = 8 * words + 4
    return bytes([following, words, 1, length]) + bytes(length)


def routing_header(following: int, kind: int, left: int, addresses: list[bytes]) -> bytes:
    return bytes([following, 2 * len(addresses), kind, left]) + bytes(4) + b"".join(addresses)


def fragment_header(following: int, offset_and_more: int = 0) -> bytes:
    return struct.pack(">BBHI", following, 0, offset_and_more, 7)


def authentication_header(following: int) -> bytes:
    return bytes([following, 4]) + bytes(22)


def pseudo(version: int, protocol: int, length: int) -> int:
    """Of the addresses that `ipv4` and `ipv6` give."""
    addresses = SOURCE4 + TARGET4 if version == 4 else SOURCE6 + TARGET6
    return internet_sum(addresses + struct.pack(">HH", protocol, length))


def udp(version: int, port: int, inside: bytes, finished: bytes | None = None) -> bytes:
    """With a checksum that holds for what will be inside when it is finished; None: without a checksum."""
    head = struct.pack(">HHH", 5555, port, 8 + len(inside))
    if finished is None:
        return head + bytes(2) + inside
    total = pseudo(version, 17, 8 + len(inside))
    checksum = internet_sum(struct.pack(">H", total) + head + bytes(2) + finished) ^ 0xFFFF
    return head + struct.pack(">H", checksum or 0xFFFF) + inside


def tcp(checksum: int, payload: bytes) -> bytes:
    return struct.pack(">HHIIBBHHH", 1000, 2000, 1, 2, 0x50, 0x10, 512, checksum, 0) + payload


def segment(version: int, payload: bytes, *, finished: bool) -> bytes:
    """TCP over the addresses that `ipv4` and `ipv6` give, with its checksum partial or finished."""
    partial = pseudo(version, 6, 20 + len(payload))
    right = internet_sum(struct.pack(">H", partial) + tcp(0, payload)) ^ 0xFFFF
    return tcp(right if finished else partial, payload)


def sctp(payload: bytes, *, finished: bool) -> bytes:
    head = struct.pack(">HHI", 1000, 2000, 77)
    checksum = struct.pack("<I", crc32c(head + bytes(4) + payload)) if finished else bytes(4)
    return head + checksum + payload


def ip(version: int, protocol: int, inside: bytes) -> bytes:
    return ipv4(protocol, inside) if version == 4 else ipv6(protocol, inside)


def kind_of(version: int) -> int:
    """The EtherType."""
    return 0x0800 if version == 4 else 0x86DD


def gre(kind: int, inside: bytes, flags: int = 0) -> bytes:
    fields = sum(4 for bit in (0x8000, 0x2000, 0x1000) if flags & bit)
    return struct.pack(">HH", flags, kind) + bytes(fields) + inside


def geneve(kind: int, inside: bytes, options: bytes = b"") -> bytes:
    return struct.pack(">BBHI", len(options) // 4, 0, kind, 0x1234 << 8) + options + inside


def gtp(inside: bytes, optional: bytes = b"") -> bytes:
    flags = 0x34 if optional else 0x30
    return struct.pack(">BBHI", flags, 0xFF, len(optional) + len(inside), 9) + optional + inside
