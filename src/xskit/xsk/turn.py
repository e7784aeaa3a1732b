"""One call at a time on each side of a socket, and a close that waits for the call inside.

A call that is over leaves no trace, however it ended: even where an exception struck between any two lines of it. So
a turn is taken by putting a token in place, in one step, and whoever finds somebody else's token looks whether the
call that put it there is still running.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType

from xskit.errors import UsageError

__all__ = ["Turn"]

Token = list[int]
"""A list of its own for each call, with the thread's number in it."""


class Turn:
    """The right to receive, or to send, on one socket.

    Args:
        doing: "receiving" or "sending", for the sentence.
        of: the socket, as it calls itself.
    """

    __slots__ = ("_doing", "_inside", "_of")

    def __init__(self, doing: str, of: Callable[[], str]) -> None:
        self._doing = doing
        self._of = of
        self._inside: dict[None, Token] = {}

    def take(self, token: Token) -> None:
        """Begin a call; the caller keeps the token in a local variable until `give`.

        Raises:
            UsageError: another call is inside.
        """
        while (inside := self._inside.setdefault(None, token)) is not token:
            if _is_running(inside):
                raise UsageError(
                    f"another call is {self._doing} on {self._of()}, and only one can at a time",
                    remedy="threading.Lock() around the calls",
                )
            self._inside.pop(None, None)

    def try_take(self, token: Token) -> bool:
        """The same, but False instead of an error."""
        try:
            self.take(token)
        except UsageError:
            return False
        return True

    def give(self, token: Token) -> None:
        """End the call; without a turn taken, nothing."""
        if self._inside.get(None) is token:
            del self._inside[None]


def new_token() -> Token:
    """A token for one call."""
    return [get_ident()]


def _is_running(token: Token) -> bool:
    """Whether the call that made a token has not returned yet: its frame is on its thread's stack."""
    frame: FrameType | None = sys._current_frames().get(token[0])
    while frame is not None:
        if frame.f_code.co_filename != __file__ and any(value is token for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False
