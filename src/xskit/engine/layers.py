"""The way through a packet's headers to the transport checksum that a device was to finish.

    Ethernet, VLAN, MPLS, PPPoE, HSR -> IPv4, IPv6 and its extension headers -> TCP, SCTP
                   ^                          ^                              -> UDP -> VXLAN, Geneve, GTP, FOU, GUE
                   +--------------------------+---- GRE, IPIP, UDP tunnels <---+

Linux leaves one checksum of a packet to the device, usually the innermost, and computes those around it as if that one
were already finished (local checksum offload, Documentation/networking/checksum-offloads.rst). So a UDP datagram that
arrives with a correct checksum has nothing unfinished inside: what looks unfinished there is the sender's data.

Behind an unknown header the walk looks for an IP header that fits the length exactly. A partial checksum found that way
is reported and left unchanged.
"""

from __future__ import annotations

from xskit.engine.sums import fold, sum_bytes, sum_packet, swap, word
from xskit.jit import as_u8, i64, inlined
from xskit.xsk.path.lines import packet_line

NOTHING, UNFINISHED = 0, -1
"""Results of `find_partial`: there is nothing to finish, or something that cannot be finished."""

ETHERNET, IPV4, IPV6 = 0x6558, 0x0800, 0x86DD
PROTOCOLS = 0x10000
"""Layers are EtherTypes; from this number on, they are IP protocols."""
TCP, UDP, SCTP = PROTOCOLS + 6, PROTOCOLS + 17, PROTOCOLS + 132
OPAQUE = 0x20000
"""A layer that is not known here ..."""
END = 0x30000
"""... and one in which nothing is unfinished."""
MOST_HEADERS = 32
HIDDEN_BYTES = 64
"""How many bytes behind the start of an unknown header to look for an IP header."""


@inlined
def _step(layer: int, at: int) -> int:
    """What comes next, and where, in one number."""
    return (layer << 16) | at


@inlined
def _behind_link(address: int, at: int, reach: int, layer: int) -> int:
    """The step behind an EtherType's header: tags and labels, or Ethernet itself."""
    if layer == ETHERNET:
        return _step(word(address + at + 12), at + 14) if at + 14 <= reach else END << 16
    if layer in (0x8100, 0x88A8, 0x9100):
        return _step(word(address + at + 2), at + 4) if at + 4 <= reach else END << 16
    if layer == 0x892F:  # HSR (IEC 62439-3)
        return _step(word(address + at + 4), at + 6) if at + 6 <= reach else END << 16
    if layer == 0x8864 and at + 8 <= reach:  # a PPPoE session (RFC 2516)
        inside = word(address + at + 6)
        if inside == 0x0021:
            return _step(i64(IPV4), at + 8)
        return _step(i64(IPV6), at + 8) if inside == 0x0057 else END << 16
    if layer in (0x8847, 0x8848):  # MPLS (RFC 3032): labels, then IP, which its version tells
        while at + 4 <= reach:
            bottom = i64(as_u8(address + at)[2]) & 1
            at += 4
            if bottom:
                return _behind_version(address, at, reach)
        return END << 16
    if layer in (0x0806, 0x8035, 0x8863, 0x8808, 0x88CC, 0x88E5, 0x888E) or layer < 0x0600:
        return END << 16  # ARP, discovery, pause, LLDP, MACsec, 802.1X, LLC
    return _step(i64(OPAQUE), at)


@inlined
def _behind_version(address: int, at: int, reach: int) -> int:
    """The step where IP begins without an EtherType."""
    if at < reach:
        version = i64(as_u8(address + at)[0]) >> 4
        if version == 4:
            return _step(i64(IPV4), at)
        if version == 6:
            return _step(i64(IPV6), at)
    return _step(i64(OPAQUE), at)


@inlined
def _behind_protocol(address: int, at: int, reach: int, protocol: int) -> int:
    """The step behind the header of an IP protocol other than TCP, UDP and SCTP."""
    if protocol == 4:
        return _step(i64(IPV4), at)
    if protocol == 41:
        return _step(i64(IPV6), at)
    if at + 8 > reach:
        return END << 16
    octets = as_u8(address + at)
    following = PROTOCOLS + i64(octets[0])
    if protocol in (0, 43, 60, 135):  # IPv6 extension headers: RFC 8200, RFC 6275
        return _step(following, at + ((i64(octets[1]) + 1) << 3))
    if protocol == 44:  # a fragment; one that is whole goes on (RFC 6946)
        return END << 16 if word(address + at + 2) & 0xFFF9 else _step(following, at + 8)
    if protocol == 51:  # authentication (RFC 4302)
        return _step(following, at + ((i64(octets[1]) + 2) << 2))
    if protocol == 47:
        return _behind_gre(address, at, reach)
    if protocol == 137:  # MPLS in IP (RFC 4023)
        return _step(i64(0x8847), at)
    if protocol in (1, 2, 50, 58, 59):  # ICMP, IGMP, ESP, ICMPv6, nothing
        return END << 16
    return _step(i64(OPAQUE), at)


