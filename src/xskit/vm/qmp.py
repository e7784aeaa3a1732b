"""QEMU's monitor (QMP, docs/interop/qmp-spec.rst): NICs unplugged, plugged in again, and their links taken down."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from xskit.vm.errors import GuestError

__all__ = ["QmpClient"]

_ANSWER_S = 10.0
_UNPLUG_S = 30.0


class QmpClient:
    """One connection to the monitor, used from one thread.

    Raises (all methods):
        GuestError: QEMU refused, gave no answer, or has ended.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = b""
        self._events: list[dict[str, Any]] = []
        self._greeted = False

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a command and return what it returns."""
        if not self._greeted:
            self._next(time.monotonic() + _ANSWER_S)  # {"QMP": ...}
            self._greeted = True
            self.execute("qmp_capabilities")
        message = {"execute": command, **({"arguments": dict(arguments)} if arguments else {})}
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise GuestError("QEMU has ended") from error
        deadline = time.monotonic() + _ANSWER_S
        while True:
            answer = self._next(deadline)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise GuestError(f"QEMU refused {command}: {answer['error'].get('desc', 'no reason given')}")
            self._events.append(answer)

    def unplug(self, device: str) -> None:
        """Take a device out, and wait until the guest's driver has let it go."""
        self._events.clear()
        self.execute("device_del", {"id": device})
        deadline = time.monotonic() + _UNPLUG_S
        while True:
            for event in self._events:
                if event.get("event") == "DEVICE_DELETED" and event.get("data", {}).get("device") == device:
                    return
            self._events = [self._next(deadline, waiting_for=f"the guest to let {device} go")]

    def plug(self, arguments: Mapping[str, str | int | bool]) -> None:
        """Put a device in; arguments as of device_add, which wants booleans and numbers as such."""
        self.execute("device_add", arguments)

    def set_link(self, device: str, *, up: bool) -> None:
        """Take the carrier of a NIC away, or give it back."""
        self.execute("set_link", {"name": device, "up": up})

    def _next(self, deadline: float, waiting_for: str = "QEMU's answer") -> dict[str, Any]:
        while b"\n" not in self._buffer:
            self._connection.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                more = self._connection.recv(65536)
            except TimeoutError as error:
                raise GuestError(f"waited for {waiting_for} in vain") from error
            except OSError as error:
                raise GuestError("QEMU has ended") from error
            if not more:
                raise GuestError("QEMU has ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        message = json.loads(line)
        assert isinstance(message, dict)
        return message

    def close(self) -> None:
        """Close the connection; twice is fine."""
        with suppress(OSError):
            self._connection.close()
