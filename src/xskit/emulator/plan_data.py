"""What a plan of links consists of: sizes of packets, rings, the kernel's memory and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from xskit.emulator.sizing import MemoryPlan

SCHEMA = 1


@dataclass(frozen=True)
class SizeRow:
    """Both directions full of packets of one size.

    Attributes:
        packet_bytes: with Ethernet header, without FCS.
        frames_per_packet: each in whole frames.
        packets: in flight in both directions of all links; None without a rate.
        frames: that they take.
        held_bytes: memory of these frames.
        packed_bytes: the packets themselves, end to end.
        covered: the planned memory holds them.
    """

    packet_bytes: float
    frames_per_packet: float
    packets: int | None
    frames: int | None
    held_bytes: int | None
    packed_bytes: int | None
    covered: bool


@dataclass(frozen=True)
class Rings:
    """Entries of the rings of each queue; `hardware`: of the NIC's RX ring where zero copy may come to use it."""

    rx: int
    tx: int
    fill: int
    completion: int
    hardware: int
    bytes: int
    """Of all rings of all ports."""


@dataclass(frozen=True)
class KernelMemory:
    """What the kernel keeps for the packet memory, in bytes.

    Attributes:
        heads: 128 bytes a frame for each (port, queue) (struct xdp_buff_xsk).
        heads_allocated: what it takes for them: powers of two up to 4 MiB (kmalloc), multiples of 2 MiB above
            (vmalloc with huge pages, Linux 5.18).
        page_lists: for each port a pointer to each page, and the page tables of the kernel's own view of the memory
            (xdp_umem_pin_pages, xdp_umem_addr_map).
        rings: of all ports.
    """

    heads: int
    heads_allocated: int
    page_lists: int
    rings: int

    @property
    def total(self) -> int:
        """All of it, as allocated."""
        return self.heads_allocated + self.page_lists + self.rings


@dataclass(frozen=True)
class Limit:
    """These kernels, as in `< 5.6`, cannot register more than `largest_bytes`."""

    kernels: str
    largest_bytes: int
    fits: bool
    why: str


@dataclass(frozen=True)
class PagePoolPlan:
    """What each veth keeps for native XDP, from the kernel's page pool, once packets have come.

    What lies in several pieces, as all of TCP does, or lacks headroom for XDP, as most of what a host sends, veth
    copies into pages of a pool (veth_convert_skb_to_xdp_buff, Linux 6.3). They come back as soon as AF_XDP has copied
    the packet out: what is in flight in an emulator takes none, and the pool never needs more than the pages that it
    takes at once. Generic mode and a NIC's ports take none.
    """

    pages_per_packet: int
    pages_per_queue: int
    bytes_per_port: int


@dataclass(frozen=True)
class PlanRecord:
    """The plan of links, as data. `LinkPlan` says what each field is, and adds the forms that it is shown in."""

    links: int
    ports: int
    queues: int
    mtu: int
    asked: dict[str, Any]
    memory: MemoryPlan
    sizes: list[SizeRow]
    rings: Rings
    kernel: KernelMemory
    hugepages: int
    memlock_bytes: int
    limits: list[Limit]
    page_pool: PagePoolPlan
    total_bytes: int
    schema: int = field(default=SCHEMA)
