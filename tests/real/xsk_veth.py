"""A veth pair in a namespace for the tests of xsk/, quiet but for what the tests send; and rings by hand."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from xskit.abi.xdp import AF_XDP
from xskit.memory import record_view
from xskit.netconf.namespaces import inside
from xskit.xsk.batch import Batch
from xskit.xsk.bound import BoundSocket
from xskit.xsk.headers import udp_packet
from xskit.xsk.mapping import MappedRing
from xskit.xsk.packet import Packet
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.rings import INDEX_MASK, Ring
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@contextmanager
def namespace(suffix: str = "") -> Iterator[str]:
    """A namespace without IPv6, so that the kernel has nothing to say by itself."""
    name = f"xkxsk{os.getpid()}{suffix}"
    ip("netns", "add", name)
    try:
        command = ["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"]
        subprocess.run(command, check=True, timeout=30)
        yield name
    finally:
        ip("netns", "del", name)


@contextmanager
def veth(*, mtu: int = 1500, rx_queues: int = 1, tx_queues: int = 1, suffix: str = "") -> Iterator[str]:
    """`va` and `vb` in a namespace of their own, up, and the calling thread in it."""
    queues = ("numrxqueues", str(rx_queues), "numtxqueues", str(tx_queues))
    with namespace(suffix) as name:
        ip(
            "-n",
            name,
            "link",
            "add",
            "va",
            "mtu",
            str(mtu),
            *queues,
            "type",
            "veth",
            "peer",
            "vb",
            "mtu",
            str(mtu),
            *queues,
        )
        for end in ("va", "vb"):
            ip("-n", name, "link", "set", "dev", end, "up")
        with inside(name):
            yield name


@contextmanager
def two_sockets(
    sender: dict | None = None, receiver: dict | None = None, **umem: object
) -> Iterator[tuple[Socket, Socket]]:
    """Sockets on `va` and `vb`, each with packet memory of its own in debug mode."""
    arguments = {"frames": 512, "debug": True, **umem}
    with ExitStack() as stack:
        ends = []
        for name, options in (("va", sender), ("vb", receiver)):
            memory = stack.enter_context(Umem(**arguments))
            ends.append(stack.enter_context(Socket(name, umem=memory, **(options or {}))))
        yield ends[0], ends[1]


def numbered(count: int, length: int = 64, first: int = 0) -> list[bytes]:
    """UDP packets that carry their number in the first 4 bytes of their payload, and a pattern of it behind."""
    packets = []
    for number in range(first, first + count):
        pattern = bytes((number + at) % 251 for at in range(length - 46))
        packets.append(udp_packet(number.to_bytes(4, "big") + pattern, length=length))
    return packets


def collect(sock: Socket, count: int, timeout: float = 2.0) -> list[bytes]:
    """Receive copies until there are `count`, or none comes for `timeout` seconds."""
    got: list[bytes] = []
    while len(got) < count:
        batch = sock.receive(timeout=timeout)
        if not batch:
            break
        got += [bytes(packet) for packet in batch]
    return got


def eventually(expected: object, look: Callable[[], object], timeout: float = 5.0) -> None:
    """What the kernel does a moment after sendto returned: look until it is as expected."""
    deadline = time.monotonic() + timeout
    while (seen := look()) != expected and time.monotonic() < deadline:
        time.sleep(0.001)
    assert seen == expected


def receive_together(sock: Socket, count: int) -> list[Packet]:
    """One batch of exactly so many packets: all are waited for first."""
    eventually(count, lambda: descriptors_waiting(sock))
    return sock.receive(timeout=0)


def descriptors_waiting(sock: Socket) -> int:
    """Entries of RX that were not read."""
    assert sock.receiver is not None
    assert sock.receiver.rings.rx is not None
    return sock.receiver.rings.rx.pending()


def handle(bound: BoundSocket) -> socket.socket:
    """The kernel socket, for calls of one's own; to be closed by the caller."""
    return socket.socket(AF_XDP, socket.SOCK_RAW, 0, fileno=os.dup(bound.fd))


def kick(sock: Socket) -> int:
    """One sendto on the transmitter; its errno, or 0."""
    with handle(sock.transmitter) as sending:
        try:
            sending.send(b"", socket.MSG_DONTWAIT)
        except OSError as error:
            return error.errno or 0
    return 0


def put_descriptors(sock: Socket, descriptors: list[tuple[int, int, int]]) -> MappedRing:
    """Descriptors into TX by hand, whatever they say; returns the ring."""
    assert sock.transmitter is not None
    ring = sock.transmitter.rings.tx
    assert ring is not None
    end = record_view(Ring, ring.record)
    for number, descriptor in enumerate(descriptors):
        ring.entries[(end.local + number) & end.mask] = descriptor
    end.local = (end.local + len(descriptors)) & INDEX_MASK
    ctypes.c_uint32.from_address(end.producer).value = end.local
    return ring


