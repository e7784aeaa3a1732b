"""The plan of links before they are made: the engine's own sizing, and all that it means for the machine.

rate, owd, queue, packets -> frames -> UMEM, packet table, stores     the engine's (sizing.py)
                                    -> buffer heads, page lists       the kernel's
                                    -> huge pages, locked memory, rings, which kernels take it
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xskit.arguments import literal, whole
from xskit.emulator.packet_mix import PacketMix
from xskit.emulator.plan_data import KernelMemory, Limit, PagePoolPlan, PlanRecord, Rings, SizeRow
from xskit.emulator.settings import DirectionSettings, EngineSettings, LinkSettings, read
from xskit.emulator.sizing import (
    HEADROOM_BYTES,
    HUGE_PAGE_BYTES,
    KERNEL_BYTES_PER_FRAME,
    PAGE_BYTES,
    MemoryPlan,
    PortFacts,
    check_mtu,
    fill_entries,
    in_flight,
    packets_held,
    plan_links,
)
from xskit.errors import Setting, UsageError

_MAX_PORTS = 1 << 16
_MAX_QUEUES = 1024
_MAX_RING = 1 << 20

__all__ = ["LinkPlan", "plan"]

POINTER_BYTES = 8
LARGEST_KMALLOC_BYTES = 4 << 20
"""KMALLOC_MAX_SIZE on x86 with pages of 4 KiB (include/linux/slab.h)."""
ADDRESS_BYTES, DESCRIPTOR_BYTES, RING_HEAD_BYTES = 8, 16, 320
"""An entry of FILL and COMPLETION, one of RX and TX, and what stands before them (struct xdp_ring)."""

LIFTED_LIMITS = (
    ("5.6", 16, "a table of all pages came from kmalloc (struct xdp_umem_page)"),
    ("5.14", POINTER_BYTES, "the list of pages came from kmalloc"),
)
"""Kernel that lifted a limit, bytes that it took for each page of the memory, and what the limit was."""
LARGEST_KVMALLOC_BYTES = (1 << 31) - 1
"""INT_MAX, since 5.15 (mm/util.c, "Don't even allow crazy sizes")."""

POOL_REFILL_PAGES = 64
"""PP_ALLOC_CACHE_REFILL (net/core/page_pool.c): a page pool takes so many pages at once from the page allocator."""
PAGE_POOL_USABLE_BYTES = PAGE_BYTES - HEADROOM_BYTES - 320
"""Of a page: without XDP's headroom and struct skb_shared_info."""

SIZES = (64, 512, 1518)
"""Packet sizes that a plan shows where nobody says what will come; and the longest."""


@dataclass(frozen=True)
class LinkPlan(PlanRecord):
    """The plan of links; as text, all of it.

    Attributes:
        memory: the engine's own: frames, bytes, each direction's share.
        sizes: what is in flight of packets of each size, held in frames and packed.
        rings: entries of each queue's rings, and the bytes of all.
        kernel: what the kernel keeps for the packet memory.
        hugepages: of 2 MiB, for hugetlb.
        memlock_bytes: what counts as locked memory without CAP_IPC_LOCK.
        limits: kernels that take no more than so much.
        page_pool: what veths keep.
        total_bytes: user and kernel memory.
    """

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        found["memory"] = self.memory.as_dict()
        found["kernel"]["total"] = self.kernel.total
        return found

    def __str__(self) -> str:
        from xskit.emulator.plan_text import text

        return text(self)


