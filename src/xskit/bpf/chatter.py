"""Recognizes packets that a host's kernel sends unasked. The program of an owned port drops and counts them.

- MLD reports and dones for groups that the kernel joins by itself, when an address or an interface comes or goes (RFC
  2710 and 3810): the solicited-node group of every address (ff02::1:ffXX:XXXX), all-routers where it forwards (ff02::2
  and ff05::2), and all-snoopers for a bridge (ff02::6a, RFC 4286).
- Router solicitations, when an interface comes up (RFC 4861, section 4.1).
- Neighbour solicitations from `::`, before an address is used: duplicate address detection (DAD; RFC 4862, section
  5.4).

Everything else may belong to a test. A report that names any other group was caused by a program that joined it. The
kernel sends MLD queries only if somebody set up a querier, and IGMP reports only for groups that a program
joined: it never reports 224.0.0.1 (RFC 3376, section 5). The hosts need other neighbour solicitations and all
advertisements to reach each other.
"""

from __future__ import annotations

import sys
from typing import Final

from xskit.abi.bpf import XdpMd
from xskit.bpf.asm import R0, R1, R2, R3, R4, R5, U8, U16, U32, U64, Assembler, Register

__all__ = ["MOST_RECORDS", "jump_if_chatter"]

MOST_RECORDS: Final = 64
"""MLDv2 records that are checked; a report with more is not chatter. 1500 bytes hold 72."""

_IPV4, _IPV6, _VLAN, _SERVICE_VLAN = 0x0800, 0x86DD, 0x8100, 0x88A8
_MOST_TAGS = 2

# Offsets from the Ethernet header; behind VLAN tags, the pointer has moved by their length.
_ETHERTYPE, _ETHERNET_BYTES = 12, 14
_NEXT_HEADER, _SOURCE, _PAYLOAD = 14 + 6, 14 + 8, 14 + 40
_HOP_BY_HOP_BYTES = 8
_MLD = _PAYLOAD + _HOP_BY_HOP_BYTES
_RECORD_COUNT, _RECORDS = _MLD + 6, _MLD + 8

_HOP_BY_HOP, _ICMPV6 = 0, 58
_MLD_REPORT, _MLD_DONE, _ROUTER_SOLICITATION, _NEIGHBOUR_SOLICITATION, _MLD2_REPORT = 131, 132, 133, 135, 143
_ROUTER_ALERT = bytes((_ICMPV6, 0, 5, 2, 0, 0, 1, 0))
"""The hop-by-hop header of MLD: a router alert (RFC 2711) with value 0, and padding."""

# An MLDv2 record without sources: type, length of auxiliary data, number of sources (2 bytes), group.
_AUXILIARY, _SOURCES, _GROUP, _RECORD_BYTES = 1, 2, 4, 20
_LINK_LOCAL, _SITE_LOCAL = 0xFF02, 0xFF05
_ALL_ROUTERS, _ALL_SNOOPERS = 0x02, 0x6A
_SOLICITED_NODE = 0x1FF  # above the last 24 bits of an address


def jump_if_chatter(a: Assembler, context: Register, chatter: str, other: str) -> None:
    """Jump to label `chatter` or `other`; `context` holds struct xdp_md. R0 to R5 are clobbered.

    An IPv4 packet costs seven instructions.
    """
    a.load(R2, context, XdpMd.DATA, U32)
    a.load(R3, context, XdpMd.DATA_END, U32)
    _load_ethertype(a, other)
    a.jump_if(R5, "==", _loaded(_IPV4), other)
    for tag in range(_MOST_TAGS):
        a.jump_if(R5, "==", _loaded(_VLAN), f"tag {tag}")
        a.jump_if(R5, "!=", _loaded(_SERVICE_VLAN), "no tag")
        a.label(f"tag {tag}")
        a.alu(R2, "+=", 4)
        _load_ethertype(a, other)
    a.label("no tag")
    a.jump_if(R5, "!=", _loaded(_IPV6), other)
    _require(a, _PAYLOAD + 8, other)
    a.load(R5, R2, _NEXT_HEADER, U8)
    a.jump_if(R5, "==", _HOP_BY_HOP, "hop by hop")
    a.jump_if(R5, "!=", _ICMPV6, other)

    a.load(R5, R2, _PAYLOAD, U8)
    a.jump_if(R5, "==", _ROUTER_SOLICITATION, chatter)
    a.jump_if(R5, "!=", _NEIGHBOUR_SOLICITATION, other)
    for half in (_SOURCE, _SOURCE + 8):
        a.load(R5, R2, half, U64)
        a.jump_if(R5, "!=", 0, other)
    a.jump(chatter)

    a.label("hop by hop")
    _jump_if_own_groups(a, chatter, other)


