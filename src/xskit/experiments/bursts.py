"""UDP packets of many segments, as a sender with segmentation offload makes them: which segments get lost."""

from __future__ import annotations

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
_NUMBER = struct.Struct("!I")


@dataclass(frozen=True)
class Burst:
    """Segments. `runs`: stretches of segments that were lost next to each other; `seconds`: that sending took."""

    sent: int
    arrived: int
    runs: int
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        """Segments that did not arrive."""
        return self.sent - self.arrived

    @property
    def mean_run(self) -> float:
        """Segments of one stretch, on average; 0 without loss."""
        return self.lost / self.runs if self.runs else 0.0


def segmented(
    source: Host,
    target: Host,
    *,
    packets: int,
    segments: int,
    segment_bytes: int,
    pause_s: float = PAUSE_S,
    owd_s: float = 0.0,
) -> Burst:
    """Send packets that the kernel, or nobody before the receiver, cuts into numbered segments.

    Args:
        packets: how many.
        segments: of each packet.
        segment_bytes: of each segment.
        pause_s: between two packets.
        owd_s: how long the first may take.
    """
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
        begun = time.monotonic()
        for packet in range(packets):
            numbers = range(packet * segments, (packet + 1) * segments)
            sender.send(b"".join(_NUMBER.pack(number).ljust(segment_bytes, b"\0") for number in numbers))
            time.sleep(pause_s)
            _drain(receiver, came)
        seconds = time.monotonic() - begun
        sent = packets * segments
        receiver.settimeout(PATIENCE_S + owd_s)
        while len(came) < sent and _drain(receiver, came, one=True):
            receiver.settimeout(PATIENCE_S)
    lost = sorted(set(range(sent)) - came)
    runs = sum(1 for at, number in enumerate(lost) if at == 0 or lost[at - 1] != number - 1)
    return Burst(sent, len(came), runs, seconds)


def _drain(receiver: socket.socket, came: set[int], *, one: bool = False) -> bool:
    """Take what is there, or wait for `one` as long as the socket does; whether there was any."""
    some = False
    with suppress(BlockingIOError, TimeoutError):
        while not (one and some):
            data = receiver.recv(65536)
            some = True
            came.add(_NUMBER.unpack_from(data)[0])
    return some