def plan(
    settings: LinkSettings | Mapping[str, Any],
    engine: EngineSettings | Mapping[str, Any] | None = None,
    *,
    mtu: int = 1500,
    ports: int = 2,
    queues: int = 1,
    hardware_ring: int = 0,
    mix: PacketMix | None = None,
) -> LinkPlan:
    """Plan links that all have the same settings, with the function by which the emulator sizes itself.

    An emulator that is given `memory.umem_bytes` as its memory has as many frames.

    Args:
        settings: of each link: {"rate": "10Gbit", "owd": "100ms", "reverse": {"rate": "1Gbit"}}.
        engine: how it will run: {"memory": "4GiB", "hugetlb": True}.
        mtu: of every port.
        ports: in all; two make a link.
        queues: of each port.
        hardware_ring: entries of the NIC's RX ring, where zero copy is expected.
        mix: what packets come; None: nobody knows.

    Raises:
        UsageError: a number that cannot be.
        SettingsError: an unknown key or an impossible value, the memory given cannot even fill the FILL rings, or a
            packet is longer than the MTU.
    """
    if not isinstance(settings, LinkSettings):
        settings = read(LinkSettings, settings)
    if not isinstance(engine, EngineSettings):
        engine = read(EngineSettings, {} if engine is None else engine)
    if not (mix is None or isinstance(mix, PacketMix)):
        raise UsageError(f"mix must be a PacketMix, not {literal(mix)}", remedy="mix=PacketMix({1518: 1})")
    _check(mtu, ports, queues, hardware_ring)
    port = PortFacts(mtu=mtu, rx_queues=queues, hardware_ring=hardware_ring)
    memory = plan_links([(settings, port, port)] * (ports // 2), engine, mix)
    fill = fill_entries(engine.ring_size, hardware_ring)
    ring_bytes = (
        ports
        * queues
        * (
            2 * (RING_HEAD_BYTES + engine.ring_size * DESCRIPTOR_BYTES)
            + (RING_HEAD_BYTES + engine.ring_size * ADDRESS_BYTES)
            + (RING_HEAD_BYTES + fill * ADDRESS_BYTES)
        )
    )
    kernel = _kernel_memory(memory, ports, queues, ring_bytes)
    user = memory.umem_bytes + memory.table_bytes + memory.stores_bytes
    return LinkPlan(
        links=ports // 2,
        ports=ports,
        queues=queues,
        mtu=mtu,
        asked={"forward": settings.forward.asked(port.longest), "reverse": settings.reverse.asked(port.longest)},
        memory=memory,
        sizes=_sizes(settings, memory, port.longest, ports // 2, mix),
        rings=Rings(engine.ring_size, engine.ring_size, fill, engine.ring_size, hardware_ring, ring_bytes),
        kernel=kernel,
        hugepages=math.ceil(memory.umem_bytes / HUGE_PAGE_BYTES),
        memlock_bytes=memory.umem_bytes * ports,
        limits=_limits(memory),
        page_pool=_page_pool(port.longest, queues),
        total_bytes=user + kernel.total,
    )


def _check(mtu: int, ports: int, queues: int, hardware_ring: int) -> None:
    check_mtu(mtu)
    if whole("ports", ports, 2, _MAX_PORTS) % 2:
        raise UsageError(f"ports must be even, two for each link, not {ports}", remedy=Setting("ports", ports + 1))
    whole("queues", queues, 1, _MAX_QUEUES)
    whole("hardware_ring", hardware_ring, 0, _MAX_RING)


def _sizes(
    settings: LinkSettings, memory: MemoryPlan, longest: int, links: int, mix: PacketMix | None
) -> list[SizeRow]:
    usable = memory.frame_size - HEADROOM_BYTES
    mixes = [PacketMix({size: 1}) for size in (*(size for size in SIZES if size < longest), longest)]
    if mix is not None:
        few = len(mix.counts) <= 8
        mixes = [
            *([PacketMix({size: 1}) for size in mix.counts] if few else []),
            *([mix] if len(mix.counts) > 1 else []),
        ]
    directions = (settings.forward, settings.reverse)
    return [_size_row(each, directions, memory, usable, longest, links) for each in mixes]


def _size_row(
    mix: PacketMix,
    directions: Sequence[DirectionSettings],
    memory: MemoryPlan,
    usable: int,
    longest: int,
    links: int,
) -> SizeRow:
    each = mix.frames_per_packet(usable)
    held = [packets_held(direction, mix.mean_bytes, longest) for direction in directions]
    known = [packets for packets in held if packets is not None]
    if len(known) < len(held):
        return SizeRow(mix.mean_bytes, each, None, None, None, None, covered=True)
    frames = [math.ceil(packets * each) for packets in known]
    covered = all(share.packets >= number for share, number in zip(memory.directions, frames, strict=False))
    # the bytes of a queue counted in packets depend on the packets; those of a rate and a time do not
    bounds = [found for direction in directions if (found := in_flight(direction, longest)) is not None]
    packed = sum(on_the_way + round(queued * mix.mean_bytes) for on_the_way, queued in bounds)
    return SizeRow(
        packet_bytes=mix.mean_bytes,
        frames_per_packet=each,
        packets=links * sum(known),
        frames=links * sum(frames),
        held_bytes=links * sum(frames) * memory.frame_size,
        packed_bytes=links * packed,
        covered=covered,
    )


def _kernel_memory(memory: MemoryPlan, ports: int, queues: int, ring_bytes: int) -> KernelMemory:
    heads = KERNEL_BYTES_PER_FRAME * memory.frames
    pages = math.ceil(memory.umem_bytes / PAGE_BYTES)
    lists = allocated_bytes(pages * POINTER_BYTES) + math.ceil(pages * POINTER_BYTES / PAGE_BYTES) * PAGE_BYTES
    return KernelMemory(
        heads=memory.kernel_bytes,
        heads_allocated=allocated_bytes(heads) * ports * queues,
        page_lists=lists * ports,
        rings=ring_bytes,
    )


def allocated_bytes(size: int) -> int:
    """What kvmalloc takes for `size` bytes: a power of two up to 4 MiB, a multiple of 2 MiB above."""
    if size <= LARGEST_KMALLOC_BYTES:
        return 1 << max(size - 1, PAGE_BYTES - 1).bit_length()
    return math.ceil(size / HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


def _limits(memory: MemoryPlan) -> list[Limit]:
    most = [
        (f"< {version}", LARGEST_KMALLOC_BYTES // bytes_per_page * PAGE_BYTES, why)
        for version, bytes_per_page, why in LIFTED_LIMITS
    ]
    frames = LARGEST_KVMALLOC_BYTES // KERNEL_BYTES_PER_FRAME
    most.append((">= 5.15", frames * memory.frame_size, "the array of 128 bytes a frame has 2 GiB at most (kvmalloc)"))
    return [Limit(kernels, largest, memory.umem_bytes <= largest, why) for kernels, largest, why in most]


def _page_pool(longest: int, queues: int) -> PagePoolPlan:
    each = math.ceil(longest / PAGE_POOL_USABLE_BYTES)
    pages = max(POOL_REFILL_PAGES, each)
    return PagePoolPlan(pages_per_packet=each, pages_per_queue=pages, bytes_per_port=pages * PAGE_BYTES * queues)
