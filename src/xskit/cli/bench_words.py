"""Remedies in the words of `xskit bench`: what the library says in Python, here as the options that say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from xskit.errors import XskitError

__all__ = ["as_options", "in_options"]

_WORDS = (
    (r"\bmode='?([\w-]+)'?", r"--mode \1"),
    (r"\bframe_size=(\d+)(?: or (\d+))?", r"--frame-size \1"),
    (r"\bunaligned=True\b", "--unaligned"),
    (r"\bmulti_buffer=True\b", "--frags"),
    (r"\b(?:rx|tx|completion)=([1-9]\d*)\b", r"--ring \1"),
    (r"\bfill=(\d+)\b", r"--frames \1"),
    (r"^use generic mode$", "--mode skb"),
)


def as_options(remedy: str) -> str:
    """`mode='native'` is `--mode native` here."""
    for pattern, words in _WORDS:
        remedy = re.sub(pattern, words, remedy)
    return remedy


@contextmanager
def in_options() -> Iterator[None]:
    """Errors that leave the block have their remedy in options."""
    try:
        yield
    except XskitError as error:
        if error.remedy is not None:
            error.remedy = as_options(error.remedy)
        raise
