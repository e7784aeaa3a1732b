"""Changes of an interface that may be in another network namespace by the time they are put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from xskit.netconf import interfaces
from xskit.netconf.changes.base import Restored
from xskit.netconf.namespaces import MissingError, identity, inside
from xskit.netconf.peers import moved_to

__all__ = ["origin_of", "restore_where_it_is"]


class _OfInterface(Protocol):
    interface: str
    origin: dict[str, Any]


def origin_of(name: str, namespace: str | None) -> dict[str, Any]:
    """What an interface is recognized by after it was moved: the arguments of `moved_to` besides its name.

    Raises:
        MissingError: there is no such interface or namespace.
    """
    with inside(namespace):
        facts = interfaces.look(name)
        return {"index": facts.index, "mac": facts.mac, "home": identity()}


def restore_where_it_is(change: _OfInterface, restore: Callable[[], Restored], **there: Any) -> Restored:
    """Restore a change of an interface; if the interface was moved, in the namespace that it is in now.

    `there` replaces fields of the change that hold only in the first namespace.

    Raises:
        MissingError: the interface is in no namespace that a process or a name holds.
        XskitError: it could not be put back.
    """
    try:
        return restore()
    except MissingError:
        found = moved_to(change.interface, **change.origin) if change.origin else None
        if found is None:
            raise
    name, namespace = found
    moved: Any = dataclasses.replace(change, interface=name, namespace=namespace, origin={}, **there)  # type: ignore[type-var]
    restored: Restored = moved.restore()
    return restored
