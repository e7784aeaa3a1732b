"""Several sockets of one queue: FILL and COMPLETION are common, and each closes without harm to the others."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from tests.real.xsk_veth import (
    collect,
    completed,
    descriptors_waiting,
    eventually,
    ip,
    kick,
    numbered,
    put_descriptors,
    veth,
)
from xskit.errors import UsageError
from xskit.xsk.errors import PortError
from xskit.xsk.path.owner import Owner
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root

FRAMES = 256


class Shared:
    """Two sockets on `vb` that share its queue, and one on `va`."""

    def __init__(self, stack, *, first=None, second=None):
        self.memory = stack.enter_context(Umem(frames=FRAMES, debug=True))
        self.outer = stack.enter_context(Umem(frames=FRAMES))
        self.first = stack.enter_context(Socket("vb", umem=self.memory, **(first or {})))
        self.second = stack.enter_context(
            Socket("vb", umem=self.memory, shared=self.first, program=None, **(second or {}))
        )
        self.other = stack.enter_context(Socket("va", umem=self.outer))

    def home(self):
        counts = self.memory.check()
        return counts[Owner.FREE] + counts[Owner.FILL]


@pytest.fixture
def stack():
    with veth(), ExitStack() as stack:
        yield stack


def test_a_sharer_that_closes_leaves_fill_as_it_is(stack):
    shared = Shared(stack)
    shared.other.send(numbered(10))
    assert collect(shared.first, 10) == numbered(10)
    filled = shared.memory.check()[Owner.FILL]
    assert shared.second.send(numbered(5)) == 5
    shared.second.close()
    assert shared.memory.check()[Owner.FILL] == filled
    for number in range(FRAMES // 32 + 1):
        shared.other.send(numbered(32, first=32 * number))
        assert collect(shared.first, 32) == numbered(32, first=32 * number)
    assert collect(shared.other, 5) == numbered(5)
    shared.first.close()
    assert shared.memory.check()[Owner.FREE] == FRAMES


def test_what_a_sharer_has_in_tx_comes_home_when_it_closes(stack):
    """Those before it in COMPLETION come home as well; what the other one sends is not touched."""
    shared = Shared(stack)
    ip("link", "set", "dev", "vb", "down")
    for sock, count in ((shared.first, 3), (shared.second, 7)):
        with pytest.raises(PortError, match="^vb is down"):
            sock.send(numbered(count))
    assert shared.memory.check()[Owner.TX] == 10
    shared.second.close()
    assert shared.memory.check()[Owner.TX] == 3
    ip("link", "set", "dev", "vb", "up")
    shared.first.flush()
    assert collect(shared.other, 3, timeout=0.2) == numbered(3)
    assert shared.memory.check()[Owner.TX] == 0


def test_completions_of_a_closed_sharer_come_home_through_the_other(stack):
    shared = Shared(stack)
    assert shared.first.send(numbered(1)) == 1
    shared.first.flush()
    batch = shared.second.new_batch(64, 8)
    assert shared.second.send_batch(batch[:1]) == 1
    shared.second.flush()
    frames = batch.rows["address"][1:].tolist()
    sending = shared.second._sending.transmitter
    owners = shared.memory.table.lines["owner"]
    handles = batch.rows["handle"][1:]
    owners[handles] = Owner.TX  # as if they were sent, and completed only when the socket is closed
    shared.memory.table.lines["next"][handles] = shared.second._number
    shared.memory.table.lines["state"][handles] = 1
    sending.outstanding += 7
    shared.second.close()
    assert shared.memory.check()[Owner.TX] == 7
    with pytest.raises(PortError, match="^7 frames sent on queue 0 of vb did not come back"):
        shared.first.flush(timeout=0.02)
    shared.first.close()
    assert shared.memory.check()[Owner.FREE] == FRAMES
    assert len(frames) == 7


@pytest.mark.parametrize("others", [{"rx": 0}, {}])
def test_the_one_that_receives_need_not_be_the_first(stack, others):
    shared = Shared(stack, first={"rx": 0, "program": None}, second=others)
    with Socket("vb", umem=shared.memory, shared=shared.first) as receiver:
        assert receiver.receiver.fill_ring is None
        for number in range(FRAMES // 32 + 1):
            shared.other.send(numbered(32, first=32 * number))
            assert collect(receiver, 32) == numbered(32, first=32 * number)
        assert shared.memory.check()[Owner.FILL] > 0
        with pytest.raises(UsageError, match="^this socket has no RX ring"):
            shared.first.receive(timeout=0)
    assert not shared.first.closed
    shared.first.close()
    assert shared.memory.check()[Owner.FREE] == FRAMES


def test_packets_that_a_closed_sharer_has_not_read_come_home(stack):
    shared = Shared(stack, first={"tx": 0, "program": None})
    third = Socket("vb", umem=shared.memory, shared=shared.first)
    assert shared.first.receive(timeout=0) == []
    shared.other.send(numbered(20))
    eventually(20, lambda: descriptors_waiting(third))
    assert len(third.receive(timeout=0, limit=5)) == 5
    third.close()
    counts = shared.memory.check()
    assert (counts[Owner.RX], counts[Owner.HELD]) == (0, 0)
    assert shared.first.receive(timeout=0) == []
    again = Socket("vb", umem=shared.memory, shared=shared.first)
    for number in range(FRAMES // 32 + 1):
        shared.other.send(numbered(32, first=32 * number))
        assert collect(again, 32) == numbered(32, first=32 * number)


def test_closing_the_first_closes_all(stack):
    shared = Shared(stack)
    shared.second.send(numbered(3))
    batch = shared.first.new_batch(64, 2)
    shared.first.close()
    assert shared.first.closed
    assert shared.second.closed
    for use in (lambda: shared.second.send(numbered(1)), lambda: shared.second.receive(timeout=0)):
        with pytest.raises(UsageError, match="^the socket of queue 0 of vb is closed$"):
            use()
    batch.release()
    assert shared.memory.check()[Owner.FREE] == FRAMES
    Socket("vb", umem=shared.memory).close()  # the queue is free


def test_the_first_waits_for_a_call_that_is_inside_another(stack):
    shared = Shared(stack)
    inside, got = threading.Event(), []

    def receive():
        inside.set()
        got.append(shared.second.receive())

    thread = threading.Thread(target=receive)
    thread.start()
    inside.wait()
    eventually(True, lambda: shared.second._receive_turn.taken)
    shared.first.close()
    thread.join()
    assert got == [[]]
    assert shared.first.closed
    assert shared.second.closed
    Socket("vb", umem=shared.memory).close()


def test_closing_the_memory_closes_all_that_use_it(stack):
    shared = Shared(stack)
    shared.other.send(numbered(4))
    held = [packet.keep() for packet in shared.first.receive(timeout=5.0)]
    shared.second.send(numbered(3))
    shared.memory.close()
    assert shared.first.closed
    assert shared.second.closed
    assert all(packet.gone for packet in held)
    assert shared.memory.check() == dict.fromkeys(Owner, 0)
    with Umem(frames=64) as memory:
        Socket("vb", umem=memory).close()


def test_frames_in_the_completion_ring_when_a_sharer_closes_are_not_taken_for_later_ones(stack):
    shared = Shared(stack)
    shared.second.send(numbered(6))
    shared.second.flush()
    put_descriptors(shared.second, [(0, 64, 0)])
    kick(shared.second)
    assert completed(shared.second) == [0]
    shared.second.send(numbered(2))
    shared.second.close()
    assert shared.home() == FRAMES
    assert shared.first.send(numbered(FRAMES // 4)) == FRAMES // 4
    shared.first.flush()
    assert shared.home() == FRAMES
