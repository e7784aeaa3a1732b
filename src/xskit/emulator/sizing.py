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
UNLIMITED_PPS = 1_500_000
"""Without a rate: about what one worker can forward."""
MARGIN = 1.25
PAGE_BYTES = 4096


@dataclass(frozen=True)
class DirectionPlan:
    """One direction's share.

    Attributes:
        packets: that can be in flight at once, each of `frames_per_packet` frames.
        fill_reserve: frames kept for the FILL rings.
        frames: in all.
        packet_bytes: in flight and queue are covered for packets of at least this size.
        in_flight_bytes: what the settings ask to hold; None without a rate.
    """

    packets: int
    frames_per_packet: int
    fill_reserve: int
    frames: int
    packet_bytes: int
    in_flight_bytes: int | None


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


def in_flight_bytes(settings: DirectionSettings) -> int | None:
    """What the direction must hold at its rate: owd, jitter and queue; None without a rate."""
    if settings.rate is None:
        return None
    held = settings.rate * (settings.owd + 3 * settings.jitter) // 8_000_000_000
    limit = settings.queue.limit
    if limit.unit == "bytes":
        return held + limit.value
    if limit.unit == "ns":
        return held + settings.rate * limit.value // 8_000_000_000
    return held + limit.value * 1514


def packets_needed(settings: DirectionSettings, packet_bytes: int) -> int:
    """Packets of one size that are in flight at once under these settings."""
    held = in_flight_bytes(settings)
    if held is None:
        return LEAST_PACKETS + UNLIMITED_PPS * (settings.owd + 3 * settings.jitter) // 1_000_000_000
    return LEAST_PACKETS // 4 + math.ceil(held / packet_bytes * MARGIN)


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
        many = packets_needed(settings, SMALLEST_PACKET_BYTES)
        wanted.append(max(few, min(many, DEFAULT_DIRECTION_BYTES // frame_size)))
    reserve = sum(fill_entries)
    if memory_bytes is not None:
        wanted = _share(wanted, memory_bytes // frame_size - reserve, reserve, frame_size)
    plans = []
    for settings, longest, frames, fill in zip(directions, max_lengths, wanted, fill_entries, strict=True):
        held = in_flight_bytes(settings)
        covered = SMALLEST_PACKET_BYTES if held is None else min(max(math.ceil(held / frames), 1), longest)
        per_packet = math.ceil(longest / usable)
        plans.append(DirectionPlan(frames, per_packet, fill, frames + fill, covered, held))
    total = sum(plan.frames for plan in plans)
    unit = PAGE_BYTES // frame_size
    total = math.ceil(total / unit) * unit if unit > 1 else total
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


def _share(wanted: Sequence[int], frames: int, reserve: int, frame_size: int) -> list[int]:
    """Divide the frames that the user gave by need."""
    least = len(wanted) * 64
    if frames < least:
        needed = units.format_size((reserve + least) * frame_size)
        raise SettingsError(f"this packet memory cannot even fill the FILL rings: at least {needed} is needed")
    return [max(frames * want // sum(wanted), 64) for want in wanted]


def check_capacity(
    name: str, settings: DirectionSettings, plan: DirectionPlan, max_length: int, frame_size: int
) -> None:
    """Refuse settings that the planned memory cannot hold even for full-size packets.

    Raises:
        CapacityError: with the number to set.
    """
    if settings.rate is None:
        return
    held = in_flight_bytes(settings) or 0
    frames = math.ceil(held / max_length) * plan.frames_per_packet
    if frames > plan.packets:
        needed = units.format_size((frames + plan.fill_reserve) * frame_size * 2)
        raise CapacityError(
            f"{name}: {frames} frames would be in flight, the packet memory was planned for {plan.packets}",
            remedy=f"start with --memory {needed} or more",
        )