def _jump_if_own_groups(a: Assembler, chatter: str, other: str) -> None:
    """Jump to `chatter` if R2 points to an MLD report or done that names the kernel's own groups only."""
    _require(a, _RECORDS + 16, other)
    a.load(R5, R2, _PAYLOAD, U64)
    a.load_imm64(R4, int.from_bytes(_ROUTER_ALERT, sys.byteorder))
    a.jump_if(R5, "!=", R4, other)
    a.load(R5, R2, _MLD, U8)
    a.mov(R0, 0)
    a.jump_if(R5, "==", _MLD2_REPORT, "records")
    a.mov(R1, 1)
    a.alu(R2, "+=", _RECORDS - _GROUP)  # MLDv1: the group is there, with zeros before it, as in a record
    a.jump_if(R5, "==", _MLD_REPORT, "record")
    a.jump_if(R5, "==", _MLD_DONE, "record")
    a.jump(other)
    a.label("records")
    a.load(R1, R2, _RECORD_COUNT, U16)
    a.big_endian(R1, 16)
    a.alu(R2, "+=", _RECORDS)

    a.label("record")
    _require(a, _RECORD_BYTES, other)
    a.load(R5, R2, _AUXILIARY, U8)
    a.jump_if(R5, "!=", 0, other)
    a.load(R5, R2, _SOURCES, U16)
    a.jump_if(R5, "!=", 0, other)
    a.load(R5, R2, _GROUP + 2, U64)  # zero in all of them
    a.jump_if(R5, "!=", 0, other)
    a.load(R5, R2, _GROUP, U16)
    a.load(R4, R2, _GROUP + 8, U64)
    a.big_endian(R4, 64)
    a.jump_if(R5, "==", _loaded(_SITE_LOCAL), "routers")
    a.jump_if(R5, "!=", _loaded(_LINK_LOCAL), other)
    a.jump_if(R4, "==", _ALL_SNOOPERS, "own")
    a.mov(R5, R4)
    a.alu(R5, ">>=", 24)
    a.jump_if(R5, "==", _SOLICITED_NODE, "own")
    a.label("routers")
    a.jump_if(R4, "!=", _ALL_ROUTERS, other)
    a.label("own")
    a.alu(R2, "+=", _RECORD_BYTES)
    a.alu(R0, "+=", 1)
    a.jump_if(R0, ">=", R1, chatter)
    a.jump_if(R0, "<", MOST_RECORDS, "record")  # a bounded loop (Linux 5.3): R0 is known in each round
    a.jump(other)


def _load_ethertype(a: Assembler, other: str) -> None:
    """R5 = the EtherType behind R2, as it lies in memory."""
    _require(a, _ETHERNET_BYTES, other)
    a.load(R5, R2, _ETHERTYPE, U16)


def _require(a: Assembler, length_bytes: int, other: str) -> None:
    """Jump to `other` unless this many bytes lie between R2 and R3, the end."""
    a.mov(R4, R2)
    a.alu(R4, "+=", length_bytes)
    a.jump_if(R4, ">", R3, other)


def _loaded(value: int) -> int:
    """Two bytes in network order, as a load of U16 sees them."""
    return int.from_bytes(value.to_bytes(2, "big"), sys.byteorder)
