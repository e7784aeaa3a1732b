"""The change that makes a network namespace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from xskit.netconf import interfaces
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.namespaces import Namespace, create_namespace, identity, inside, remove_namespace

__all__ = ["CreateNamespace"]


@dataclass
class CreateNamespace(Change):
    """A network namespace with its loopback up. Its name begins with xk."""

    name: str
    inode: int | None = field(default=None, kw_only=True)

    exclusive: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"network namespace {self.name}"

    def check(self) -> bool:
        return Namespace(self.name).exists

    def apply(self) -> None:
        namespace = create_namespace(self.name)
        self.inode = identity(namespace.path)
        with inside(namespace):
            interfaces.set_up("lo", True)

    def restore(self) -> Restored:
        now = identity(Namespace(self.name).path)
        if self.inode is not None and now is not None and now != self.inode:
            return self._fate(Fate.KEPT, "somebody else made one of the same name")
        return self._fate(Fate.RESTORED if remove_namespace(self.name) else Fate.GONE)
