"""What packets will come: sizes and their weights, said in words or counted in a capture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from xskit.emulator.mistakes import SettingsError

__all__ = ["PacketMix"]

LONGEST_BYTES = 65_535 + 18
"""The largest MTU, with Ethernet header and a VLAN tag."""


@dataclass(frozen=True)
class PacketMix:
    """What packets come: {bytes with Ethernet header, without FCS: how many of them, or their weight}.

    Raises:
        SettingsError: no size at all, one below 1 byte or above what any MTU lets through, or a weight below 0, or not
            finite.
    """

    counts: Mapping[int, float]

    def __post_init__(self) -> None:
        weights = self.counts.values()
        if not self.counts or min(self.counts) < 1 or min(weights) < 0 or not 0 < sum(weights) < math.inf:
            raise SettingsError("packet sizes: at least one, of 1 byte or more, and no weight below 0 or without end")
        if max(self.counts) > LONGEST_BYTES:
            raise SettingsError(f"a packet of {max(self.counts)} bytes passes no MTU: {LONGEST_BYTES} are the most")

    @classmethod
    def parse(cls, text: str) -> Self:
        """`1518`, `64,1518` (as many of each), `64:7,576:4,1518:1` (size and weight).

        Raises:
            SettingsError: it is something else.
        """
        found: dict[int, float] = {}
        for part in text.split(","):
            size, colon, weight = part.partition(":")
            try:
                found[int(size)] = found.get(int(size), 0.0) + (float(weight) if colon else 1.0)
            except ValueError:
                raise SettingsError(f"{part!r} is no size in bytes, with or without a weight") from None
        return cls(found)

    @classmethod
    def read(cls, capture: Path | str) -> Self:
        """As the packets of a pcap or pcapng file are.

        Raises:
            CaptureError: it cannot be read, is something else, or holds no packets.
        """
        from xskit.capture.lengths import read_lengths

        return cls(read_lengths(Path(capture)))

    @property
    def longest(self) -> int:
        """Bytes of the longest packet."""
        return max(self.counts)

    @property
    def mean_bytes(self) -> float:
        """Bytes of a packet on average."""
        return sum(size * count for size, count in self.counts.items()) / sum(self.counts.values())

    def frames_per_packet(self, usable: int) -> float:
        """Frames that a packet takes on average, where one frame holds `usable` bytes."""
        frames = sum(math.ceil(size / usable) * count for size, count in self.counts.items())
        return frames / sum(self.counts.values())
