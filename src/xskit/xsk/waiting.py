"""Waiting for packets: in a call, in asyncio, and in trio, whichever runs; and being woken."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from xskit._fork import not_inherited
from xskit.closing import Closing
from xskit.errors import UsageError

__all__ = ["Waiting"]


class Waiting(Closing):
    """Sleep until packets come, or until `wake` is called from another thread or a signal handler.

    Attributes:
        fd: an epoll descriptor that is readable then.

    Args:
        fds: of the sockets.
    """

    def __init__(self, *fds: int) -> None:
        self._alarm = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        """Not connected, so poll finds that it hangs up: epoll is told of it when all are to wake up. An eventfd would
        be a number only, which nobody closes after an exception in the wrong place."""
        self._epoll = select.epoll()
        for fd in fds:
            with _closed_meanwhile():
                self._epoll.register(fd, select.EPOLLIN)
        self.fd = self._epoll.fileno()
        self._closing = False
        self._sleeper: object | None = None
        not_inherited(self, Waiting.close)

    def wait(self, seconds: float) -> None:
        """At most so long."""
        try:  # _closed_meanwhile would take longer than poll
            self._epoll.poll(max(0.0, seconds), 1)
        except (ValueError, OSError) as error:
            _pass_if_closed(error)

    def wake(self) -> None:
        """For good: from now on nobody sleeps."""
        with _closed_meanwhile(), suppress(FileExistsError):
            self._epoll.register(self._alarm, 0)

    def close(self) -> None:
        """Twice is fine. A coroutine that waits is woken, and the descriptor is closed when it has left: its loop must
        not take another one of the same number for this one."""
        self._closing = True
        if self._sleeper is not None:
            self.wake()
        else:
            self._epoll.close()
            self._alarm.close()

    async def readable(self, seconds: float) -> bool:
        """The same for a coroutine; False where another one is waiting.

        Raises:
            UsageError: neither asyncio nor trio runs it.
        """
        sleep = _sleep_in_trio if _in_trio() else _sleep_in_asyncio
        if self._closing:
            return True
        if self._sleeper is not None:
            return False
        self._sleeper = object()
        try:
            await sleep(self.fd, seconds)
        finally:
            self._sleeper = None
            if self._closing:
                self.close()
        return True


def _in_trio() -> bool:
    """Whether trio runs the coroutine. Raises UsageError where nothing does that is known here."""
    if trio := sys.modules.get("trio"):
        with suppress(RuntimeError):
            trio.lowlevel.current_task()
            return True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError("asynchronous receiving needs asyncio or trio", remedy="asyncio.run(main())") from None
    return False


async def _sleep_in_trio(fd: int, seconds: float) -> None:
    trio = sys.modules["trio"]
    with trio.move_on_after(seconds):
        await trio.lowlevel.wait_readable(fd)


async def _sleep_in_asyncio(fd: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(fd, _settle, ready)
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(ready, seconds)
    finally:
        loop.remove_reader(fd)


@contextmanager
def _closed_meanwhile() -> Iterator[None]:
    """Another thread, or the handler of a signal, may have closed what this works on."""
    try:
        yield
    except (ValueError, OSError) as error:
        _pass_if_closed(error)


def _pass_if_closed(error: ValueError | OSError) -> None:
    """Raise what is not said of something closed: by Python a ValueError, by the kernel EBADF."""
    if isinstance(error, OSError) and error.errno != errno.EBADF:
        raise error


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
