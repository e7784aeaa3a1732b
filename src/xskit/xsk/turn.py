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
from weakref import WeakMethod

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
    """

    __slots__ = ("_doing", "_of", "_token")

    def __init__(self, doing: str, of: str) -> None:
        self._doing = doing
        self._of = of
        self._token: Token = {"over": True}
        """The last one, or one before it: those behind it are linked to it."""

    def take(self, token: Token) -> None:
        """Begin a call; the caller keeps the token in a local variable until `give`.

        Raises:
            UsageError: another call is inside.
        """
        if not self.try_take(token):
            raise self.refusal()

    def try_take(self, token: Token) -> bool:
        """The same, but False instead of an error."""
        last = self._token
        while True:
            last = _last(last)
            if "over" not in last and _is_running(last):
                return False
            if last.setdefault("after", token) is token:  # of several calls that come now, one
                self._token = token
                return True

    def refusal(self) -> UsageError:
        """What a second call is told."""
        return UsageError(
            f"another call is {self._doing} on {self._of}, and only one can at a time",
            remedy="threading.Lock() around the calls",
        )

    @property
    def taken(self) -> bool:
        """Whether a call is inside."""
        last = _last(self._token)
        return "over" not in last and _is_running(last)

    @staticmethod
    def give(token: Token) -> None:
        """End the call; without a turn taken, nothing."""
        token["over"] = True


class Inside:
    """A context in which no other call is at work on one side of a socket.

    Args:
        turn: the side.
        check: raises UsageError where the socket is closed.
        leave: called at the end.
    """

    __slots__ = ("_check", "_leave", "_token", "_turn")

    def __init__(self, turn: Turn, check: Callable[[], None], leave: Callable[[], None]) -> None:
        self._turn, self._check, self._leave = turn, check, leave
        self._token = new_token()

    def __enter__(self) -> Token:
        """The token; keep it in a local variable for as long as the context lasts."""
        self._check()
        self._turn.take(self._token)
        return self._token

    def __exit__(self, *_error: object) -> None:
        self._turn.give(self._token)
        self._leave()


def weakly(make: Callable[[], Inside], name: str) -> Callable[[], Inside]:
    """The same method of a socket of that name, without keeping the socket: for what the socket itself keeps.

    Raises, when called:
        UsageError: the socket was forgotten.
    """
    method = WeakMethod(make)

    def inside() -> Inside:
        alive = method()
        if alive is None:
            raise UsageError(f"the socket of {name} is closed")
        return alive()

    return inside


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
