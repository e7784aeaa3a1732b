"""What one packet costs in sendto: a TX ring of so many packets, one call, and what the kernel did meanwhile.

The same calls give the same counts, which makes this the way to compare kernels where a clock counts instructions.
"""

from __future__ import annotations

import socket
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from xskit import libc
from xskit.bench.bed import Place
from xskit.bench.copies import CopyCount
from xskit.bench.settings import Case
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

__all__ = ["Sends", "count_sends"]

PACKETS = 32
"""The most that one call sends on all kernels (TX_BATCH_SIZE, net/xdp/xsk.c)."""
ENTRIES = 2048
"""Of TX: a multiple, so that what one call sends always lies in one piece."""
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
        sender = stack.enter_context(Socket(place.near[0], umem=umem, rx=0, tx=ENTRIES, mode=case.xdp, program=None))
        addresses = umem.take(PACKETS)
        for address in addresses.tolist():
            umem.view(address, len(packet))[:] = packet
        _round(sender, addresses, len(packet))
        with CopyCount() as copies:
            costs = [_round(sender, addresses, len(packet)) for _ in range(rounds)]
        idle = statistics.median(_call(sender.fd) for _ in range(rounds))
    ns = (statistics.median(costs) - idle) / PACKETS
    known: dict[str, float] | None = None
    if copies.calls is not None:
        known = {name: calls / (rounds * PACKETS) for name, calls in copies.calls.items()}
    return Sends(ns, len(packet), known, copies.why)


def _round(sender: Socket, addresses: np.ndarray[Any, Any], length: int) -> int:
    """The time of the calls that sent them; waits until all frames are back."""
    entries = sender.tx.reserve(PACKETS)
    entries["address"], entries["length"], entries["options"] = addresses, length, 0
    sender.tx.submit(PACKETS)
    cost, back = 0, 0
    deadline = time.monotonic() + PATIENCE_S
    while back < PACKETS and time.monotonic() < deadline:
        if sender.tx.free < ENTRIES:
            cost += _call(sender.fd)
        back += sender.completion.release(len(sender.completion.peek(PACKETS)))
    return cost


def _call(fd: int) -> int:
    """One sendto without data: the kernel sends what is in TX."""
    before = time.monotonic_ns()
    libc.shared.sendto(fd, None, 0, socket.MSG_DONTWAIT, None, 0)
    return time.monotonic_ns() - before
