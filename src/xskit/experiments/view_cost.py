"""What the packet view costs: the same packets read by it, and by hand out of the rings, in Python.

The mailing list's question was what it costs an application to have several buffers hidden from it. The view (xsk/
packet.py) makes one object a packet and a list of its parts; by hand there are descriptors, and a bit that says whether
one more follows. Frames go straight back to FILL in all ways. CPU time is that of the reading thread alone.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xskit.abi.xdp import DescriptorOption
from xskit.bench.bed import Bed, Place
from xskit.bench.far import Socketed
from xskit.bench.packet import FCS_BYTES
from xskit.bench.settings import Case
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

__all__ = ["ViewCost", "view_costs"]

MEMORY_BYTES = 8 << 20
SHORT_PACKET = 1500
LIMIT = 64
_CONTINUES = int(DescriptorOption.PKT_CONTD)

Reader = Callable[[Socket], int]
"""Takes what is there; returns how many packets."""


@dataclass(frozen=True)
class ViewCost:
    """CPU time of reading a packet in one way."""

    BY_HAND: ClassVar[str] = "descriptors by hand, nothing read"
    VIEWED: ClassVar[str] = "packet view, length"
    how: str
    frame_size: int
    packet_bytes: int
    frames_each: int
    cpu_ns: float


def view_costs(seconds: float, repeat: int, packet_bytes: int) -> list[ViewCost]:
    """Measure, in turns, packets of several frames and of one."""
    found = []
    with Bed() as bed:
        for size, length in ((4096, packet_bytes), (2048, packet_bytes), (4096, SHORT_PACKET)):
            case = Case(
                "rxdrop",
                xdp="native",
                packet_size=length + FCS_BYTES,
                frame_size=size,
                frames=MEMORY_BYTES // size,
                multi_buffer=True,
            )
            place = bed.place(case)
            times: dict[str, list[float]] = {how: [] for how in _READERS}
            for _ in range(repeat):
                for how, reader in _READERS.items():
                    times[how].append(_measure(case, place, reader, seconds))
            frames = -(-length // (size - 256))
            found += [ViewCost(how, size, length, frames, statistics.median(each)) for how, each in times.items()]
    return found


def _measure(case: Case, place: Place, reader: Reader, seconds: float) -> float:
    with place.inside(), ExitStack() as stack:
        umem = stack.enter_context(Umem(case.frames, case.frame_size, huge=True))
        opened = stack.enter_context(Socket(place.near[0], 0, umem=umem, tx=0, mode="native"))
        cpus = sorted(os.sched_getaffinity(0))
        source = Socketed("txonly", place.far[0], case, cpus[0], receives=False)
        stack.callback(source.close)
        source.start()
        _read(opened, reader, seconds / 5)
        packets, cpu_ns = _read(opened, reader, seconds)
        source.halt()
    return cpu_ns / max(packets, 1)


def _read(opened: Socket, reader: Reader, seconds: float) -> tuple[int, int]:
    """(packets, CPU ns of the rounds that brought packets): waiting for them is not counted."""
    deadline = time.monotonic() + seconds
    packets = cpu_ns = 0
    while time.monotonic() < deadline:
        before = time.thread_time_ns()
        count = reader(opened)
        if count:
            cpu_ns += time.thread_time_ns() - before
            packets += count
    return packets, cpu_ns


def _by_hand(opened: Socket) -> int:
    """Take descriptors, count those that end a packet, give the frames back."""
    taken = _take(opened)
    _give_back(opened, taken)
    return sum(1 for _, _, options in taken if not options & _CONTINUES)


def _by_hand_joined(opened: Socket) -> int:
    """As by hand, and put the bytes of each packet together."""
    umem, taken = opened.umem, _take(opened)
    count, parts = 0, []
    for address, length, options in taken:
        parts.append(umem.view(address, length))
        if not options & _CONTINUES:
            _ = b"".join(parts)
            parts = []
            count += 1
    _give_back(opened, taken)
    return count


def _take(opened: Socket) -> list[tuple[int, int, int]]:
    """(address, length, options) of what lies in RX."""
    taken: list[tuple[int, int, int]] = opened.rx.peek(4 * LIMIT).tolist()
    opened.rx.release(len(taken))
    return taken


def _give_back(opened: Socket, taken: list[tuple[int, int, int]]) -> None:
    """Their frames go to FILL, where they came from."""
    addresses = np.array([address for address, _, _ in taken], np.uint64)
    while len(addresses):
        entries = opened.fill.reserve(len(addresses))
        entries[:] = addresses[: len(entries)]
        opened.fill.submit(len(entries))
        addresses = addresses[len(entries) :]


def _viewed(opened: Socket) -> int:
    """The packet view, asked for the length only."""
    packets = opened.receive(timeout=0, limit=LIMIT)
    for packet in packets:
        _ = packet.length
    return len(packets)


def _viewed_whole(opened: Socket) -> int:
    """The packet view, and all of its bytes."""
    packets = opened.receive(timeout=0, limit=LIMIT)
    for packet in packets:
        _ = bytes(packet)
    return len(packets)


_READERS: dict[str, Reader] = {
    ViewCost.BY_HAND: _by_hand,
    ViewCost.VIEWED: _viewed,
    "descriptors by hand, bytes joined": _by_hand_joined,
    "packet view, bytes(packet)": _viewed_whole,
}