@inlined
def _behind_gre(address: int, at: int, reach: int) -> int:
    """RFC 2784, RFC 2890; ERSPAN as in draft-foschiano-erspan."""
    flags, kind = word(address + at), word(address + at + 2)
    if flags & 7:
        return _step(i64(OPAQUE), at)
    at += 4
    for bit in (0x8000, 0x2000, 0x1000):
        if flags & bit:
            at += 4
    if kind == 0x88BE:  # type I has no header of its own, and no sequence number
        return _step(i64(ETHERNET), at + (8 if flags & 0x1000 else 0))
    if kind == 0x22EB and at + 12 <= reach:
        return _step(i64(ETHERNET), at + (20 if i64(as_u8(address + at)[11]) & 1 else 12))
    return _step(kind, at)


@inlined
def _behind_udp(address: int, at: int, reach: int, end: int) -> int:
    """The step behind a UDP header: tunnels are recognized by their headers, because users choose the ports."""
    if at + 8 > reach:
        return END << 16
    octets = as_u8(address + at)
    first, second, kind = i64(octets[0]), i64(octets[1]), word(address + at + 2)
    if first == 8 and second == 0 and kind == 0 and octets[7] == 0:  # VXLAN (RFC 7348)
        return _step(i64(ETHERNET), at + 8)
    if (
        first >> 6 == 0 and second & 0x3F == 0 and kind in (ETHERNET, IPV4, IPV6) and octets[7] == 0
    ):  # Geneve (RFC 8926)
        return _step(kind, at + 8 + ((first & 0x3F) << 2))
    if first & 0xF8 == 0x30 and second == 0xFF and kind == end - at - 8:  # GTP-U (3GPP TS 29.281)
        return _behind_gtp(address, at, reach, first & 7)
    if first >> 4 == 4 and kind == end - at:  # FOU: IP itself
        return _step(i64(IPV4), at)
    if first >> 4 == 6 and word(address + at + 4) == end - at - 40:
        return _step(i64(IPV6), at)
    if first >> 5 == 0 and second in (4, 41, 47):  # GUE (draft-ietf-intarea-gue)
        return _step(PROTOCOLS + second, at + 4 + ((first & 0x1F) << 2))
    return _step(i64(OPAQUE), at)


@inlined
def _behind_gtp(address: int, at: int, reach: int, flags: int) -> int:
    """Optional fields are present if any flag is set; extension headers follow one another."""
    if flags == 0:
        return _behind_version(address, at + 8, reach)
    at += 12
    while at <= reach:
        if as_u8(address + at - 1)[0] == 0:
            return _behind_version(address, at, reach)
        if at >= reach or as_u8(address + at)[0] == 0:
            return END << 16
        at += i64(as_u8(address + at)[0]) << 2
    return END << 16


@inlined
def _addresses(address: int, at: int, layer: int) -> int:
    """The sum of both addresses of the IP header at `at`."""
    if layer == IPV4:
        return sum_bytes(address + at + 12, i64(8))
    return sum_bytes(address + at + 8, i64(32))


@inlined
def _routed(address: int, network: int, at: int, addresses: int) -> int:
    """The sum of both addresses where a routing header holds the last one (RFC 8200 section 8.1)."""
    octets = as_u8(address + at)
    kind, left = octets[2], octets[3]
    if left == 0 or octets[1] < 2 or kind not in (0, 2, 4):
        return addresses
    last = at + 8
    if kind == 0:
        last += ((i64(octets[1]) >> 1) - 1) << 4
    return fold(sum_bytes(address + network + 8, i64(16)) + sum_bytes(address + last, i64(16)))


@inlined
def _ip_ends(address: int, at: int, reach: int, layer: int, inner: int) -> int:
    """Where the IP packet at `at` ends, which may be beyond what came; 0 if no transport header follows.

    An `inner` packet lies inside another, and must be told from data that begins alike.
    """
    if at + 20 > reach:
        return 0
    version = i64(as_u8(address + at)[0])
    if layer == IPV4:
        header = (version & 15) << 2
        if version >> 4 != 4 or header < 20 or at + header > reach or word(address + at + 6) & 0x3FFF:
            return 0
        if inner and sum_bytes(address + at, header) != 0xFFFF:
            return 0
        return at + word(address + at + 2)
    if version >> 4 != 6 or at + 40 > reach:
        return 0
    return at + 40 + word(address + at + 4)


