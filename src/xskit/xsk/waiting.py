"""Waiting for packets: in a call, in asyncio, and in trio, whichever runs; and being woken."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from contextlib import suppress

from xskit.errors import UsageError

__all__ = ["Waiting"]


class Waiting:
    """Sleep until packets come, or until `wake` is called from another thread or a signal handler.

    Attributes:
        fd: an epoll descriptor that is readable then.

    Args:
        fds: of the sockets.
    """

    def __init__(self, *fds: int) -> None:
        self._alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        for fd in fds:
            self._epoll.register(fd, select.EPOLLIN)
        self._epoll.register(self._alarm, select.EPOLLIN)
        self.fd = self._epoll.fileno()

    def wait(self, seconds: float) -> None:
        """At most so long."""
        if not self._epoll.closed:
            self._epoll.poll(max(0.0, seconds))

    def wake(self) -> None:
        """For good: from now on nobody sleeps."""
        if not self._epoll.closed:
            os.eventfd_write(self._alarm, 1)

    def close(self) -> None:
        """Twice is fine."""
        if not self._epoll.closed:
            self._epoll.close()
            os.close(self._alarm)

    async def readable(self, seconds: float) -> None:
        """The same for a coroutine.

        Raises:
            UsageError: neither asyncio nor trio runs it.
        """
        if self._epoll.closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            trio = sys.modules.get("trio")
            if trio is None:
                raise UsageError("asynchronous receiving needs asyncio or trio", remedy="asyncio.run(main())") from None
            with trio.move_on_after(seconds):
                await trio.lowlevel.wait_readable(self.fd)
            return
        ready = loop.create_future()
        loop.add_reader(self.fd, _settle, ready)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(ready, seconds)
        finally:
            loop.remove_reader(self.fd)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
