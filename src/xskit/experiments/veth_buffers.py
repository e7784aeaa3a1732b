"""What a buffer of veth's native XDP path holds, and what a packet costs in memory: full pages against half pages.

    |-- headroom --|-- NET_IP_ALIGN --|-- packet ... --|-- struct skb_shared_info --|     the first buffer
    |-- packet ..................................................................... |    each further one, 17 at most

veth turns an skb into an xdp_buff whose first buffer has room before and behind the packet (drivers/net/veth.c,
veth_convert_skb_to_xdp_buff). The RFC of 2023 proposed to cut each page into two such buffers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["FULL_PAGE", "HALF_PAGE", "HALF_PAGE_192", "PUBLISHED_LARGEST_MTU", "RFC_CAPACITY", "Buffers"]

ETHERNET_BYTES = 14
SHARED_INFO_BYTES = 320
"""struct skb_shared_info with 17 fragments, aligned to cache lines (x86-64)."""
MOST_FRAGMENTS = 17
"""MAX_SKB_FRAGS."""
PUBLISHED_LARGEST_MTU = 36_350


@dataclass(frozen=True)
class Buffers:
    """One way of cutting memory. Bytes; `align` is NET_IP_ALIGN, 0 on x86 and 2 on most others."""

    name: str
    size: int
    headroom: int
    align: int = 0

    @property
    def first(self) -> int:
        """Bytes of a packet that the first buffer holds."""
        return self.size - self.headroom - self.align - SHARED_INFO_BYTES

    @property
    def capacity(self) -> int:
        """Bytes of the longest packet."""
        return self.first + MOST_FRAGMENTS * self.size

    @property
    def largest_mtu(self) -> int:
        """As veth_xdp_set works it out: the capacity without the Ethernet header."""
        return self.capacity - ETHERNET_BYTES

    def count(self, mtu: int) -> int:
        """Buffers of a full-size packet."""
        rest = mtu + ETHERNET_BYTES - self.first
        return 1 + max(0, math.ceil(rest / self.size))

    def bytes_per_packet(self, mtu: int) -> int:
        """Memory of a full-size packet."""
        return self.count(mtu) * self.size


FULL_PAGE = Buffers("full page, headroom 256", 4096, 256)
HALF_PAGE = Buffers("half page, headroom 256", 2048, 256)
HALF_PAGE_192 = Buffers("half page, headroom 192", 2048, 192)
RFC_CAPACITY = Buffers("half page, headroom 192, NET_IP_ALIGN 2", 2048, 192, align=2)
"""17 x 2048 + 2048 - (192 + 2) - 320 = 36350: the published "largest MTU", a capacity with the Ethernet header."""
