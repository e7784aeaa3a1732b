"""The base of every error: one sentence that names the cause, one command that mends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

__all__ = ["DeviceError", "KernelError", "PrivilegeError", "Setting", "UsageError", "XskitError"]


class Setting(str):
    """A remedy that is a setting. As text it is written for Python, `mode='native'`; other interfaces write it anew.

    `words` is what stands around it, with {} in its place.
    """

    name: str
    value: Any
    words: str

    def __new__(cls, name: str, value: Any, words: str = "{}") -> Self:
        made = super().__new__(cls, words.format(f"{name}={value!r}"))
        made.name, made.value, made.words = name, value, words
        return made

    def written(self, write: Callable[[str, Any], str]) -> str:
        """The remedy, with the setting as `write(name, value)` has it."""
        return self.words.format(write(self.name, self.value))


class XskitError(Exception):
    """Something failed for a reason the user can read.

    `cause` is one sentence; `remedy`, where there is one, a command or a setting that mends it.
    The command line prints both and ends with `exit_code`.
    """

    exit_code = 1

    def __init__(self, cause: str, *, remedy: str | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return self.cause if self.remedy is None else f"{self.cause}\n  try: {self.remedy}"


class UsageError(XskitError):
    """What the user wrote cannot be meant: unknown key, wrong unit, impossible value."""

    exit_code = 2


class PrivilegeError(XskitError):
    """The process lacks a capability; `remedy` names it."""


class DeviceError(XskitError):
    """A network interface is missing, busy, down, or cannot do what was asked."""


class KernelError(XskitError):
    """The kernel refused: the cause carries the system call, the errno and what it means here."""
