"""What a forked child must not keep: descriptors that hold a queue or a program for as long as anybody has them.

A child that lives on would keep ports busy, and their packets redirected to nobody, after its parent has closed them.
subprocess is no matter: all descriptors are close-on-exec.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["not_inherited"]

_Owner = TypeVar("_Owner")
_owners: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def not_inherited(owner: _Owner, close: Callable[[_Owner], None]) -> None:
    """Call `close(owner)` in every child that is forked from now on; it may touch nothing that is the parent's."""
    _owners[owner] = close


def _in_child() -> None:
    for owner, close in list(_owners.items()):
        close(owner)


os.register_at_fork(after_in_child=_in_child)
