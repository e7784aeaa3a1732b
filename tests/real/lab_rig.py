"""Two hosts and an emulated link, with traffic that the test sends and reads itself, packet by packet.

Nothing here depends on how fast the machine is: packets are sent in bursts, the next one when the link has received
the one before, so none is lost on the way to it; and what must have happened is waited for, however long it takes.
Neighbours are known from the start and the kernel's chatter is dropped, so the link sees no packet but those of the
test.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from xskit.emulator.link import LinkDirection
from xskit.emulator.monitor import balance
from xskit.engine.live import NO_FAULTS
from xskit.engine.packets import DropCause
from xskit.lab import Host, Lab, LabLink

BURST = 32
PATIENCE_SECONDS = 60
UDP_OVERHEAD_BYTES = 42
HEADER = struct.Struct("!IQ")

SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 32, 33, 35


def wait_until(true: Callable[[], object], what: str) -> None:
    """Wait for something that must come about."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < give_up, f"waited in vain until {what}"
        time.sleep(0.0005)


@dataclass
class Came:
    """A datagram that came: its number, its owd by both hosts' clocks, and its bytes."""

    number: int
    owd_ns: int
    data: bytes


@dataclass
class Flow:
    """Numbered UDP datagrams from one host to the other."""

    direction: LinkDirection
    sender: socket.socket
    receiver: socket.socket
    came: list[Came] = field(default_factory=list)

    @property
    def counters(self) -> Any:
        """The live counters of the direction."""
        return self.direction.live.pipeline.counters

    def send(self, count: int, frame_bytes: int | Sequence[int] = 100, *, first: int = 0, burst: int = BURST) -> None:
        """Send datagrams from number `first` on, of one or several sizes in turn, as fast as the link can take them.

        When it returns, the link has received them all, and the counters show what became of each so far.
        """
        sizes = [frame_bytes] if isinstance(frame_bytes, int) else frame_bytes
        begun = self.counters.received
        for sent in range(1, count + 1):
            self.sender.send(datagram(first + sent - 1, sizes[(sent - 1) % len(sizes)]))
            if sent % burst == 0 or sent == count:
                wait_until(lambda sent=sent: self.counters.received - begun >= sent, f"{sent} packets are received")
        self.settle()

    def settle(self) -> None:
        """Let the worker end the turn in which it counted the last packet as received: other counters follow."""
        wait_until(lambda: self.direction._worker.snapshot().whole, "the worker has ended its turn")

    def empty(self) -> None:
        """Wait until nothing is in flight."""
        wait_until(lambda: self.counters.in_flight == 0, "nothing is in flight")

    def take(self, count: int | None = None) -> list[Came]:
        """Read what came until there are `count` in all: as many as the link has sent, if left out."""
        wanted = self.counters.sent if count is None else count
        self.receiver.settimeout(0.2)
        give_up = time.monotonic() + PATIENCE_SECONDS
        while len(self.came) < wanted:
            assert time.monotonic() < give_up, f"{len(self.came)} of {wanted} packets came"
            try:
                data, ancillary, _, _ = self.receiver.recvmsg(65536, 64)
            except TimeoutError:
                continue
            seconds, nanoseconds = struct.unpack("@qq", ancillary[0][2][:16])
            number, sent_ns = HEADER.unpack_from(data)
            self.came.append(Came(number, seconds * 1_000_000_000 + nanoseconds - sent_ns, data))
            give_up = time.monotonic() + PATIENCE_SECONDS
        return self.came

    def numbers(self) -> list[int]:
        """The numbers of what came, in order of coming, when everything has."""
        return [one.number for one in self.take()]


def datagram(number: int, frame_bytes: int) -> bytes:
    """A payload that makes a frame of this size: number, time of sending, and a pattern that depends on the number."""
    header = HEADER.pack(number, time.clock_gettime_ns(time.CLOCK_REALTIME))
    return header + pattern(number, frame_bytes - UDP_OVERHEAD_BYTES - HEADER.size)


_PATTERN = bytes(n * 7 % 251 for n in range(70_000))


def pattern(number: int, length: int) -> bytes:
    """Bytes that differ from packet to packet and from place to place."""
    return _PATTERN[number % 251 : number % 251 + max(length, 0)]


@dataclass
class Pair:
    """Hosts `a` and `b` and the link between them; forward is from a to b."""

    lab: Lab
    a: Host
    b: Host
    link: LabLink
    stack: ExitStack

    def flow(self, *, reverse: bool = False, port: int = 7001) -> Flow:
        """A new flow of datagrams."""
        source, target = (self.b, self.a) if reverse else (self.a, self.b)
        address = self.link.addresses[0 if reverse else 1]
        sender, receiver = self.socket(source), self.socket(target)
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        receiver.bind(("0.0.0.0", port))
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20)
        sender.connect((address, port))
        return Flow(self.link.reverse if reverse else self.link.forward, sender, receiver)

    def socket(self, host: Host, kind: int = socket.SOCK_DGRAM) -> socket.socket:
        """A socket of a host, closed with the pair."""
        with host.inside():
            return self.stack.enter_context(socket.socket(socket.AF_INET, kind))

    @property
    def directions(self) -> tuple[LinkDirection, LinkDirection]:
        """Forward and reverse."""
        return (self.link.forward, self.link.reverse)

    def stop_workers(self) -> None:
        """Let the workers stand still with all that is inside."""
        self.link.emulator._monitor.stop()
        for worker in self.link.emulator._workers:
            worker.stop()

    def run_rounds(self, rounds: int) -> None:
        """After stop_workers: so many turns of the loop, here and now."""
        for worker in self.link.emulator._workers:
            worker.view.stop = 0
            worker.run_rounds(rounds)

    def assert_books_balance(self) -> None:
        """Conservation at this moment, also while packets are moving."""
        for worker in self.link.emulator._workers:
            snapshot = worker.snapshot()
            for reading, outstanding in zip(snapshot.readings, snapshot.outstanding, strict=True):
                assert balance(reading, outstanding) == []


@contextmanager
def pair(*, mtu: int = 1500, engine: dict[str, Any] | None = None, **settings: Any) -> Iterator[Pair]:
    """Two hosts and a link between them."""
    with Lab(**(engine or {})) as lab, ExitStack() as stack:
        a, b = lab.host("a"), lab.host("b")
        yield Pair(lab, a, b, lab.link(a, b, mtu=mtu, **settings), stack)


def dropped(direction: LinkDirection) -> dict[str, int]:
    """Packets by drop cause, of those that are not 0."""
    counts = direction.live.reading().dropped()
    return {cause.name.lower(): counts[cause][0] for cause in DropCause if counts[cause][0]}


def assert_every_frame_is_somewhere(direction: LinkDirection) -> dict[str, list[int]]:
    """Each frame is in exactly one place, and was all the time; the worker stands still. Returns the places."""
    live = direction.live
    counters = live.pipeline.counters
    places = live.census()
    found = sorted(frame for frames in places.values() for frame in frames)
    assert found == list(range(live.frames.first, live.frames.first + live.frames.count))
    assert live.faults() == NO_FAULTS
    outstanding = sum(live.egress(n).outstanding for n in range(live._queues))
    assert len(places["held"]) + outstanding == counters.in_flight_frames
    return places


def lost_by(came: Iterable[int], count: int) -> set[int]:
    """The numbers that did not come."""
    return set(range(count)) - set(came)
