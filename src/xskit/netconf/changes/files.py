"""The change that makes a file for the length of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from xskit.errors import KernelError
from xskit.netconf.changes.base import Change, Fate, Restored

__all__ = ["TemporaryFile"]


@dataclass
class TemporaryFile(Change):
    """A file with this text, readable by all. What somebody else puts in its place meanwhile stays."""

    path: str
    text: str = ""
    inode: int | None = field(default=None, kw_only=True)

    exclusive: ClassVar[bool] = True
    outlives_boot: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"file {self.path}"

    def check(self) -> bool:
        return os.path.lexists(self.path)

    def apply(self) -> None:
        try:
            with open(self.path, "x", encoding="utf-8", errors="surrogateescape") as file:
                self.inode = os.fstat(file.fileno()).st_ino
                file.write(self.text)
        except OSError as error:
            raise KernelError(f"the {self} cannot be written: {error.strerror}") from error

    def restore(self) -> Restored:
        try:
            if self.inode is not None and os.lstat(self.path).st_ino != self.inode:
                return self._fate(Fate.KEPT, "it is another file now")
            Path(self.path).unlink()
        except FileNotFoundError:
            return self._fate(Fate.GONE)
        return self._fate(Fate.RESTORED)
