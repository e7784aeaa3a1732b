"""What a benchmark knows of the guest that it runs in, and what its figures mean there.

Who starts a guest sets two variables in it (vm/session.py); without them this is a machine like any other.
"""

from __future__ import annotations

import os

__all__ = [
    "COUNTED",
    "COUNTED_VARIABLE",
    "DURATION_S",
    "EMULATED",
    "EMULATED_VARIABLE",
    "RATIO",
    "REPEAT",
    "VIRTUAL",
    "counted_instructions",
    "emulated",
]

EMULATED_VARIABLE, COUNTED_VARIABLE = "XSKIT_EMULATED", "XSKIT_ICOUNT"
"""No hardware runs this; and one instruction takes one ns of the guest's time."""

EMULATED = (
    "This guest's processor was emulated (QEMU's TCG): no time and no rate below says how fast anything is. What holds "
    "are counts: packets, bytes, what was lost, which path was taken. How fast it is only hardware can tell."
)
COUNTED = (
    "This guest's processor was emulated and its clock counts instructions (QEMU's icount, 1 ns each): figures are "
    "instructions a packet, repeatable, and their ratio says how much work the kernel does, not how long it takes. "
    "Cache misses are free here; and a string copy counts by its steps, about as many as it has bytes, where hardware "
    "moves 16 to 64 bytes in one: so bytes copied stand apart. What that is worth in time only hardware can tell."
)
DURATION_S, REPEAT = 0.05, 5
"""Of a run and of a case where instructions are counted: 50 million of them, which are some ten bursts; and as many
runs as a conclusion needs, though they agree."""

RATIO = (
    "Instructions, counted in emulated guests: their ratio says how much work is done, not how long it takes. Bytes "
    "copied stand apart. What either is worth in time only hardware can tell."
)
VIRTUAL = (
    "They ran under KVM: times and rates are those of a virtual machine, with its interrupts and whatever else its "
    "host was doing; those of an emulated NIC are QEMU's. Ratios between kernels hold as far as their intervals say."
)


def emulated() -> bool:
    """Whether this is a guest that an emulator runs."""
    return os.environ.get(EMULATED_VARIABLE) == "1"


def counted_instructions() -> bool:
    """Whether the clock of this guest counts instructions."""
    return os.environ.get(COUNTED_VARIABLE) == "1"
