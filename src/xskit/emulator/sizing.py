"""The memory plan: how many frames a link needs, and what they cost in all.

In flight is rate x (owd + queue). A frame holds one packet, however short, so short packets need many more frames
than long ones: the plan takes the shortest packets that fit in a modest memory, and never less than full-size ones
need. On top come the frames that FILL keeps, 64 bytes of packet table a frame, 16 bytes a frame for each store that
keeps order, and what the kernel adds: 128 bytes a frame for each (port, queue) that the memory is registered with
(struct xdp_buff_xsk; measured on 6.18).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xskit import units
from xskit.emulator.mistakes import CapacityError, SettingsError
from xskit.emulator.settings import DirectionSettings
from xskit.engine.fifo import ENTRY_BYTES, capacity_for
from xskit.engine.packets import LINE_BYTES

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
PAGE_BYTES = 4096


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
    """The whole packet memory and what comes with it, in bytes."""

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


def frame_size_for(max_length: int) -> int:
    """2048 where a whole packet fits behind the headroom, else 4096."""
    return 2048 if max_length <= 2048 - HEADROOM_BYTES else 4096


def in_flight(settings: DirectionSettings) -> tuple[int, int] | None:
    """What the direction must hold at its rate: (bytes, and on top packets of any size); None without a rate."""
    if settings.rate is None:
        return None
    on_the_way = settings.rate * (settings.owd + 3 * settings.jitter) // 8_000_000_000
    limit = settings.queue.limit
    if limit.unit == "packets":
        return on_the_way, limit.value
    if limit.unit == "bytes":
        return on_the_way + limit.value, 0
    return on_the_way + settings.rate * limit.value // 8_000_000_000, 0


def full_size_packets(settings: DirectionSettings, longest: int) -> int | None:
    """Packets of the longest size that the direction must hold at its rate; None without a rate."""
    held = in_flight(settings)
    return None if held is None else math.ceil(held[0] / longest) + held[1]


def packets_needed(settings: DirectionSettings, packet_bytes: int) -> int:
    """Packets of one size that are in flight at once under these settings, and some to spare."""
    held = full_size_packets(settings, packet_bytes)
    if held is None:
        return LEAST_PACKETS + UNLIMITED_PPS * (settings.owd + 3 * settings.jitter) // 1_000_000_000
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

    Raises:
        SettingsError: the memory asked for cannot even fill the FILL rings.
    """
    usable = frame_size - HEADROOM_BYTES
    wanted = []
    for settings, longest in zip(directions, max_lengths, strict=True):
        frames_per_packet = math.ceil(longest / usable)
        few = packets_needed(settings, longest) * frames_per_packet
        if settings.rate is None:
            few = min(few, UNLIMITED_DIRECTION_BYTES // frame_size)
        many = packets_needed(settings, SMALLEST_PACKET_BYTES)
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
    stores = sum(capacity_for(plan.frames) * ENTRY_BYTES * entries_per_packet for plan in plans)
    return MemoryPlan(
        frame_size=frame_size,
        frames=total,
        umem_bytes=total * frame_size,
        table_bytes=total * LINE_BYTES,
        stores_bytes=stores,
        kernel_bytes=total * KERNEL_BYTES_PER_FRAME * registrations,
        directions=plans,
    )


def _direction_plan(
    settings: DirectionSettings, longest: int, frames_per_packet: int, frames: int, fill: int, wanted: int
) -> DirectionPlan:
    held = in_flight(settings)
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
        raise SettingsError(f"this packet memory cannot even fill the FILL rings: at least {needed} is needed")
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
    packets = full_size_packets(wanted, max_length)
    if packets is None or packets <= (full_size_packets(now, max_length) or 0):
        return
    share = plan.directions[number]
    frames = packets * share.frames_per_packet
    if frames > share.packets:
        needed = _memory_for(plan, share, frames)
        raise CapacityError(
            f"{name}: {frames} frames would be in flight, the packet memory was planned for {share.packets}",
            remedy=f"start with --memory {units.format_size(needed)} or more",
        )


def _memory_for(plan: MemoryPlan, share: DirectionPlan, frames: int) -> int:
    """Bytes, in whole MiB, of a packet memory in which that direction gets so many frames."""
    left = math.ceil((frames - LEAST_FRAMES) * sum(other.wanted for other in plan.directions) / share.wanted)
    kept = sum(other.fill_reserve + LEAST_FRAMES for other in plan.directions)
    return math.ceil((left + kept) * plan.frame_size / (1 << 20)) << 20
