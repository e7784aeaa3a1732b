"""The other ends of the wires: the guest's own stack, by packet sockets, and packets that say which they are.

eth0 --- eth1   [xskit]   eth2 --- eth3
near                               far
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from xskit.netconf.interfaces import LinkState, Watch

ETHER_TYPE = 0x88B5  # IEEE 802, local experimental
NEAR, INNER, OUTER, FAR = "eth0", "eth1", "eth2", "eth3"
PATIENCE_S = 20.0

_PACKET_OUTGOING = 4
_HEADER = struct.Struct("!6s6sHI")
_BROADCAST = b"\xff" * 6


def packet(number: int, length: int = 100) -> bytes:
    """A broadcast packet with its number, and behind it a pattern of that."""
    head = _HEADER.pack(_BROADCAST, b"\x02\0\0\0\0\x01", ETHER_TYPE, number)
    return head + bytes((number * 7 + at) % 251 for at in range(length - len(head)))


def packets(count: int, *, first: int = 0, lengths: tuple[int, ...] = (60, 100, 777, 1514)) -> list[bytes]:
    """Numbered packets of these lengths in turn."""
    return [packet(number, lengths[number % len(lengths)]) for number in range(first, first + count)]


def number_of(content: bytes) -> int:
    """The number in a packet of ours; -1 for another's."""
    _, _, kind, number = _HEADER.unpack_from(content)
    return number if kind == ETHER_TYPE else -1


class End:
    """One NIC as the guest's stack has it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind((name, ETHER_TYPE))

    def send(self, contents: list[bytes], *, pause_every: int = 32) -> None:
        """Send, with a breath now and then: an emulated NIC has small rings. From one CPU: another may mean another
        queue, and then packets overtake."""
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(allowed)})
        try:
            for at, content in enumerate(contents):
                self._send(content)
                if at % pause_every == pause_every - 1:
                    time.sleep(0.002)
        finally:
            os.sched_setaffinity(0, allowed)

    def _send(self, content: bytes) -> None:
        while True:
            try:
                self._socket.send(content)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                time.sleep(0.001)
            else:
                return

    def receive(self, count: int, *, patience_s: float = PATIENCE_S) -> list[bytes]:
        """What comes, until there are so many or nothing has come for long."""
        got: list[bytes] = []
        deadline = time.monotonic() + patience_s
        while len(got) < count and (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                content, address = self._socket.recvfrom(65536)
            except TimeoutError:
                break
            if address[2] != _PACKET_OUTGOING:
                got.append(content)
                deadline = time.monotonic() + patience_s
        return got

    def drain(self) -> None:
        """Forget what has come."""
        self.receive(1 << 30, patience_s=0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()


def cross(
    contents: list[bytes], send: Callable[[list[bytes]], None], receive: Callable[[int], list[bytes]], window: int = 24
) -> list[bytes]:
    """Send a few at a time, each lot when the one before has come: an emulated NIC loses what comes in a burst."""
    got: list[bytes] = []
    for at in range(0, len(contents), window):
        lot = contents[at : at + window]
        send(lot)
        came = receive(len(lot))
        got += came
        if len(came) < len(lot):
            break
    return got


def padded(contents: list[bytes]) -> list[bytes]:
    """As they are on the wire: no shorter than 60 bytes."""
    return [content.ljust(60, b"\0") for content in contents]


def compare(came: list[bytes], wanted: list[bytes]) -> None:
    """Fails, with what is wrong in a few words."""
    if came == wanted:
        return
    numbers, expected = [number_of(content) for content in came], [number_of(content) for content in wanted]
    if numbers != expected:
        lost = sorted(set(expected) - set(numbers))
        raise AssertionError(f"{len(came)} of {len(wanted)} came, {lost[:20]} did not, in this order: {numbers[:80]}")
    got, asked = next(pair for pair in zip(came, wanted, strict=True) if pair[0] != pair[1])
    raise AssertionError(
        f"packet {number_of(asked)} came as {len(got)} bytes {got[:64].hex()}, not {len(asked)} {asked[:64].hex()}"
    )


def await_carrier(*names: str) -> None:
    """Some drivers reset the NIC when a program comes or goes."""
    with Watch() as watch:
        for name in names:
            assert watch.wait(name, timeout_s=PATIENCE_S) is LinkState.UP, f"{name} has no carrier"


@contextmanager
def ends(*names: str) -> Iterator[list[End]]:
    """Several ends."""
    made = [End(name) for name in names]
    try:
        yield made
    finally:
        for end in made:
            end.__exit__(None, None, None)


def quiet() -> None:
    """No IPv6, so that the stack has nothing to say by itself."""
    for place in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{place}/disable_ipv6").write_text("1")


def driver(name: str) -> str:
    """The driver of a NIC."""
    return Path(f"/sys/class/net/{name}/device/driver").resolve().name
