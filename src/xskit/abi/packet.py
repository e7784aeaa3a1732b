"""Packet sockets, from linux/if_packet.h."""

from __future__ import annotations

SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP = 1
PACKET_MR_PROMISC = 1
