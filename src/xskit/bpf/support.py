"""Kernel features, found by trying them, not by the kernel's version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from xskit.errors import PrivilegeError, XskitError

__all__ = ["KernelFeature", "Support", "tried"]


class KernelFeature(Enum):
    """A feature: (what it is, the first kernel that has it). A package lists those that it tries in a subclass."""

    @property
    def title(self) -> str:
        return str(self.value[0])

    @property
    def since(self) -> str:
        return str(self.value[1])


@dataclass(frozen=True, slots=True)
class Support:
    """Whether the kernel has a feature; `available` is None if this process lacks the privileges to find out."""

    feature: KernelFeature
    available: bool | None
    detail: str
    """Why not, as a sentence or the kernel's message; empty if the kernel has it."""


def tried(feature: KernelFeature, trial: Callable[[], object]) -> Support:
    """The result of a trial: the kernel has the feature unless the trial raises OSError or XskitError."""
    try:
        trial()
    except (PrivilegeError, PermissionError) as error:
        return Support(feature, None, _detail(error))
    except (XskitError, OSError) as error:
        return Support(feature, False, _detail(error))
    return Support(feature, True, "")


def _detail(error: XskitError | OSError) -> str:
    return error.cause if isinstance(error, XskitError) else error.strerror or str(error)
