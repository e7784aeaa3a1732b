"""Packets that fit only with their outer VLAN tag beside them: admitted, and sent by a packet socket in their turn."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from tests.pure.support_kernel import PlainEngine, engine, stages
from xskit.engine.live import EgressLimits
from xskit.engine.packets import DropCause

LIMIT = 1518


def packet(number: int, length: int, kind: bytes = b"\x81\x00") -> bytes:
    return bytes([number] * 12) + kind + bytes(n % 251 for n in range(length - 14))


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """What the engine sends to, and what comes out there; datagrams keep their bounds, as packets do."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    far.setblocking(False)
    with near, far:
        yield near, far


@pytest.fixture
def made(pair: tuple[socket.socket, socket.socket]) -> Iterator[PlainEngine]:
    limits = EgressLimits(max_length=LIMIT)
    with engine(stages(), limits=limits, wire_length=LIMIT + 4, tagged_fd=pair[0].fileno()) as running:
        yield running


@pytest.mark.parametrize("kind", [b"\x81\x00", b"\x88\xa8"])
@pytest.mark.parametrize("spans", [(), (18,), (100, 1, 1000)])
def test_one_leaves_by_the_socket_whole(made, pair, kind, spans) -> None:
    data = packet(1, LIMIT + 4, kind)
    made.ingress[0].receive(data, spans=spans)
    made.run(3)
    assert pair[1].recv(4000) == data
    assert (made.counters.sent, made.counters.sent_bytes, made.counters.in_flight) == (1, len(data), 0)
    assert made.counters.in_flight_frames == 0
    assert made.direction.reading().lateness().sum() == 1


def test_not_before_what_lies_in_tx(made, pair) -> None:
    """`send` is the kernel: until it has taken the short packet, the long one waits, and so does what comes after."""
    for number, length in ((1, 100), (2, LIMIT + 1), (3, 100)):
        made.ingress[0].receive(packet(number, length))
    made.run(4)
    with pytest.raises(BlockingIOError):
        pair[1].recv(4000)
    assert made.egress[0].send() == [packet(1, 100)]
    made.run(3)
    assert pair[1].recv(4000) == packet(2, LIMIT + 1)
    assert made.egress[0].send() == [packet(3, 100)]
    made.egress[0].complete()
    made.run(2)
    assert made.counters.sent == 3


def test_what_has_no_tag_or_is_longer_is_dropped(made) -> None:
    made.ingress[0].receive(packet(1, LIMIT + 4, b"\x08\x00"))
    made.ingress[0].receive(packet(2, LIMIT + 5))
    made.run(2)
    assert (made.dropped(DropCause.EGRESS_MTU), made.dropped(DropCause.SUPER_PACKET)) == (1, 1)


def test_all_are_where_there_is_no_such_socket() -> None:
    with engine(limits=EgressLimits(max_length=LIMIT), wire_length=LIMIT + 4) as made:
        made.ingress[0].receive(packet(1, LIMIT + 1))
        made.run(2)
        assert made.dropped(DropCause.EGRESS_MTU) == 1


def test_what_the_socket_refuses_is_counted(made, pair) -> None:
    pair[1].close()
    made.ingress[0].receive(packet(1, LIMIT + 1))
    made.run(3)
    assert made.dropped(DropCause.TX_REFUSED) == 1
    assert os.fstat(pair[0].fileno())
