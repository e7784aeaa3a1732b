"""A machine that is a dictionary, changes of it, and what a dead process leaves: what the journal is tested with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from xskit.errors import KernelError
from xskit.netconf.changes import Change, Fate
from xskit.netconf.namespaces import MissingError

MACHINE: dict[str, int] = {}
DEAD = "4194305-1-0.jsonl"  # one more than the largest pid there can be (PID_MAX_LIMIT)


def no_camera() -> None:
    """What happens after each step on the machine; a test may put a camera here."""


class Camera:
    look = staticmethod(no_camera)


@dataclass
class Poke(Change):
    """MACHINE[name] = value, in two steps, as real changes have them."""

    name: str
    value: int
    before: int | None = field(default=None, kw_only=True)
    serial: int | None = field(default=None, kw_only=True)
    trouble: str = field(default="", kw_only=True)

    def __str__(self):
        return f"poke {self.name}"

    def check(self):
        return MACHINE.get(self.name) == self.value

    def remember(self):
        self.before = MACHINE.get(self.name)

    def apply(self):
        MACHINE[self.name] = -1
        Camera.look()
        if self.trouble == "half":
            raise KernelError("half-way")
        MACHINE[self.name] = self.value
        self.serial = 7
        Camera.look()

    def restore(self):
        if self.trouble == "gone":
            raise MissingError("gone")
        if self.trouble == "stuck":
            raise KernelError("it is stuck")
        if MACHINE.get(self.name) not in (self.value, -1):
            return self._fate(Fate.KEPT if MACHINE.get(self.name) != self.before else Fate.GONE, "other")
        if self.before is None:
            del MACHINE[self.name]
        else:
            MACHINE[self.name] = self.before
        Camera.look()
        return self._fate(Fate.RESTORED)


@dataclass
class Make(Poke):
    exclusive = True

    def check(self):
        return self.name in MACHINE


@pytest.fixture(autouse=True, name="folder")
def journal_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XSKIT_RUN", str(tmp_path / "run"))
    MACHINE.clear()
    MACHINE["old"] = 1
    yield tmp_path / "run"
    Camera.look = staticmethod(no_camera)


def journals(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []


def leave(folder: Path, content: bytes, name: str = DEAD) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
