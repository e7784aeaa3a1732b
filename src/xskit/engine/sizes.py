"""What a packet costs the engine, in bytes: known without the compiler, to those who only plan."""

from __future__ import annotations

ENTRY_SHIFT = 4
ENTRY_BYTES = 1 << ENTRY_SHIFT
"""An entry of a FIFO."""

BLOCK_BYTES = 32 << 10
"""A pipeline's block besides its stores, rounded up: two histograms, counters, and the records of its stages."""

MAX_BUCKETS = 1 << 20
MIN_SHIFT, MAX_SHIFT = 8, 19
"""A timing wheel's buckets at most, and its tick in ns: two to the power of this. Packets leave at the end of their
tick, so a longer one would by itself make a run invalid (emulator/significance.py, LATE_LEAST_NS)."""

LONGEST_HORIZON_NS = (MAX_BUCKETS - 2) << MAX_SHIFT
"""The longest that a timing wheel can hold a packet: 9 minutes."""


def capacity_for(packets: int) -> int:
    """Entries of a FIFO that must hold so many packets."""
    return 1 << max(packets - 1, 1).bit_length()
