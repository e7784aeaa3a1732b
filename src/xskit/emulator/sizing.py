"""The memory plan: how many frames a link needs, and what they cost in all.

In flight is rate x (owd + queue). A frame holds one packet, however short, so short packets need many more frames
than long ones. Where it is known what packets will come, the plan is for them; else it takes the shortest packets that
fit in a modest memory, and never less than full-size ones need. On top come the frames that FILL keeps, 64 bytes of
packet table a frame, 16 bytes a frame for each store that keeps order, 4 in the stack of free frames, and what the
kernel adds: 128 bytes a frame for each (port, queue) that the memory is registered with (struct xdp_buff_xsk; measured
on 6.18).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xskit import units
from xskit.arguments import whole
from xskit.emulator.mistakes import CapacityError, SettingsError
from xskit.emulator.packet_mix import PacketMix
from xskit.emulator.settings import DirectionSettings, EngineSettings, LinkSettings
from xskit.engine.sizes import BLOCK_BYTES, ENTRY_BYTES, capacity_for
from xskit.errors import Setting
from xskit.xsk.path.sizes import FREE_BYTES, LINE_BYTES

KERNEL_BYTES_PER_FRAME = 128
HEADROOM_BYTES = 256
SMALLEST_PACKET_BYTES = 64
DEFAULT_DIRECTION_BYTES = 64 << 20
"""What the plan spends on a direction without being told to."""
LEAST_PACKETS = 4096
LEAST_FRAMES = 64
"""A direction's least share of a memory that the user has set."""
UNLIMITED_PPS = 1_500_000
"""Without a rate: about what one worker can forward ..."""
UNLIMITED_DIRECTION_BYTES = 128 << 20
"""... but no more than this: nobody said that so much would come. It is 300 ms of TCP at full speed."""
MARGIN = 1.25
LEAST_MTU, MOST_MTU = 68, 65_535
PAGE_BYTES = 4096
HUGE_PAGE_BYTES = 2 << 20
FRAMING_BYTES = 18
"""What a packet may have on top of the MTU: Ethernet header and a VLAN tag."""


@dataclass(frozen=True)
class DirectionPlan:
    """One direction's share.

    Attributes:
        packets: frames for what is in flight; a packet takes one, a full-size one `frames_per_packet`.
        frames_per_packet: frames of a full-size packet.
        fill_reserve: frames kept for the FILL rings.
        frames: in all.
        packet_bytes: in flight and queue are covered for packets of at least this size that fit in one frame.
        in_flight_bytes: what the settings ask to hold of full-size packets; None without a rate.
        wanted: what `packets` would be if the memory were not given; given memory is shared by it.
    """

    packets: int
    frames_per_packet: int
    fill_reserve: int
    frames: int
    packet_bytes: int
    in_flight_bytes: int | None
    wanted: int


@dataclass(frozen=True)
class MemoryPlan:
    """The whole packet memory and what comes with it, in bytes.

    Attributes:
        frame_size: of each frame.
        frames: in all.
        umem_bytes: of the packet memory.
        table_bytes: of the packet table.
        stores_bytes: of the stores of all stages, and of the stacks of free frames.
        kernel_bytes: what the kernel keeps of the frames, for each (port, queue).
        directions: their shares.
    """

    frame_size: int
    frames: int
    umem_bytes: int
    table_bytes: int
    stores_bytes: int
    kernel_bytes: int
    directions: list[DirectionPlan]

    @property
    def total_bytes(self) -> int:
        """User and kernel memory together."""
        return self.umem_bytes + self.table_bytes + self.stores_bytes + self.kernel_bytes

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "total_bytes": self.total_bytes}


def check_mtu(mtu: int) -> None:
    """Refuse what no interface has (ETH_MIN_MTU and ETH_MAX_MTU in linux/if_ether.h).

    Raises:
        UsageError: with the limits.
    """
    whole("mtu", mtu, LEAST_MTU, MOST_MTU, remedy="mtu=1500")


def region_bytes(size: int) -> int:
    """What a piece of memory takes: whole pages, and whole huge pages of 2 MiB from that size on (memory.Region)."""
    unit = PAGE_BYTES if size < HUGE_PAGE_BYTES else HUGE_PAGE_BYTES
    return math.ceil(size / unit) * unit


def fill_entries(ring_size: int, hardware_ring: int) -> int:
    """Entries of a FILL ring: as many as the hardware's ring and the RX ring have together, a power of two.

    In zero copy the driver keeps its own ring full from FILL while RX is full of packets that wait (xdp-newbies: "FILL
    at least hardware ring + RX ring"). In copy mode the kernel takes one entry a packet: `hardware_ring` is 0.
    """
    return 1 << (ring_size + hardware_ring - 1).bit_length()


