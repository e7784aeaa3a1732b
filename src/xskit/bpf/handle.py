"""A kernel object that lives as long as its file descriptor: what maps, programs and links have in common."""

from __future__ import annotations

import os

from xskit.closing import Closing

__all__ = ["Handle"]


class Handle(Closing):
    """Owns one file descriptor.  Closing twice is allowed; using it after closing is an error."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    @property
    def fd(self) -> int:
        """The file descriptor, close-on-exec.  ValueError after `close`."""
        if self._fd is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._fd

    def fileno(self) -> int:
        return self.fd

    @property
    def closed(self) -> bool:
        return self._fd is None

    def close(self) -> None:
        """Give the object back to the kernel, which frees it when nobody else holds it."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)
