"""What packets will come: sizes and their weights, said in words or counted in a capture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from xskit import arguments
from xskit.arguments import literal, whole
from xskit.emulator.mistakes import SettingsError
from xskit.errors import UsageError

__all__ = ["PacketMix"]

LONGEST_BYTES = 65_535 + 18
"""The largest MTU, with Ethernet header and a VLAN tag."""


@dataclass(frozen=True)
class PacketMix:
    """What packets come: {bytes with Ethernet header, without FCS: how many of them, or their weight}.

    Raises:
        UsageError: there is no size, a size is below 1 byte or above the largest MTU, or a weight is negative or not
            finite.
    """

    counts: Mapping[int, float]

    def __post_init__(self) -> None:
        if not isinstance(self.counts, Mapping) or not self.counts:
            raise SettingsError(f"expected sizes with weights such as {{1518: 1}}, got {literal(self.counts)}")
        for size, weight in self.counts.items():
            whole("the size of a packet", size, 1, LONGEST_BYTES, remedy="PacketMix({{1518: 1}})")
            if not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
                raise SettingsError(f"the weight of {size} bytes must be a number, 0 or more, not {literal(weight)}")
        if not 0 < self._total() < math.inf:
            raise SettingsError("the weights of all packet sizes must add up to a positive, finite number")

    @classmethod
    def parse(cls, text: str) -> Self:
        """`1518`, `64,1518` (as many of each), `64:7,576:4,1518:1` (size and weight).

        Raises:
            SettingsError: it is something else.
        """
        found: dict[int, float] = {}
        for part in arguments.text("packet sizes", text).split(","):
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
            UsageError: this is not a path.
            CaptureError: it cannot be read, is something else, or holds no packets.
        """
        if not isinstance(capture, (str, Path)):
            raise UsageError(f"a capture must be a path, not {literal(capture)}")
        from xskit.capture.lengths import read_lengths

        return cls(read_lengths(Path(capture)))

    @property
    def longest(self) -> int:
        """Bytes of the longest packet."""
        return max(self.counts)

    @property
    def mean_bytes(self) -> float:
        """Bytes of a packet on average."""
        return sum(size * count for size, count in self.counts.items()) / self._total()

    def frames_per_packet(self, usable: int) -> float:
        """Frames that a packet takes on average, where one frame holds `usable` bytes."""
        frames = sum(math.ceil(size / usable) * count for size, count in self.counts.items())
        return frames / self._total()

    def _total(self) -> float:
        try:
            return float(sum(self.counts.values()))
        except OverflowError:
            return math.inf
