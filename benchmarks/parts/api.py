"""Part `api`: what a packet costs in Python, at each level of `xskit.Socket`, CPU time of the thread that receives.

    filled     RX is full of packets of 64 bytes; time until the last one is taken, the levels in turns
    bursts     32 packets every 300 us over a veth, in turns with recv() on an AF_PACKET socket on another veth
    forward    1024 packets that lie in RX leave by another veth, in turns with the loop of `xskit bench forward`

Under bursts every receiver looks at the EtherType of each packet.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from measure import Paired, Result, cpu_ns, interleave, median_interval, other_cpu, paired_result, pinned
from xskit.bench import far as far_ends
from xskit.bench.bed import Bed, Place
from xskit.bench.others import BUSY, OtherPrograms
from xskit.bench.programs import Counting
from xskit.bench.runner import prepared
from xskit.bench.settings import Case, Conditions
from xskit.engine.loop_thread import sleep_exactly
from xskit.netconf.interfaces import look
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

RING = 8192
FRAME_BYTES = 2048
BURST, INTERVAL_S = 32, 300e-6
PATIENCE_S = 1
FORWARD_BURST, PATIENCE_TURNS = 1024, 100
FORWARD_LIMITS = ((64, None), (256, 1.053), (1024, None))
"""Packets a call, and the limit of the ratio: 0.95 of the packets in the same time."""
ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
"""asm-generic/socket.h."""
ROOM_BYTES = 1 << 24
"""Of the AF_PACKET socket: it loses packets when the receiver wakes up late, otherwise."""
ETHER_TYPE = slice(12, 14)

Drain = Callable[[Socket], int]
"""Take packets until none is there; how many they were."""


# --- from filled rings ----------------------------------------------------------------------------------------------


def drain_packets(sock: Socket) -> int:
    """The length and the EtherType of each packet."""
    count = 0
    while packets := sock.receive(timeout=0):
        count += len(packets)
        for packet in packets:
            _ = packet.length, packet[ETHER_TYPE]
    return count


def drain_batches(limit: int) -> Drain:
    """Only received: each is an array then."""

    def drain(sock: Socket) -> int:
        count = 0
        while found := len(sock.receive_batch(limit, timeout=0)):
            count += found
        return count

    return drain


def drain_columns(sock: Socket) -> int:
    """The lengths and the EtherTypes of each batch, as arrays."""
    count = 0
    while found := len(batch := sock.receive_batch(64, timeout=0)):
        count += found
        _ = batch.rows["length"], batch.column(12, ">u2")
    return count


def drain_rings(sock: Socket) -> int:
    """Descriptors out of RX, their frames back into FILL, 64 a call."""
    rx, fill, count = sock.rx, sock.fill, 0
    while found := len(entries := rx.peek(64)):
        addresses = entries["address"].copy()
        rx.release(found)
        fill.reserve(found)[:] = addresses
        fill.submit(found)
        count += found
    return count


LEVELS: Sequence[tuple[str, Drain, float | None]] = (
    ("packets, length and EtherType of each", drain_packets, 1e6),
    ("batches of 64", drain_batches(64), 10e6),
    ("batches of 1024", drain_batches(1024), 25e6),
    ("batches of 64, lengths and EtherTypes", drain_columns, None),
    ("rings, 64 entries a call", drain_rings, 20e6),
)
"""What, how, and the packets a second that it is to take."""


def measure_filled(bed: Bed, rounds: int) -> list[Result]:
    """Every level in turns on one socket."""
    case = Case("rxdrop", packet_size=64)
    place = bed.place(case)
    with place.inside(), ExitStack() as stack:
        umem = stack.enter_context(Umem(2 * RING, FRAME_BYTES, huge=True))
        sock = stack.enter_context(Socket(place.near[0], umem=umem, rx=RING, tx=0, fill=RING))
        made = stack.enter_context(Counting.live())
        packet, ifindex = case.packet.build(), look(place.far[0]).index

        def fill() -> None:
            assert sock.receiver is not None
            assert sock.receiver.rings.rx is not None
            sock.receive(timeout=0)  # FILL gets back what the last batch had
            while missing := RING - sock.receiver.rings.rx.pending():
                made.program.run_live(packet, ifindex=ifindex, repeat=missing)

        spent_ns = np.zeros((rounds, len(LEVELS)))
        for number in range(rounds):
            for level, (_, drain, _) in enumerate(LEVELS):
                fill()
                begin_ns = time.thread_time_ns()
                count = drain(sock)
                spent_ns[number, level] = (time.thread_time_ns() - begin_ns) / count
                if count != RING:
                    raise SystemExit(f"api: {count} packets came out of a ring of {RING}")
    return [filled_result(what, spent_ns[2:, level], target) for level, (what, _, target) in enumerate(LEVELS)]


def filled_result(what: str, spent_ns: np.ndarray[Any, Any], target: float | None) -> Result:
    """A line for packets a second."""
    middle, low, high = median_interval(1e9 / spent_ns)
    return Result(
        "api",
        f"filled: {what}",
        f"{middle / 1e6:.2f} M/s [{low / 1e6:.2f}, {high / 1e6:.2f}]",
        f"{np.median(spent_ns):.1f} ns/packet",
        "" if target is None else f">= {target / 1e6:g} M/s",
        None if target is None else middle >= target,
        {"rate": middle, "low": low, "high": high, "rounds": len(spent_ns)},
    )


# --- bursts over a veth ---------------------------------------------------------------------------------------------


def serve_bursts(orders: Connection, place: Place, packet: bytes, cpu: int) -> None:
    """In a process of its own: send so many bursts as are asked for, and answer with the CPU time that took, the way
    through the veth included."""
    with pinned(cpu), place.inside(), Counting.live() as made:
        sleep_exactly()
        ifindex = look(place.far[0]).index
        orders.send(0)
        while bursts := orders.recv():
            begin_ns, due = time.thread_time_ns(), time.monotonic()
            for _ in range(bursts):
                due += INTERVAL_S
                time.sleep(max(0.0, due - time.monotonic()))
                made.program.run_live(packet, ifindex=ifindex, repeat=BURST, batch=BURST)
            orders.send(time.thread_time_ns() - begin_ns)


@contextmanager
def burst_source(place: Place, packet: bytes, cpu: int) -> Iterator[Connection]:
    """A process that sends bursts to a place."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_bursts, args=(theirs, place, packet, cpu), daemon=True)
    process.start()
    theirs.close()
    try:
        ours.recv()
        yield ours
    finally:
        ours.send(0)
        process.join()


