"""Interrupts of the first line of /proc/interrupts that contains a text."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from xskit.errors import UsageError

__all__ = ["Interrupts"]

_TABLE = Path("/proc/interrupts")


class Interrupts:
    """Counts from the moment it is made.

    Raises:
        UsageError: no line contains the text.
    """

    def __init__(self, text: str, table: Path = _TABLE) -> None:
        self._text, self._table = text, table
        self._first = self._read()

    def count(self) -> int:
        """Since it was made, on all CPUs."""
        return self._read() - self._first

    def _read(self) -> int:
        for line in self._table.read_text().splitlines()[1:]:
            if self._text in line:
                return sum(map(int, takewhile(str.isdigit, line.partition(":")[2].split())))
        raise UsageError(f"no line of {self._table} contains {self._text!r}", remedy=f"cat {self._table}")