def send_raw(sock: Socket, descriptors: list[tuple[int, int, int]]) -> list[int]:
    """Put descriptors into TX by hand and kick until it is empty; what sendto answered, EAGAIN left out."""
    tx = put_descriptors(sock, descriptors)
    answers = []
    for _ in range(100):
        if not tx.pending():
            break
        if (answer := kick(sock)) != errno.EAGAIN:
            answers.append(answer)
    assert not tx.pending()
    return answers


def completed(sock: Socket) -> list[int]:
    """Take what is in COMPLETION by hand."""
    ring = sock.primary.rings.completion
    assert ring is not None
    end = record_view(Ring, ring.record)
    addresses = [int(ring.entries[(end.local + number) & end.mask]) for number in range(ring.pending())]
    end.local = (end.local + len(addresses)) & INDEX_MASK
    ctypes.c_uint32.from_address(end.consumer).value = end.local
    return addresses


def last_sent(sock: Socket, count: int) -> list[int]:
    """The byte offsets of the last descriptors that were put into TX, the last one first."""
    assert sock.transmitter is not None
    ring = sock.transmitter.rings.tx
    assert ring is not None
    end = record_view(Ring, ring.record).local
    addresses = [int(ring.entries["address"][(end - 1 - number) % ring.size]) for number in range(count)]
    return [sock.umem.offset_of(address) for address in addresses]


GROUNDS: dict[str, dict[str, Any]] = {
    "native": {},
    "generic": {"mode": "generic"},
    "small frames": {"frame_size": 2048},
    "unaligned": {"frame_size": 3000, "unaligned": True},
    "several frames": {"mtu": 9000, "frame_size": 2048, "length": 4000},
    "several frames, generic": {"mtu": 9000, "mode": "generic", "length": 8600},
    "several frames, unaligned": {"mtu": 9000, "frame_size": 2500, "unaligned": True, "length": 5000},
}
"""What packets lie in: arguments of `Chain`."""


_chains = itertools.count()


class Chain:
    """Two veth pairs in a row, and packet memory that the two sockets in the middle share.

        source (va) --> near (vb)   far (vc) --> sink (vd)
                              one memory

    Args:
        mode, frame_size, unaligned, mtu: of all of it.
        length: the least of a packet that `packets` makes; the second is 100 bytes longer, and so on.
        frames: of each memory.
        near, far: arguments of these two sockets.
    """

    def __init__(
        self,
        *,
        mode: str = "native",
        frame_size: int = 4096,
        unaligned: bool = False,
        mtu: int = 1500,
        length: int = 64,
        frames: int = 512,
        near: dict[str, Any] | None = None,
        far: dict[str, Any] | None = None,
    ) -> None:
        self.length = length
        memory = {"frames": frames, "frame_size": frame_size, "unaligned": unaligned}
        with ExitStack() as stack:
            stack.enter_context(veth(mtu=mtu, suffix=f"c{next(_chains)}"))
            ip("link", "add", "vc", "mtu", str(mtu), "type", "veth", "peer", "vd", "mtu", str(mtu))
            for end in ("vc", "vd"):
                ip("link", "set", "dev", end, "up")
            self.umem = stack.enter_context(Umem(debug=True, **memory))
            outside = [stack.enter_context(Umem(**memory)) for _ in range(2)]
            self.source = stack.enter_context(Socket("va", umem=outside[0], mode=mode))
            self.near = stack.enter_context(Socket("vb", umem=self.umem, **{"mode": mode, **(near or {})}))
            self.far = stack.enter_context(Socket("vc", umem=self.umem, **{"mode": mode, **(far or {})}))
            self.sink = stack.enter_context(Socket("vd", umem=outside[1], mode=mode))
            self._stack = stack.pop_all()

    def packets(self, count: int, first: int = 0) -> list[bytes]:
        """Numbered packets, no two neighbours of the same length."""
        made = [numbered(1, self.length + (first + number) % 5 * 100, first=first + number) for number in range(count)]
        return [packet for (packet,) in made]

    def batch(self, count: int, first: int = 0) -> Batch:
        """A batch of so many packets, received by the near one."""
        packets = self.packets(count, first)
        assert self.source.send(packets) == count
        self.source.flush()
        frames = sum(-(-len(packet) // self.umem.capacity) for packet in packets)
        eventually(frames, lambda: descriptors_waiting(self.near))
        batch = self.near.receive_batch(limit=count, timeout=0)
        assert list(map(bytes, batch)) == packets
        return batch

    def all_home(self) -> None:
        """Nothing of the memory in the middle is with anybody but FILL."""
        for sock in (self.near, self.far):
            sock.flush()
            assert sock.receive(timeout=0) == []  # ends the last batch
        counts = self.umem.check()
        assert counts[Owner.FREE] + counts[Owner.FILL] == self.umem.frames, counts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
