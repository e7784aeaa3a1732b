"""UDP packets of many segments, as a sender with segmentation offload makes them: which segments get lost."""

from __future__ import annotations

import select
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass

from xskit.lab.host import Host

__all__ = ["Burst", "segmented"]

UDP_SEGMENT = 103
"""Linux 4.18 (linux/udp.h)."""
SO_RCVBUFFORCE = 33
PORT = 7474
PAUSE_S = 0.002
PATIENCE_S = 3.0
INTRODUCTION_S, HELLO_EVERY_S = 15.0, 0.3
_NUMBER = struct.Struct("!I")
_HELLO = b"?"


@dataclass(frozen=True)
class Burst:
    """Segments. `runs`: stretches of segments that were lost next to each other."""

    sent: int
    arrived: int
    runs: int

    @property
    def lost(self) -> int:
        """Segments that did not arrive."""
        return self.sent - self.arrived

    @property
    def mean_run(self) -> float:
        """Segments of one stretch, on average; 0 without loss."""
        return self.lost / self.runs if self.runs else 0.0


def segmented(
    source: Host, target: Host, *, packets: int, segments: int, segment_bytes: int, pause_s: float = PAUSE_S
) -> Burst:
    """Send packets that the kernel, or nobody before the receiver, cuts into numbered segments."""
    with target.inside():
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with source.inside():
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    came: set[int] = set()
    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        receiver.bind(("0.0.0.0", PORT))
        receiver.setblocking(False)
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, segment_bytes)
        sender.connect((target.address, PORT))
        _introduce(sender, receiver)
        for packet in range(packets):
            numbers = range(packet * segments, (packet + 1) * segments)
            sender.send(b"".join(_NUMBER.pack(number).ljust(segment_bytes, b"\0") for number in numbers))
            time.sleep(pause_s)
            _drain(receiver, came)
        receiver.settimeout(PATIENCE_S)
        _drain(receiver, came)
    sent = packets * segments
    lost = sorted(set(range(sent)) - came)
    runs = sum(1 for at, number in enumerate(lost) if at == 0 or lost[at - 1] != number - 1)
    return Burst(sent, len(came), runs)


def _introduce(sender: socket.socket, receiver: socket.socket) -> None:
    """Until a datagram came through: before, the sender's kernel asks for a MAC address and keeps few packets."""
    give_up = time.monotonic() + INTRODUCTION_S
    while time.monotonic() < give_up:
        sender.send(_HELLO)
        ready, _, _ = select.select([receiver], [], [], HELLO_EVERY_S)
        if ready:
            return


def _drain(receiver: socket.socket, came: set[int]) -> None:
    """Take what is there, and what comes as long as the socket waits."""
    with suppress(BlockingIOError, TimeoutError):
        while True:
            data = receiver.recv(65536)
            if data != _HELLO:
                came.add(_NUMBER.unpack_from(data)[0])