def receive_packets(sock: Socket, count: int) -> int:
    """The EtherType of each packet; returns how many came."""
    seen = 0
    while seen < count and (packets := sock.receive(PATIENCE_S)):
        seen += len(packets)
        for packet in packets:
            packet[ETHER_TYPE]
    return seen


def receive_batches(sock: Socket, count: int) -> int:
    """The EtherTypes of each batch."""
    seen = 0
    while seen < count and (found := len(batch := sock.receive_batch(64, PATIENCE_S))):
        seen += found
        batch.column(12, ">u2")
    return seen


def receive_bytes(raw: socket.socket, count: int) -> int:
    """recv(), and the EtherType of each packet."""
    seen = 0
    try:
        while seen < count:
            data = raw.recv(FRAME_BYTES)
            seen += 1
            data[ETHER_TYPE]
    except BlockingIOError:
        pass
    return seen


def packet_socket(interface: str) -> socket.socket:
    """AF_PACKET; its recv() ends after a while. Python's own timeout would cost a poll(2) a packet."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    raw.bind((interface, ETH_P_ALL))
    raw.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM_BYTES)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, np.array([PATIENCE_S, 0], np.int64).tobytes())
    return raw


@dataclass(frozen=True)
class Ours:
    """A receiver under bursts: ns of CPU time a packet of the thread that receives, and of both ends together."""

    receive: Callable[[int], int]
    orders: Connection
    bursts: int

    def spent_ns(self) -> tuple[float, float]:
        """One turn; NaN where packets were lost, for the receiver was kept from its CPU for too long."""
        self.orders.send(self.bursts)
        begin_ns = time.thread_time_ns()
        seen = self.receive(self.bursts * BURST)
        spent_ns = time.thread_time_ns() - begin_ns
        sender_ns = self.orders.recv()
        if seen < self.bursts * BURST:
            return np.nan, np.nan
        return spent_ns / seen, (spent_ns + sender_ns) / seen


def measure_bursts(bed: Bed, cpu: int, rounds: int, bursts: int) -> list[Result]:
    """Packets and batches, each in turns with recv(). A miss counts only where nobody else used the CPUs: to wake up
    takes 5 us then, and several times as long where others empty the caches in between."""
    others = OtherPrograms()
    case, plain = Case("rxdrop", packet_size=64), Case("rxdrop", packet_size=64, xdp="generic")
    place, other = bed.place(case), bed.place(plain)
    packet = case.packet.build()
    pairs: list[tuple[str, float, Paired, Paired]] = []
    with ExitStack() as stack:
        umem = stack.enter_context(Umem(2 * RING, FRAME_BYTES, huge=True))
        with place.inside():
            sock = stack.enter_context(Socket(place.near[0], umem=umem, rx=RING, tx=0, fill=RING))
        with other.inside():
            raw = stack.enter_context(packet_socket(other.near[0]))
        first = stack.enter_context(burst_source(place, packet, other_cpu(cpu)))
        second = stack.enter_context(burst_source(other, packet, other_cpu(cpu)))
        sock.receive(timeout=0)
        levels = (
            ("receive", Ours(lambda count: receive_packets(sock, count), first, bursts), 1.0),
            ("receive_batch", Ours(lambda count: receive_batches(sock, count), first, bursts), 0.25),
        )
        twin = Ours(lambda count: receive_bytes(raw, count), second, bursts)
        with pinned(cpu):
            for what, ours, limit in levels:
                pairs.append((what, limit, *in_turns(ours.spent_ns, twin.spent_ns, rounds)))
    busy = others.cpus()  # the sources have ended, and are no others
    results = []
    for what, limit, threads, both in pairs:
        result = paired_result("api", f"bursts: {what} against recv()", threads, limit)
        if not result.met and busy > BUSY:
            result = replace(result, met=None, beside=f"{result.beside}; others took {busy:.1f} CPUs")
        results += [result, paired_result("api", f"bursts: {what}, sender included", both, None)]
    return results


def in_turns(
    ours: Callable[[], tuple[float, float]], twin: Callable[[], tuple[float, float]], rounds: int
) -> tuple[Paired, Paired]:
    """Two figures of each, each first in every second round; the first rounds do not count, nor those with NaN."""
    samples = np.zeros((rounds, 2, 2))
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            samples[number, which] = (ours, twin)[which]()
    good = samples[2:][~np.isnan(samples[2:]).any(axis=(1, 2))]
    if len(good) < rounds / 3:
        raise SystemExit(f"the machine is too busy: only {len(good)} of {rounds} pairs of turns lost no packet")
    return Paired(good[:, 0, 0], good[:, 1, 0]), Paired(good[:, 0, 1], good[:, 1, 1])


# --- forward --------------------------------------------------------------------------------------------------------


class Crossing:
    """Two interfaces, live frames behind the first one and a sink behind the second; what is between them comes later.

    Args:
        place: where they are.
        far: source and sink.
        move: takes what has come and sends it.
    """

    def __init__(self, place: Place, far: Sequence[far_ends.Far], move: Callable[[], object]) -> None:
        self._place, self._far, self._move = place, far, move

    def spent_ns(self) -> float:
        """A burst comes, then it goes: ns of CPU time a packet."""
        with self._place.inside():
            goal = self._arrived() + sum(one.burst(FORWARD_BURST) for one in self._far)
        spent_ns = 0
        for _ in range(PATIENCE_TURNS):
            spent_ns += cpu_ns(self._move)
            if self._arrived() == goal:
                return spent_ns / FORWARD_BURST
        raise SystemExit(f"api: {goal - self._arrived()} of {FORWARD_BURST} packets were not forwarded")

    def _arrived(self) -> int:
        counts = far_ends.FarCounts()
        for one in self._far:
            one.count(counts)
        return counts["received"]


def measure_forward(cpu: int, rounds: int) -> list[Result]:
    """`Socket.forward` and the loop of `xskit bench forward`, each between veths of its own."""
    case = Case("forward", packet_size=64)
    conditions = Conditions(cpus=(cpu,), drive_cpu=other_cpu(cpu))
    with Bed() as bed, Bed() as other, ExitStack() as stack:
        place = other.place(case)
        _, (worker,), far = stack.enter_context(prepared(case, place, conditions, 0))
        twin = Crossing(place, far, lambda: worker.turn(FORWARD_BURST // case.batch + 1))
        place = bed.place(case)
        with place.inside():
            umem = stack.enter_context(Umem(2 * case.frames, case.frame_size))
            first, second = (
                stack.enter_context(Socket(name, umem=umem, rx=case.ring, tx=case.ring)) for name in place.near
            )
            far = far_ends.build(case, place, stack, conditions.drive_cpu)
        first.receive(timeout=0)
        results = []
        for limit, target in FORWARD_LIMITS:
            ours = Crossing(place, far, lambda limit=limit: forward(first, second, limit))  # type: ignore[misc]
            with pinned(cpu):
                paired = interleave(ours.spent_ns, twin.spent_ns, rounds)
            results.append(paired_result("api", f"forward: batches of {limit} against bench forward", paired, target))
    return results


def forward(first: Socket, second: Socket, limit: int) -> None:
    """All that has come to the one leaves by the other."""
    while len(batch := first.receive_batch(limit, timeout=0)):
        first.forward(batch, second)


def run(cpu: int, quick: bool) -> list[Result]:
    """The lines of the table."""
    with Bed() as bed:
        with pinned(cpu):
            results = measure_filled(bed, 12 if quick else 60)
        results += measure_bursts(bed, cpu, 8 if quick else 30, 500 if quick else 1000)
    return results + measure_forward(cpu, 60 if quick else 300)
