"""What a change is: check, remember, apply, restore, and a record of it that another process can read.

    journal.apply(change):   check()     is the machine like that already?  then nothing happens
                             remember()  read the old value
                             ... the journal writes the record ...
                             apply()     change the machine
    journal.restore():       restore()   put the old value back, if the machine still has ours

A change is a dataclass of strings, numbers, booleans, lists and dictionaries, nothing else, so that its record is JSON.
`namespace` is a name under /run/netns, or None: the namespace in which the journal was opened.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self

from xskit.netconf.namespaces import inside

__all__ = ["Change", "Fate", "Restored", "ValueChange"]


class Fate(StrEnum):
    """What became of a change that was to be put back."""

    RESTORED = "put back"
    GONE = "gone already"
    KEPT = "left alone"
    FAILED = "not put back"


@dataclass(frozen=True, slots=True)
class Restored:
    """One change and its fate. `detail` says why it was left alone or not put back, `remedy` what to do about that."""

    what: str
    fate: Fate
    detail: str = ""
    remedy: str | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.fate}" + (f" ({self.detail})" if self.detail else "")


@dataclass
class Change(ABC):
    """One modification of the host. `str()` names it in a sentence."""

    kinds: ClassVar[dict[str, type[Change]]] = {}
    exclusive: ClassVar[bool] = False
    """Whether what it makes must be its own: being there already is an error, not a reason to do nothing."""

    outlives_boot: ClassVar[bool] = False
    """Whether it is still there after the machine was restarted."""

    def __init_subclass__(cls) -> None:
        Change.kinds[cls.__name__] = cls

    @abstractmethod
    def check(self) -> bool:
        """Whether the machine already is as wanted."""

    def remember(self) -> None:  # noqa: B027
        """Read what `restore` will need. Called once, before `apply`."""

    @abstractmethod
    def apply(self) -> None:
        """Change the machine."""

    @abstractmethod
    def restore(self) -> Restored:
        """Put back what `apply` changed; also right when it was not, or only half, applied. Safe to repeat.

        Raises:
            MissingError: what was changed is not there any more: nothing to put back.
            XskitError: it could not be put back.
        """

    def touches_home(self) -> bool:
        """Whether it lies in the namespace in which the journal was opened."""
        return getattr(self, "namespace", "") is None

    def record(self) -> dict[str, Any]:
        """What another process needs to restore this change."""
        return dataclasses.asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """The change again."""
        return cls(**record)

    def _fate(self, fate: Fate, detail: str = "") -> Restored:
        return Restored(str(self), fate, detail)


@dataclass
class ValueChange(Change):
    """A change of one value of the machine: `before` is the old one."""

    namespace: str | None = field(default=None, kw_only=True)
    before: Any = field(default=None, kw_only=True)

    @abstractmethod
    def wanted(self) -> Any:
        """The value to set."""

    @abstractmethod
    def read(self) -> Any:
        """The value now. Called inside the namespace."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Set the value. Called inside the namespace."""

    def check(self) -> bool:
        with inside(self.namespace):
            return bool(self.read() == self.wanted())

    def remember(self) -> None:
        with inside(self.namespace):
            self.before = self.read()

    def apply(self) -> None:
        with inside(self.namespace):
            self.write(self.wanted())

    def restore(self) -> Restored:
        with inside(self.namespace):
            now = self.read()
            if now == self.before:
                return self._fate(Fate.GONE)
            if now != self.wanted():
                return self._fate(Fate.KEPT, f"somebody else set it to {now}")
            self.write(self.before)
        return self._fate(Fate.RESTORED)
