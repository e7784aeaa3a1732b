"""Sums over packets: the Internet checksum's one's complement sum, and the CRC32c of SCTP.

Both go through all the frames of a packet. RFC 1071, and RFC 9260 appendix A.
"""

from __future__ import annotations

from xskit.jit import as_u8, as_u16, i64, inlined
from xskit.xsk.path.lines import NIL, packet_line


@inlined
def word(address: int) -> int:
    """A 16-bit number in network order."""
    pair = as_u8(address)
    return (i64(pair[0]) << 8) | i64(pair[1])


@inlined
def fold(total: int) -> int:
    """A one's complement sum in 16 bits."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@inlined
def swap(value: int) -> int:
    """A 16-bit number with its bytes swapped."""
    return ((value & 0xFF) << 8) | (value >> 8)


@inlined
def sum_bytes(address: int, length: int) -> int:
    """The folded one's complement sum of some bytes, in memory order (little endian)."""
    words = as_u16(address)
    total = 0
    for number in range(length >> 1):
        total += words[number]
    if length & 1:
        total += as_u8(address)[length - 1]
    return fold(total)


@inlined
def sum_packet(table: int, handle: int, start: int, length: int) -> int:
    """The same sum over `length` bytes of a packet from `start` on in its first frame, through all its frames."""
    packet = packet_line(table, handle)
    piece = min(i64(packet.span) - start, length)
    total = sum_bytes(packet.address + start, piece)
    done = piece
    while done < length and packet.fragment != NIL:
        packet = packet_line(table, packet.fragment)
        piece = min(i64(packet.span), length - done)
        part = sum_bytes(packet.address, piece)
        total = fold(total + (swap(part) if done & 1 else part))
        done += piece
    return total


@inlined
def _crc32c(crc: int, address: int, length: int) -> int:
    """Bit by bit: SCTP whose checksum is left to us is rare, and a table would be one more thing in the cache."""
    octets = as_u8(address)
    for number in range(length):
        crc ^= i64(octets[number])
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc


@inlined
def crc32c_packet(table: int, handle: int, start: int, length: int) -> int:
    """The CRC32c of an SCTP packet whose checksum field is zero. The field holds it with the lowest byte first."""
    packet = packet_line(table, handle)
    piece = min(i64(packet.span) - start, length)
    crc = _crc32c(i64(0xFFFFFFFF), packet.address + start, piece)
    done = piece
    while done < length and packet.fragment != NIL:
        packet = packet_line(table, packet.fragment)
        piece = min(i64(packet.span), length - done)
        crc = _crc32c(crc, packet.address, piece)
        done += piece
    return crc ^ 0xFFFFFFFF
