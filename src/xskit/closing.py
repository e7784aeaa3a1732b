"""The base class of objects that a with block closes."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType
from typing import Self

__all__ = ["Closing", "forgotten"]


class Closing:
    """A base class: `with` closes the object. Subclasses define `close`, which may be called twice."""

    def close(self) -> None:
        """Release what the object holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def forgotten(what: Closing) -> None:
    """For `__del__`: warn that an object was never closed, and close it. At the end of the interpreter nothing is done:
    the kernel takes everything back."""
    if not sys.is_finalizing():
        try:
            warnings.warn(f"{what!r} was never closed", ResourceWarning, stacklevel=3, source=what)
        finally:  # where warnings are errors, too
            what.close()
