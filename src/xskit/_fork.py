"""What a forked child must not do: change what its parent made, or keep descriptors that hold a queue or a program.

A child that lives on would keep ports busy, and their packets redirected to nobody, after its parent has closed them.
subprocess is no matter: all descriptors are close-on-exec.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from xskit.errors import UsageError

__all__ = ["not_inherited", "require_parent"]

_Owner = TypeVar("_Owner")
_owners: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def not_inherited(owner: _Owner, close: Callable[[_Owner], None]) -> None:
    """Call `close(owner)` in every child that is forked from now on; it may touch nothing that is the parent's."""
    _owners[owner] = close


def require_parent(pid: int, what: str) -> None:
    """Only the process `pid` may go on, not one that was forked from it; `what` is "the lab belongs to".

    Raises:
        UsageError: this is another process.
    """
    if os.getpid() != pid:
        raise UsageError(f"{what} process {pid}, from which this one was forked")


def _in_child() -> None:
    for owner, close in list(_owners.items()):
        close(owner)


os.register_at_fork(after_in_child=_in_child)
