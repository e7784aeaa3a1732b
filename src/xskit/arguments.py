"""Checks numbers and words that callers pass: an impossible one raises a UsageError that names the argument."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Collection
from typing import Any

from xskit.errors import Setting, UsageError

__all__ = ["choice", "literal", "seconds", "text", "whole"]

_LONGEST = 40
"""Characters of a value that a sentence shows."""


def literal(value: object) -> str:
    """The value as Python writes it, cut where it is long."""
    try:
        words = repr(value)
    except ValueError:  # an integer of more digits than Python turns into text
        return "a number of thousands of digits"
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."


def whole(name: str, value: Any, least: int, most: int, *, remedy: str | None = None) -> int:
    """A whole number in a range; other integer types, such as NumPy's, become int.

    In `remedy`, {} stands for the nearest number in the range. Without `remedy`, the error suggests that number.

    Raises:
        UsageError: it is something else, or out of the range.
    """
    if type(value) is int and least <= value <= most:  # nearly always
        return value
    number = None if isinstance(value, bool) or not hasattr(value, "__index__") else operator.index(value)
    if number is not None and least <= number <= most:
        return number
    nearest = most if number is not None and number > most else least
    mended = Setting(name, nearest) if remedy is None else remedy.format(nearest)
    if number is None:
        raise UsageError(f"{name} must be a whole number, not {literal(value)}", remedy=mended)
    raise UsageError(f"{name} must be between {least} and {most}, not {literal(number)}", remedy=mended)


def seconds(name: str, value: Any) -> float | None:
    """Seconds to wait, at least 0. None means for ever, and so does more than the operating system can wait.

    Raises:
        UsageError: it is not a number, is NaN, or is negative.
    """
    if value is None or (type(value) is float and 0 <= value <= threading.TIMEOUT_MAX):
        return value
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        number = math.nan
    if not number >= 0:
        raise UsageError(f"{name} must be a number of seconds, 0 or more, not {literal(value)}", remedy=f"{name}=1.0")
    return None if number > threading.TIMEOUT_MAX else number


def choice(name: str, value: Any, choices: Collection[str]) -> str:
    """One of some words.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, str) or value not in choices:
        raise UsageError(
            f"{name} must be one of {', '.join(choices)}, not {literal(value)}",
            remedy=Setting(name, next(iter(choices))),
        )
    return value


def text(name: str, value: Any) -> str:
    """Text that the operating system accepts: it can be encoded and has no NUL.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(value, str) or "\0" in value or not _encodable(value):
        raise UsageError(f"{name} must be printable text, not {literal(value)}")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