@inlined
def _hidden(address: int, first: int, reach: int, end: int) -> int:
    """Whether an IP header behind an unknown one has a partial checksum behind it: 1 or 0."""
    for at in range(first, min(first + HIDDEN_BYTES, reach - 28), 2):
        octets = as_u8(address + at)
        version = octets[0] >> 4
        if version == 4:
            header = (i64(octets[0]) & 15) << 2
            length = word(address + at + 2)
            if length != end - at or header < 20 or word(address + at + 6) & 0x3FFF or at + header + 18 > reach:
                continue
            if sum_bytes(address + at, header) != 0xFFFF:
                continue
            addresses, protocol = _addresses(address, at, i64(IPV4)), i64(octets[9])
        elif version == 6:
            header = 40
            length = word(address + at + 4) + 40
            if length != end - at or at + 58 > reach:
                continue
            addresses, protocol = _addresses(address, at, i64(IPV6)), i64(octets[6])
        else:
            continue
        if _is_partial(address, at + header, reach, length - header, addresses, protocol):
            return 1
    return 0


@inlined
def _is_partial(address: int, at: int, reach: int, length: int, addresses: int, protocol: int) -> int:
    """Whether the checksum field of a segment of so many bytes holds what a stack leaves to its device: 1 or 0."""
    if protocol == 132:
        if length < 16 or at + 12 > reach:
            return 0
        return 1 if word(address + at + 8) == 0 and word(address + at + 10) == 0 else 0
    if protocol == 6:
        least, place = 20, 16
    elif protocol == 17:
        least, place = 8, 6
    else:
        return 0
    if length < least or at + place + 2 > reach:
        return 0
    pseudo = fold(addresses + swap(protocol) + swap(length & 0xFFFF))
    return 1 if swap(word(address + at + place)) == pseudo else 0


@inlined
def find_partial(table: int, handle: int, below: int) -> int:
    """The innermost partial checksum of a packet that lies in a segment that begins before `below`.

    Headers are read in the first frame only. Returns the segment's offset, its length << 16 and its protocol << 36; or
    NOTHING; or UNFINISHED if one looks partial but is out of reach.
    """
    packet = packet_line(table, handle)
    address = packet.address
    span, whole = i64(packet.span), i64(packet.length)
    end = whole
    at, layer = i64(0), i64(ETHERNET)
    network = addresses = i64(0)
    outer = outer_length = outer_sum = i64(0)
    found = i64(NOTHING)
    for _ in range(MOST_HEADERS):
        reach = min(span, end)
        if layer in (IPV4, IPV6):
            ends = _ip_ends(address, at, reach, layer, network)
            if ends <= at or (network != 0 and ends > end):
                break
            network, end = at, ends
            addresses = _addresses(address, at, layer)
            octets = as_u8(address + at)
            if layer == IPV4:
                layer = PROTOCOLS + i64(octets[9])
                at += (i64(octets[0]) & 15) << 2
            else:
                layer = PROTOCOLS + i64(octets[6])
                at += 40
        elif layer in (TCP, UDP, SCTP):
            length = end - at
            if at >= below:
                break
            if _is_partial(address, at, reach, length, addresses, layer - PROTOCOLS):
                if end > whole:
                    return UNFINISHED
                if outer != 0 and fold(outer_sum + sum_packet(table, handle, outer, outer_length)) == 0xFFFF:
                    break
                found = at | (length << 16) | ((layer - PROTOCOLS) << 36)
            if layer != UDP or length < 8 or at + 8 > reach:
                break
            if found & 0xFFFF != at:
                outer = 0
                if word(address + at + 6) != 0 and end <= whole:
                    outer, outer_length = at, length
                    outer_sum = fold(addresses + swap(17) + swap(length & 0xFFFF))
            step = _behind_udp(address, at + 8, reach, end)
            layer, at = step >> 16, step & 0xFFFF
        elif layer == OPAQUE:
            if at >= below or not _hidden(address, at, reach, end):
                break
            if found != NOTHING:
                break
            if outer != 0 and fold(outer_sum + sum_packet(table, handle, outer, outer_length)) == 0xFFFF:
                break
            return UNFINISHED
        elif layer == END:
            break
        elif layer >= PROTOCOLS:
            if layer == PROTOCOLS + 43 and at + 24 <= reach:
                addresses = _routed(address, network, at, addresses)
            step = _behind_protocol(address, at, reach, layer - PROTOCOLS)
            layer, at = step >> 16, step & 0xFFFF
        else:
            step = _behind_link(address, at, reach, layer)
            layer, at = step >> 16, step & 0xFFFF
    return found
