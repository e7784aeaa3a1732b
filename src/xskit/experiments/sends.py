"""What one packet costs in sendto: a TX ring of so many packets, one call, and what the kernel did meanwhile.

The same calls give the same counts, which makes this the way to compare kernels where a clock counts instructions.
"""

from __future__ import annotations

import socket
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

from xskit import libc
from xskit.bench.bed import Place
from xskit.bench.copies import CopyCount
from xskit.bench.settings import Case
from xskit.netconf.interfaces import look
from xskit.xsk.bound import BoundSocket
from xskit.xsk.mapping import MappedRing
from xskit.xsk.umem import Umem

__all__ = ["Sends", "count_sends"]

PACKETS = 32
"""The most that one call sends on all kernels (TX_BATCH_SIZE, net/xdp/xsk.c)."""
PATIENCE_S = 2.0


@dataclass(frozen=True)
class Sends:
    """Of one packet: ns (or instructions) in sendto, and how many times it was copied by which function; None where
    nobody knows, and why."""

    ns: float
    length: int
    copies: dict[str, float] | None
    why: str

    @property
    def copied_bytes(self) -> float | None:
        """Bytes copied of one packet."""
        return None if self.copies is None else sum(self.copies.values()) * self.length


def count_sends(case: Case, place: Place, rounds: int) -> Sends:
    """Send the case's packet `rounds` times 32 times from the first interface of the place."""
    packet = case.packet.build()
    with place.inside(), ExitStack() as stack:
        umem = stack.enter_context(Umem(PACKETS, case.frame_size))
        opened = stack.enter_context(
            BoundSocket(look(place.near[0]), 0, umem, rx=0, tx=2048, fill=2048, completion=2048, mode=case.xdp)
        )
        for frame in range(PACKETS):
            umem.view(frame * case.frame_size, len(packet))[:] = packet
        tx, completion = opened.rings.tx, opened.rings.completion
        assert tx is not None
        assert completion is not None
        descriptors = [(frame * case.frame_size, len(packet), 0) for frame in range(PACKETS)]
        _round(opened.fd, tx, completion, descriptors)
        with CopyCount() as copies:
            costs = [_round(opened.fd, tx, completion, descriptors) for _ in range(rounds)]
        idle = statistics.median(_call(opened.fd) for _ in range(rounds))
    ns = (statistics.median(costs) - idle) / PACKETS
    known: dict[str, float] | None = None
    if copies.calls is not None:
        known = {name: calls / (rounds * PACKETS) for name, calls in copies.calls.items()}
    return Sends(ns, len(packet), known, copies.why)


def _round(fd: int, tx: MappedRing, completion: MappedRing, descriptors: list[tuple[int, int, int]]) -> int:
    """The time of the calls that sent them; waits until all frames are back."""
    tx.put_descriptors(descriptors)
    cost, back = 0, 0
    deadline = time.monotonic() + PATIENCE_S
    while back < len(descriptors) and time.monotonic() < deadline:
        if tx.pending():
            cost += _call(fd)
        back += len(completion.take_addresses(PACKETS))
    return cost


def _call(fd: int) -> int:
    """One sendto without data: the kernel sends what is in TX."""
    before = time.monotonic_ns()
    libc.shared.sendto(fd, None, 0, socket.MSG_DONTWAIT, None, 0)
    return time.monotonic_ns() - before
