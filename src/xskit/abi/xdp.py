"""AF_XDP sockets: what linux/if_xdp.h declares.

Sizes and values are those of Linux 6.18; where a name is younger than AF_XDP itself (4.18) the comment says so.
All structs are in the machine's byte order and have no padding.

```
bind(2)       struct sockaddr_xdp        16 bytes   SockaddrXdp
setsockopt    struct xdp_umem_reg        32 bytes   UmemReg
getsockopt    struct xdp_mmap_offsets   128 bytes   MmapOffsets
getsockopt    struct xdp_statistics      48 bytes   Statistics
RX and TX     struct xdp_desc            16 bytes   DESCRIPTOR;  FILL and COMPLETION hold bare u64 addresses
TX metadata   struct xsk_tx_metadata     24 bytes   TX_METADATA_BYTES
```
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum, IntFlag
from typing import ClassVar, Final

__all__ = [
    "AF_XDP",
    "DESCRIPTOR",
    "MAX_SKB_FRAGS",
    "PACKET_HEADROOM_BYTES",
    "SOL_XDP",
    "TX_METADATA_BYTES",
    "UNALIGNED_ADDRESS_MASK",
    "UNALIGNED_OFFSET_SHIFT",
    "BindFlag",
    "DescriptorOption",
    "MmapOffsets",
    "PageOffset",
    "RingFlag",
    "RingOffsets",
    "SockaddrXdp",
    "SocketOption",
    "Statistics",
    "TxMetadataFlag",
    "UmemFlag",
    "UmemReg",
    "XdpOption",
]

AF_XDP: Final = 44
"""Address family (linux/socket.h, 4.18); Python's `socket` has no name for it."""

SOL_XDP: Final = 283
"""Level of the socket options (linux/socket.h, 4.18)."""

PACKET_HEADROOM_BYTES: Final = 256
"""XDP_PACKET_HEADROOM (linux/bpf.h): what the kernel keeps free before a packet in its frame."""

MAX_SKB_FRAGS: Final = 17
"""CONFIG_MAX_SKB_FRAGS, default: a packet has at most this many further buffers in copy mode."""

UNALIGNED_OFFSET_SHIFT: Final = 48
"""XSK_UNALIGNED_BUF_OFFSET_SHIFT (5.4): in unaligned mode the bits above are the offset in the frame."""

UNALIGNED_ADDRESS_MASK: Final = (1 << UNALIGNED_OFFSET_SHIFT) - 1
"""XSK_UNALIGNED_BUF_ADDR_MASK (5.4)."""

DESCRIPTOR: Final = struct.Struct("=QII")
"""struct xdp_desc: address in the UMEM, length in bytes, DescriptorOption."""

TX_METADATA_BYTES: Final = 24
"""sizeof(struct xsk_tx_metadata) since launch time came (6.15): flags, then csum_start u16, csum_offset u16,
4 bytes of padding, launch_time u64; on completion the u64 after the flags is the send stamp."""


class SocketOption(IntEnum):
    """Options of level SOL_XDP."""

    MMAP_OFFSETS = 1
    RX_RING = 2
    TX_RING = 3
    UMEM_REG = 4
    UMEM_FILL_RING = 5
    UMEM_COMPLETION_RING = 6
    STATISTICS = 7
    OPTIONS = 8  # 5.3
    MAX_TX_SKB_BUDGET = 9  # 6.17: packets one sendto sends in copy mode, 32 unless set


class BindFlag(IntFlag):
    """sockaddr_xdp.sxdp_flags.  SHARED_UMEM may not be combined with any other."""

    NONE = 0  # zero copy where the driver can, and a silent copy where not: SocketOption.OPTIONS says which
    SHARED_UMEM = 1 << 0
    COPY = 1 << 1
    ZEROCOPY = 1 << 2
    USE_NEED_WAKEUP = 1 << 3  # 5.4
    USE_SG = 1 << 4  # 6.6: multi-buffer packets


class UmemFlag(IntFlag):
    """xdp_umem_reg.flags."""

    NONE = 0
    UNALIGNED_CHUNK = 1 << 0  # 5.4
    TX_SW_CSUM = 1 << 1  # 6.8: the kernel computes the checksum asked for in TX metadata in software (copy mode)
    TX_METADATA_LEN = 1 << 2  # 6.11: tx_metadata_len is valid; 6.8 to 6.10 take the field without it


class DescriptorOption(IntFlag):
    """xdp_desc.options."""

    PKT_CONTD = 1 << 0  # 6.6: the packet goes on in the next descriptor
    TX_METADATA = 1 << 1  # 6.8: struct xsk_tx_metadata lies tx_metadata_len bytes before the address


