"""Memory at a known address, borrowed for one call of compiled code: to ask NumPy for an address takes several times as
long as to copy the rows of a batch.

Rows are copied in before the call, so nothing that happens to their array meanwhile matters.
"""

from __future__ import annotations

from xskit.xsk.pages import Pages

__all__ = ["Scratch", "borrow", "give_back"]

LEAST_BYTES, MOST_IDLE_BYTES = 1 << 16, 1 << 20


class Scratch:
    """At least `size` bytes.

    Attributes:
        address: where they begin.
        view: the bytes.
    """

    __slots__ = ("_pages", "address", "size", "view")

    def __init__(self, size: int) -> None:
        self.size = max(size, LEAST_BYTES)
        self._pages = Pages(self.size, populate=False, huge=False, hugetlb=False)
        self.address, self.view = self._pages.address, self._pages.view


_idle: list[Scratch] = []
"""Those that nobody uses. Whoever takes one has it alone, in whatever thread or signal handler."""


def borrow(size: int) -> Scratch:
    """Some memory, until `give_back`. One that is not given back is only lost to the next one."""
    try:
        found = _idle.pop()
    except IndexError:
        return Scratch(size)
    return found if found.size >= size else Scratch(size)


def give_back(scratch: Scratch) -> None:
    """It may be borrowed again."""
    if scratch.size <= MOST_IDLE_BYTES:
        _idle.append(scratch)
