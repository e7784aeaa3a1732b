"""Features of the kernel that are found out by trying, not by its version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from xskit.errors import PrivilegeError, XskitError

__all__ = ["KernelFeature", "Support", "tried"]


class KernelFeature(Enum):
    """A feature: (what it is, the kernel that brought it). Each package that tries some lists them in a subclass."""

    @property
    def title(self) -> str:
        return str(self.value[0])

    @property
    def since(self) -> str:
        return str(self.value[1])


@dataclass(frozen=True, slots=True)
class Support:
    """Whether the kernel has a feature; `available` is None when this process has not the rights to find out."""

    feature: KernelFeature
    available: bool | None
    detail: str
    """Why not, in a sentence or the kernel's word; empty when it is there."""


def tried(feature: KernelFeature, trial: Callable[[], object]) -> Support:
    """What a trial says of a feature: the kernel has it unless the trial raises OSError or XskitError."""
    try:
        trial()
    except (PrivilegeError, PermissionError) as error:
        return Support(feature, None, _detail(error))
    except (XskitError, OSError) as error:
        return Support(feature, False, _detail(error))
    return Support(feature, True, "")


def _detail(error: XskitError | OSError) -> str:
    return error.cause if isinstance(error, XskitError) else error.strerror or str(error)
