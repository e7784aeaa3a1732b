"""Packets from parts: Ethernet, IPv4, IPv6 and UDP headers, and the Internet checksum.

    ethernet(ipv4(udp(b"hello", "10.0.0.1", "10.0.0.2", 1000, 2000), "10.0.0.1", "10.0.0.2"), source, destination)

For tests and tools that make a packet now and then; per-packet code works on bytes in place.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address, ip_address

__all__ = [
    "checksum",
    "ethernet",
    "ipv4",
    "ipv6",
    "mac",
    "pseudo_header",
    "transport_checksum_holds",
    "udp",
    "udp_packet",
]

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_VLAN = 0x8100
PROTOCOL_TCP = 6
PROTOCOL_UDP = 17

Address = str | IPv4Address | IPv6Address

_ETHERNET = struct.Struct("!6s6sH")
_VLAN = struct.Struct("!6s6sHHH")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_UDP = struct.Struct("!HHHH")


def mac(text: str | bytes) -> bytes:
    """`02:00:00:00:00:01` as 6 bytes. Raises ValueError."""
    raw = bytes.fromhex(text.replace(":", "")) if isinstance(text, str) else text
    if len(raw) != 6:
        raise ValueError(f"a MAC address has 6 bytes, not {len(raw)}")
    return raw


def checksum(data: bytes, initial: int = 0) -> int:
    """The Internet checksum of `data` (RFC 1071): the complement of the one's complement sum of 16-bit words.

    `initial` is a sum to go on from. Over data that contains its own valid checksum the result is 0.
    """
    padded = data + b"\0" if len(data) % 2 else data
    total: int = initial + sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo_header(source: Address, destination: Address, protocol: int, length: int) -> bytes:
    """What TCP and UDP add to their checksum: RFC 9293 section 3.1 for IPv4, RFC 8200 section 8.1 for IPv6."""
    sender, receiver = ip_address(source), ip_address(destination)
    if sender.version == 4:
        return struct.pack("!4s4sBBH", sender.packed, receiver.packed, 0, protocol, length)
    return struct.pack("!16s16sIHBB", sender.packed, receiver.packed, length, 0, 0, protocol)


def udp(payload: bytes, source: Address, destination: Address, source_port: int, destination_port: int) -> bytes:
    """A UDP datagram with its checksum (RFC 768); the addresses are part of the sum."""
    length = _UDP.size + len(payload)
    bare = _UDP.pack(source_port, destination_port, length, 0) + payload
    value = checksum(pseudo_header(source, destination, PROTOCOL_UDP, length) + bare) or 0xFFFF
    return _UDP.pack(source_port, destination_port, length, value) + payload


def ipv4(
    payload: bytes,
    source: Address,
    destination: Address,
    *,
    protocol: int = PROTOCOL_UDP,
    ttl: int = 64,
    tos: int = 0,
    identification: int = 0,
) -> bytes:
    """An IPv4 packet without options (RFC 791). `tos` holds DSCP and, in its low two bits, ECN."""
    ends = IPv4Address(source).packed, IPv4Address(destination).packed
    fixed = (0x45, tos, _IPV4.size + len(payload), identification, 0x4000, ttl, protocol)
    return _IPV4.pack(*fixed, checksum(_IPV4.pack(*fixed, 0, *ends)), *ends) + payload


def ipv6(
    payload: bytes,
    source: Address,
    destination: Address,
    *,
    protocol: int = PROTOCOL_UDP,
    hop_limit: int = 64,
    traffic_class: int = 0,
) -> bytes:
    """An IPv6 packet without extension headers (RFC 8200)."""
    first = 6 << 28 | traffic_class << 20
    ends = IPv6Address(source).packed, IPv6Address(destination).packed
    return _IPV6.pack(first, len(payload), protocol, hop_limit, *ends) + payload


def ethernet(
    payload: bytes,
    source: str | bytes,
    destination: str | bytes,
    *,
    ethertype: int | None = None,
    vlan: int | None = None,
) -> bytes:
    """An Ethernet frame without its checksum (IEEE 802.3), with an 802.1Q tag where `vlan` is given.

    `ethertype` None: IPv4 or IPv6, as the payload's first byte says.
    """
    if ethertype is None:
        ethertype = ETHERTYPE_IPV6 if payload[:1] and payload[0] >> 4 == 6 else ETHERTYPE_IPV4
    if vlan is None:
        return _ETHERNET.pack(mac(destination), mac(source), ethertype) + payload
    return _VLAN.pack(mac(destination), mac(source), ETHERTYPE_VLAN, vlan, ethertype) + payload


def udp_packet(
    payload: bytes = b"",
    *,
    source: Address = "10.0.0.1",
    destination: Address = "10.0.0.2",
    source_port: int = 1000,
    destination_port: int = 2000,
    source_mac: str | bytes = "02:00:00:00:00:01",
    destination_mac: str | bytes = "02:00:00:00:00:02",
    length: int | None = None,
) -> bytes:
    """A whole packet: UDP in IP in Ethernet. With `length` the payload is padded, for a packet of so many bytes.

    Raises:
        ValueError: `length` is too small for the headers and the payload.
    """
    whole = ipv6 if ip_address(source).version == 6 else ipv4
    if length is not None:
        headers = _ETHERNET.size + (_IPV6.size if whole is ipv6 else _IPV4.size) + _UDP.size
        if length < headers + len(payload):
            raise ValueError(f"{length} bytes are too few for {headers} bytes of headers and {len(payload)} of payload")
        payload = payload.ljust(length - headers, b"\0")
    datagram = udp(payload, source, destination, source_port, destination_port)
    return ethernet(whole(datagram, source, destination), source_mac, destination_mac)


def transport_checksum_holds(packet: bytes) -> bool:
    """Whether the TCP or UDP checksum of an Ethernet packet is right; a UDP checksum of 0 over IPv4 counts as right.

    Raises:
        ValueError: no TCP or UDP packet without VLAN tag, IPv4 options or IPv6 extension headers.
    """
    if len(packet) < _ETHERNET.size + _IPV4.size:
        raise ValueError(f"{len(packet)} bytes are no IP packet")
    (ethertype,) = struct.unpack_from("!H", packet, 12)
    if ethertype == ETHERTYPE_IPV4 and packet[14] == 0x45:
        protocol, length, at = packet[23], struct.unpack_from("!H", packet, 16)[0] - _IPV4.size, 34
        source, destination = str(IPv4Address(packet[26:30])), str(IPv4Address(packet[30:34]))
    elif ethertype == ETHERTYPE_IPV6:
        protocol, length, at = packet[20], struct.unpack_from("!H", packet, 18)[0], 54
        source, destination = str(IPv6Address(packet[22:38])), str(IPv6Address(packet[38:54]))
    else:
        raise ValueError("neither plain IPv4 nor IPv6")
    if protocol not in (PROTOCOL_TCP, PROTOCOL_UDP):
        raise ValueError(f"protocol {protocol} is neither TCP nor UDP")
    body = packet[at : at + length]
    if protocol == PROTOCOL_UDP and ethertype == ETHERTYPE_IPV4 and body[6:8] == b"\0\0":
        return True
    return checksum(pseudo_header(source, destination, protocol, length) + body) == 0
