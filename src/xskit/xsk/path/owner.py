"""Who owns a frame of packet memory, and the proof that none is lost or doubled.

     take           FILL            RX                keep, or being looked at
FREE ----> FILL ---------> (kernel) ----> RX --------> HELD ----> FREE, or FILL again, or
  ^                                                      |
  |        COMPLETION                         TX         v
  +------- COMPLETION <--------- (kernel) <------------- TX
"""

from __future__ import annotations

from enum import IntEnum

from xskit.errors import XskitError

__all__ = ["FrameError", "Owner", "Sighting"]


class Owner(IntEnum):
    """Where a frame is."""

    FREE = 0
    FILL = 1
    """In the FILL ring, or taken from it by the kernel to receive into."""
    RX = 2
    """In the RX ring, not read yet."""
    HELD = 3
    """In a packet that the process has."""
    TX = 4
    """In the TX ring, or taken from it by the kernel and not completed."""
    COMPLETION = 5
    """In the COMPLETION ring, not read yet."""


Sighting = tuple[int, Owner, Owner]
"""A frame, the ring it was seen in, and the owner that explains it."""


class FrameError(XskitError):
    """A frame is where it must not be: a mistake in a program that handles frames itself, or in xskit."""
