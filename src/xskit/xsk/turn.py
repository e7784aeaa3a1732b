"""One call at a time on each side of a socket, and a close that waits for the call inside.

A call that is over leaves no trace, however it ended: even where an exception struck between any two lines of it. So
a turn is taken by linking a token to the one before, in one step, and whoever finds a token of somebody else looks
whether the call that made it is still running.

    over --> over, or its call has ended --> the token of the call inside
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from xskit.errors import UsageError

__all__ = ["Inside", "Token", "Turn", "new_token"]

Token = dict[str, Any]
"""One for each call and turn. `thread`: number of the thread that runs it; `over`: true once the call has ended;
`after`: the token of the call that came next."""


class Turn:
    """The right to receive, or to send, on one socket.

    Args:
        doing: "receiving" or "sending", for the sentence.
        of: the socket or port, as it calls itself.

    Attributes:
        last: the token of the last call, or of one before it: those behind it are linked to it.
        at_end: called whenever a call is over; None: nothing is.
    """

    __slots__ = ("_doing", "_of", "at_end", "last")

    def __init__(self, doing: str, of: str) -> None:
        self._doing = doing
        self._of = of
        self.last: Token = {"over": True}
        self.at_end: Callable[[], None] | None = None

    def take(self, token: Token) -> None:
        """Begin a call; the caller keeps the token in a local variable until `give`.

        Raises:
            UsageError: another call is inside.
        """
        last = self.last
        if "over" in last and last.setdefault("after", token) is token:  # nearly always
            self.last = token
        elif not self.try_take(token):
            raise self.refusal()

    def try_take(self, token: Token) -> bool:
        """The same, but False instead of an error."""
        last = self.last
        while True:
            last = _last(last)
            if "over" not in last and _is_running(last):
                return False
            if last.setdefault("after", token) is token:  # of several calls that come now, one
                self.last = token
                return True

    def refusal(self) -> UsageError:
        """What a second call is told."""
        return UsageError(
            f"another call is {self._doing} on {self._of}, and only one can at a time",
            remedy="threading.Lock() around the calls",
        )

    def closed(self) -> UsageError:
        """What a call is told after the end."""
        return UsageError(f"the socket of {self._of} is closed")

    @property
    def taken(self) -> bool:
        """Whether a call is inside."""
        last = _last(self.last)
        return "over" not in last and _is_running(last)

    def give(self, token: Token) -> None:
        """End the call; without a turn taken, nothing."""
        token["over"] = True
        if (at_end := self.at_end) is not None:
            at_end()


class Inside:
    """A context in which no other call is at work on one side of a socket.

    Args:
        turn: the side.
        check: raises UsageError where the socket is closed.
    """

    __slots__ = ("_check", "_token", "_turn")

    def __init__(self, turn: Turn, check: Callable[[], None]) -> None:
        self._turn, self._check = turn, check
        self._token = new_token()

    def __enter__(self) -> Token:
        """The token; keep it in a local variable for as long as the context lasts."""
        self._check()
        self._turn.take(self._token)
        return self._token

    def __exit__(self, *_error: object) -> None:
        self._turn.give(self._token)


def new_token() -> Token:
    """A token for one call and one turn."""
    return {"thread": get_ident()}


def _last(token: Token) -> Token:
    """The token of the call that came last."""
    while (after := token.get("after")) is not None:
        token = after
    return token


def _is_running(token: Token) -> bool:
    """Whether the call that made a token has not returned yet: its frame is on its thread's stack."""
    frame: FrameType | None = sys._current_frames().get(token["thread"])
    while frame is not None:
        if frame.f_code.co_filename != __file__ and any(value is token for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False
