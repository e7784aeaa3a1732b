"""Partial checksums: recognise them on arrival, and finish them in software.

A packet that a stack hands to a veth or tap carries only the pseudo-header's sum in its TCP or UDP checksum field:
the device was to finish it (CHECKSUM_PARTIAL). It must be finished before a stage may corrupt the packet, and before
another stack, which would drop it, can see it. A field that equals the folded pseudo-header sum is taken for partial;
a packet whose right checksum happens to look so gets the same right checksum again.

RFC 1071 (the sum), RFC 768, RFC 9293 and RFC 8200 section 8.1 (the pseudo-headers).
"""

from __future__ import annotations

from xskit.engine.packets import NIL, packet_line
from xskit.jit import as_u8, as_u16, i64, inlined

ETHERNET_BYTES = 14


@inlined
def _word(address: int) -> int:
    """A 16-bit number in network order."""
    pair = as_u8(address)
    return (i64(pair[0]) << 8) | i64(pair[1])


@inlined
def _fold(total: int) -> int:
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@inlined
def _sum(address: int, length: int) -> int:
    """The folded one's complement sum of some bytes, in memory order (little endian)."""
    words = as_u16(address)
    total = 0
    for number in range(length >> 1):
        total += words[number]
    if length & 1:
        total += as_u8(address)[length - 1]
    return _fold(total)


@inlined
def _swap(value: int) -> int:
    return ((value & 0xFF) << 8) | (value >> 8)


@inlined
def _sum_packet(table: int, handle: int, start: int, length: int) -> int:
    """The same sum over `length` bytes of a packet from `start` on in its first frame, through all its frames."""
    packet = packet_line(table, handle)
    piece = min(i64(packet.span) - start, length)
    total = _sum(packet.address + start, piece)
    done = piece
    while done < length and packet.fragment != NIL:
        packet = packet_line(table, packet.fragment)
        piece = min(i64(packet.span), length - done)
        part = _sum(packet.address, piece)
        total = _fold(total + (_swap(part) if done & 1 else part))
        done += piece
    return total


@inlined
def finish_checksum(table: int, handle: int) -> int:
    """Finish the partial TCP or UDP checksum of a packet, whose headers lie in its first frame; 1 if it was one."""
    packet = packet_line(table, handle)
    address = packet.address
    span = i64(packet.span)
    kind = _word(address + 12)
    start = ETHERNET_BYTES
    while (kind == 0x8100 or kind == 0x88A8) and start + 4 <= span:
        kind = _word(address + start + 2)
        start += 4
    if kind == 0x0800 and span >= start + 20:
        header = (as_u8(address + start)[0] & 15) << 2
        if (_word(address + start + 6) & 0x3FFF) != 0:
            return 0
        protocol = i64(as_u8(address + start)[9])
        payload = _word(address + start + 2) - header
        addresses = _sum(address + start + 12, i64(8))
    elif kind == 0x86DD and span >= start + 40:
        header = 40
        protocol = i64(as_u8(address + start)[6])
        payload = _word(address + start + 4)
        addresses = _sum(address + start + 8, i64(32))
    else:
        return 0
    if protocol == 6:
        place = 16
    elif protocol == 17:
        place = 6
    else:
        return 0
    start += header
    if start + place + 2 > span or payload < place + 2 or start + payload > i64(packet.length):
        return 0
    pseudo = _fold(addresses + _swap(protocol) + _swap(payload & 0xFFFF))
    field = as_u16(address + start + place)
    if field[0] != pseudo:
        return 0
    result = _sum_packet(table, handle, start, payload) ^ 0xFFFF
    field[0] = 0xFFFF if result == 0 and protocol == 17 else result
    return 1