class RingFlag(IntFlag):
    """The `flags` word of the FILL and TX rings."""

    NEED_WAKEUP = 1 << 0  # 5.4


class XdpOption(IntFlag):
    """struct xdp_options, read by SocketOption.OPTIONS."""

    ZEROCOPY = 1 << 0  # 5.3: what a bind that forced nothing got


class TxMetadataFlag(IntFlag):
    """xsk_tx_metadata.flags."""

    TIMESTAMP = 1 << 0  # 6.8
    CHECKSUM = 1 << 1  # 6.8
    LAUNCH_TIME = 1 << 2  # 6.15


class PageOffset(IntEnum):
    """The `offset` by which mmap(2) tells the four rings of one socket apart."""

    RX_RING = 0
    TX_RING = 0x8000_0000
    FILL_RING = 0x1_0000_0000
    COMPLETION_RING = 0x1_8000_0000


@dataclass(frozen=True, slots=True)
class SockaddrXdp:
    """struct sockaddr_xdp: the address of bind(2)."""

    ifindex: int
    queue_id: int
    flags: BindFlag = BindFlag.NONE
    shared_umem_fd: int = 0

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("=HHIII")

    def pack(self) -> bytes:
        """16 bytes."""
        return self.LAYOUT.pack(AF_XDP, self.flags, self.ifindex, self.queue_id, self.shared_umem_fd)

    @classmethod
    def unpack(cls, raw: bytes) -> SockaddrXdp:
        family, flags, ifindex, queue_id, shared_umem_fd = cls.LAYOUT.unpack(raw)
        if family != AF_XDP:
            raise ValueError(f"address family {family} is not AF_XDP ({AF_XDP})")
        return cls(ifindex, queue_id, BindFlag(flags), shared_umem_fd)


@dataclass(frozen=True, slots=True)
class UmemReg:
    """struct xdp_umem_reg.  Older kernels take the first 24 bytes (`pack()[:24]`), without tx_metadata_len (6.8)."""

    address: int
    length_bytes: int
    chunk_size_bytes: int
    headroom_bytes: int = 0
    flags: UmemFlag = UmemFlag.NONE
    tx_metadata_bytes: int = 0

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("=QQIIII")

    def pack(self) -> bytes:
        """32 bytes, every one of them set: stray bytes in the last field are an EINVAL on 6.8 and later."""
        return self.LAYOUT.pack(*astuple(self))

    @classmethod
    def unpack(cls, raw: bytes) -> UmemReg:
        address, length, chunk, headroom, flags, metadata = cls.LAYOUT.unpack(raw)
        return cls(address, length, chunk, headroom, UmemFlag(flags), metadata)


@dataclass(frozen=True, slots=True)
class RingOffsets:
    """struct xdp_ring_offset: where in its map a ring keeps its three words and its first entry, in bytes."""

    producer: int
    consumer: int
    descriptors: int
    flags: int


@dataclass(frozen=True, slots=True)
class MmapOffsets:
    """struct xdp_mmap_offsets, in the layout of 5.4 and later (the one before had no `flags`)."""

    rx: RingOffsets
    tx: RingOffsets
    fill: RingOffsets
    completion: RingOffsets

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("=16Q")

    def pack(self) -> bytes:
        """128 bytes."""
        rings = (self.rx, self.tx, self.fill, self.completion)
        return self.LAYOUT.pack(*(word for ring in rings for word in astuple(ring)))

    @classmethod
    def unpack(cls, raw: bytes) -> MmapOffsets:
        words = cls.LAYOUT.unpack(raw)
        rx, tx, fill, completion = (RingOffsets(*words[at : at + 4]) for at in range(0, 16, 4))
        return cls(rx, tx, fill, completion)


@dataclass(frozen=True, slots=True)
class Statistics:
    """struct xdp_statistics, in packets since the socket was made unless a comment says otherwise."""

    rx_dropped: int  # larger than the frame, or another reason that has no counter
    rx_invalid_descriptors: int  # FILL entries that lie outside the UMEM
    tx_invalid_descriptors: int
    rx_ring_full: int  # 5.9
    rx_fill_ring_empty: int  # 5.9: how often FILL was found empty, not how many packets that cost
    tx_ring_empty: int  # 5.9: how often TX was found empty

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("=6Q")

    def pack(self) -> bytes:
        """48 bytes."""
        return self.LAYOUT.pack(*astuple(self))

    @classmethod
    def unpack(cls, raw: bytes) -> Statistics:
        return cls(*cls.LAYOUT.unpack(raw))
