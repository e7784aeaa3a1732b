"""What packet memory costs beside its frames, in bytes: known without the compiler, to those who only plan."""

from __future__ import annotations

LINE_SHIFT = 6
LINE_BYTES = 1 << LINE_SHIFT
"""A line of the packet table: one cache line."""

FREE_BYTES = 4
"""A place of the stack of free frames."""
