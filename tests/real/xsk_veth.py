"""A veth pair in a namespace for the tests of xsk/, quiet but for what the tests send; and rings by hand."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from xskit.netconf.namespaces import inside
from xskit.xsk.headers import udp_packet
from xskit.xsk.packet import Packet
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
def veth(*, mtu: int = 1500, rx_queues: int = 1, tx_queues: int = 1) -> Iterator[str]:
    """`va` and `vb` in a namespace of their own, up, and the calling thread in it."""
    queues = ("numrxqueues", str(rx_queues), "numtxqueues", str(tx_queues))
    with namespace() as name:
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
    ring = sock._rings.rx
    assert ring is not None
    eventually(count, ring.pending)
    return sock.receive(timeout=0)


def kick(sock: Socket) -> int:
    """One sendto; its errno, or 0."""
    try:
        sock._socket.send(b"", socket.MSG_DONTWAIT)
    except OSError as error:
        return error.errno or 0
    return 0


def send_raw(sock: Socket, descriptors: list[tuple[int, int, int]]) -> list[int]:
    """Put descriptors into TX by hand and kick until it is empty; what sendto answered, EAGAIN left out."""
    tx = sock._rings.tx
    assert tx is not None
    tx.put_descriptors(descriptors)
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
    ring = sock._rings.completion
    assert ring is not None
    return ring.take_addresses(ring.size)