def frame_size_for(max_length: int, unit_bytes: int = 1) -> int:
    """2048 where a whole packet fits behind the headroom, else 4096; NICs fill whole units only."""
    return 2048 if max_length <= (2048 - HEADROOM_BYTES) // unit_bytes * unit_bytes else 4096


def in_flight(settings: DirectionSettings, longest: int) -> tuple[int, int] | None:
    """What the direction must hold at its rate: (bytes, plus packets of any size); None without a rate.

    `longest`: bytes of the longest packet, by which the default queue is measured.
    """
    if settings.rate is None:
        return None
    on_the_way = settings.rate * (settings.owd + 3 * settings.jitter) // 8_000_000_000
    limit = settings.queue_limit(longest)
    if limit.unit == "packets":
        return on_the_way, limit.value
    if limit.unit == "bytes":
        return on_the_way + limit.value, 0
    return on_the_way + settings.rate * limit.value // 8_000_000_000, 0


def packets_held(settings: DirectionSettings, packet_bytes: float, longest: int) -> int | None:
    """Packets of one size that the direction must hold at its rate; None without a rate."""
    held = in_flight(settings, longest)
    return None if held is None else math.ceil(held[0] / packet_bytes) + held[1]


def packets_needed(settings: DirectionSettings, packet_bytes: float, longest: int) -> int:
    """Packets of one size that are in flight at once under these settings, and some to spare."""
    held = packets_held(settings, packet_bytes, longest)
    if held is None:
        return LEAST_PACKETS + UNLIMITED_PPS * (settings.owd + 3 * settings.jitter) // 1_000_000_000
    return to_spare(held)


def to_spare(held: int) -> int:
    """What is planned to hold this many, with some to spare."""
    return LEAST_PACKETS // 4 + math.ceil(held * MARGIN)


