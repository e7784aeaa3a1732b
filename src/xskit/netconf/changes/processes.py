"""The change that starts a command inside a network namespace; to restore it is to end all that it started."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from xskit.errors import KernelError
from xskit.netconf import pids
from xskit.netconf.changes.base import Change, Fate, Restored
from xskit.netconf.namespaces import Namespace, identity
from xskit.netconf.processes import spawn_in

__all__ = ["StartedProcess"]

_MARK = "XSKIT_PROCESS"
_GRACE_S = 2.0
_BIRTH_S = 1.0
# Looked for again each time: one may have been born while the others were looked for.
_SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL, signal.SIGKILL)


@dataclass
class StartedProcess(Change):
    """A command in a network namespace. After `apply`, `process` is its Popen; `options` are those of Popen.

    `namespace` None is the one in which the journal was opened.

    The command and all that it starts carry a mark in their environment. So they are found even if xskit was killed
    between the start of the command and the writing down of its pid; and so is a server that outlives the command.
    """

    argv: list[str]
    namespace: str | None
    hosts: dict[str, list[str]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict, kw_only=True)
    mark: str = field(default_factory=lambda: uuid.uuid4().hex, kw_only=True)
    pid: int | None = field(default=None, kw_only=True)
    start: int | None = field(default=None, kw_only=True)
    process: subprocess.Popen[Any] | None = field(default=None, init=False, compare=False)

    def __str__(self) -> str:
        return " ".join(["process", *self.argv[:1]]) + (f" in {self.namespace}" if self.namespace is not None else "")

    def record(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("argv", "namespace", "mark", "pid", "start")}

    def check(self) -> bool:
        return self.process is not None

    def apply(self) -> None:
        environment = self.options.get("env")
        marked = {**(os.environ if environment is None else environment), _MARK: self.mark}
        options = {**self.options, "env": marked}
        self.process = spawn_in(self.namespace, self.argv, hosts=self.hosts, **options)
        self.pid = self.process.pid
        self.start = pids.start_time(self.pid)

    def restore(self) -> Restored:
        if self.pid is None:
            self._await_birth()
        fate = Fate.GONE
        for number in _SIGNALS:
            running = self._running()
            if not running:
                break
            fate = Fate.RESTORED
            _end(running, number)
            if self.process is not None:
                self.process.poll()  # a child that ended is a zombie until it is asked
        else:
            if running := self._running():
                raise KernelError(f"process {min(running)} of {self.argv[0]} does not end")
        return self._fate(fate)

    def _await_birth(self) -> None:
        """xskit died while it started the command: a forked child has the mark only when it becomes the command."""
        deadline = time.monotonic() + _BIRTH_S
        while not self._running() and self._anybody_inside() and time.monotonic() < deadline:
            time.sleep(0.001)

    def _anybody_inside(self) -> bool:
        number = identity() if self.namespace is None else identity(Namespace(self.namespace).path)
        return number is not None and any(identity(f"/proc/{pid}/ns/net") == number for pid in pids.all_pids())

    def _running(self) -> set[int]:
        running = _marked(f"{_MARK}={self.mark}".encode())
        if self.pid is not None and self.start is not None and pids.is_running(self.pid, self.start):
            running.add(self.pid)
        return running


def _marked(mark: bytes) -> set[int]:
    found = set()
    for pid in pids.all_pids():
        with suppress(OSError):
            if pid != os.getpid() and mark in pids.environment(pid):
                found.add(pid)
    return found


def _end(processes: set[int], number: signal.Signals) -> None:
    """Send a signal to each, and wait until they are dead or the time of grace is over."""
    waiting: set[int] = set()
    for pid in processes:
        with suppress(ProcessLookupError):
            waiting.add(os.pidfd_open(pid))
    poll = select.poll()
    try:
        for fd in waiting:
            poll.register(fd, select.POLLIN)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
        deadline = time.monotonic() + _GRACE_S
        left = len(waiting)
        while left and (seconds := deadline - time.monotonic()) > 0:
            for fd, _ in poll.poll(seconds * 1000):
                poll.unregister(fd)
                left -= 1
    finally:
        for fd in waiting:
            os.close(fd)
