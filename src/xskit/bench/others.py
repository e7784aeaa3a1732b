"""What other programs took of this machine's CPUs while a benchmark ran: the first thing to know about its noise."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["BUSY", "OtherPrograms"]

BUSY = 0.1
"""CPUs taken by others above which small differences are not to be trusted."""

_TABLE = Path("/proc/stat")


class OtherPrograms:
    """Counts from the moment it is made."""

    def __init__(self) -> None:
        self._first = self._taken_s()
        self._begun = time.monotonic()

    def cpus(self) -> float:
        """How many CPUs they took on average since it was made; a virtual machine's host counts as one of them.

        The kernel counts in ticks of 10 ms, so a short time is known roughly only.
        """
        elapsed = time.monotonic() - self._begun
        return max(self._taken_s() - self._first, 0.0) / elapsed if elapsed > 0 else 0.0

    @staticmethod
    def _taken_s() -> float:
        """CPU seconds of all programs but this process."""
        # proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal, and guests that are in user already
        ticks = [int(word) for word in _TABLE.read_text().split("\n", 1)[0].split()[1:9]]
        busy = sum(ticks) - ticks[3] - ticks[4]
        own = os.times()
        return busy / os.sysconf("SC_CLK_TCK") - own.user - own.system - own.children_user - own.children_system