def plan_memory(
    directions: Sequence[DirectionSettings],
    *,
    max_lengths: Sequence[int],
    fill_entries: Sequence[int],
    frame_size: int,
    registrations: int,
    memory_bytes: int | None = None,
    entries_per_packet: int = 3,
    mix: PacketMix | None = None,
) -> MemoryPlan:
    """Plan the packet memory.

    Args:
        directions: settings of every direction of every link.
        max_lengths: the longest packet of each direction, in bytes.
        fill_entries: entries of all FILL rings of each direction's ingress port.
        frame_size: bytes of a frame.
        registrations: (port, queue) pairs that the memory is registered with.
        memory_bytes: of the packet memory, when the user has said so.
        entries_per_packet: FIFO entries that the stages of a direction keep for each packet, the exit's included.
        mix: what packets come; None: nobody knows.

    Raises:
        SettingsError: the memory asked for cannot even fill the FILL rings, or a packet is longer than the MTU lets
            through.
    """
    usable = frame_size - HEADROOM_BYTES
    wanted = []
    for settings, longest in zip(directions, max_lengths, strict=True):
        if mix is not None:
            wanted.append(_frames_for_mix(settings, mix, longest, usable, frame_size))
            continue
        few = packets_needed(settings, longest, longest) * math.ceil(longest / usable)
        if settings.rate is None:
            few = min(few, UNLIMITED_DIRECTION_BYTES // frame_size)
        many = packets_needed(settings, SMALLEST_PACKET_BYTES, longest)
        wanted.append(max(few, min(many, DEFAULT_DIRECTION_BYTES // frame_size)))
    shares = wanted
    unit = max(PAGE_BYTES // frame_size, 1)
    if memory_bytes is not None:
        shares = _share(wanted, memory_bytes // frame_size // unit * unit, sum(fill_entries), frame_size)
    plans = [
        _direction_plan(settings, longest, math.ceil(longest / usable), frames, fill, want)
        for settings, longest, frames, fill, want in zip(
            directions, max_lengths, shares, fill_entries, wanted, strict=True
        )
    ]
    total = math.ceil(sum(plan.frames for plan in plans) / unit) * unit
    stores = sum(_stores_bytes(plan.frames, entries_per_packet) for plan in plans)
    return MemoryPlan(
        frame_size=frame_size,
        frames=total,
        umem_bytes=total * frame_size,
        table_bytes=region_bytes(total * LINE_BYTES),
        stores_bytes=stores,
        kernel_bytes=total * KERNEL_BYTES_PER_FRAME * registrations,
        directions=plans,
    )


@dataclass(frozen=True)
class PortFacts:
    """What the plan must know of a port.

    Attributes:
        mtu: in bytes.
        rx_queues: how many.
        hardware_ring: entries that a zero-copy driver takes from FILL, else 0.
        unit_bytes: a zero-copy driver fills a frame in whole units of these, else 1.
    """

    mtu: int
    rx_queues: int = 1
    hardware_ring: int = 0
    unit_bytes: int = 1

    @property
    def longest(self) -> int:
        """Bytes of the longest packet."""
        return self.mtu + FRAMING_BYTES


def plan_links(
    links: Sequence[tuple[LinkSettings, PortFacts, PortFacts]], engine: EngineSettings, mix: PacketMix | None = None
) -> MemoryPlan:
    """Plan the packet memory of links between ports, as the emulator does; arguments and errors as of plan_memory.

    Directions come in the order forward, reverse of each link in turn; forward goes from the first port to the second.
    """
    directions, ingress, egress = [], [], []
    for settings, first, second in links:
        directions += [settings.forward, settings.reverse]
        ingress += [first, second]
        egress += [second, first]
    lengths = [port.longest for port in egress]
    return plan_memory(
        directions,
        max_lengths=lengths,
        fill_entries=[port.rx_queues * fill_entries(engine.ring_size, port.hardware_ring) for port in ingress],
        frame_size=engine.frame_size or frame_size_for(max(lengths), max(port.unit_bytes for port in ingress)),
        registrations=sum(port.rx_queues for port in ingress),
        memory_bytes=engine.memory,
        mix=mix,
    )


def _stores_bytes(frames: int, entries_per_packet: int) -> int:
    """A direction's block with its stores, and its stack of free frames: two pieces of memory."""
    block = BLOCK_BYTES + capacity_for(frames) * ENTRY_BYTES * entries_per_packet
    return region_bytes(block) + region_bytes(frames * FREE_BYTES)


def _frames_for_mix(settings: DirectionSettings, mix: PacketMix, longest: int, usable: int, frame_size: int) -> int:
    if mix.longest > longest:
        raise SettingsError(
            f"a packet of {mix.longest} bytes does not pass an MTU of {longest - FRAMING_BYTES}",
            remedy=f"--mtu {mix.longest - FRAMING_BYTES}",
        )
    frames = math.ceil(packets_needed(settings, mix.mean_bytes, longest) * mix.frames_per_packet(usable))
    return frames if settings.rate is not None else min(frames, UNLIMITED_DIRECTION_BYTES // frame_size)


def _direction_plan(
    settings: DirectionSettings, longest: int, frames_per_packet: int, frames: int, fill: int, wanted: int
) -> DirectionPlan:
    held = in_flight(settings, longest)
    covered = SMALLEST_PACKET_BYTES
    if held is not None:
        covered = min(max(math.ceil(held[0] / max(frames - held[1], 1)), 1), longest)
    return DirectionPlan(
        packets=frames,
        frames_per_packet=frames_per_packet,
        fill_reserve=fill,
        frames=frames + fill,
        packet_bytes=covered,
        in_flight_bytes=None if held is None else held[0] + held[1] * longest,
        wanted=wanted,
    )


def _share(wanted: Sequence[int], frames: int, reserve: int, frame_size: int) -> list[int]:
    """Divide the frames that the user gave: a little for each direction, the others by need."""
    least = len(wanted) * LEAST_FRAMES
    left = frames - reserve - least
    if left < 0:
        needed = units.format_size((reserve + least) * frame_size)
        raise SettingsError(
            f"this packet memory cannot even fill the FILL rings: at least {needed} is needed",
            remedy=Setting("memory", needed),
        )
    return [LEAST_FRAMES + left * want // sum(wanted) for want in wanted]


def check_capacity(
    name: str, now: DirectionSettings, wanted: DirectionSettings, plan: MemoryPlan, number: int, max_length: int
) -> None:
    """Refuse settings that the planned memory cannot hold even for full-size packets.

    Args:
        name: of the direction, for the error.
        now: its settings; what needs no more than these is never refused.
        wanted: what they shall become.
        plan: of the whole memory.
        number: of the direction in the plan.
        max_length: its longest packet, in bytes.

    Raises:
        CapacityError: with the number to set.
    """
    packets = packets_held(wanted, max_length, max_length)
    if packets is None or packets <= (packets_held(now, max_length, max_length) or 0):
        return
    share = plan.directions[number]
    frames = packets * share.frames_per_packet
    if frames > share.packets:
        needed = memory_for(plan, share, frames)
        raise CapacityError(
            f"{name}: {frames} frames would be in flight, the packet memory was planned for {share.packets}",
            remedy=Setting("memory", units.format_size(needed), "start with {} or more"),
        )


def memory_for(plan: MemoryPlan, share: DirectionPlan, frames: int) -> int:
    """Bytes, in whole MiB, of a packet memory in which that direction gets so many frames."""
    left = math.ceil((frames - LEAST_FRAMES) * sum(other.wanted for other in plan.directions) / share.wanted)
    kept = sum(other.fill_reserve + LEAST_FRAMES for other in plan.directions)
    return math.ceil((left + kept) * plan.frame_size / (1 << 20)) << 20
