"""A port over several queues: each gets its share, keeps its order, and can be sent by."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.real.xsk_veth import collect, descriptors_waiting, eventually, ip, numbered, veth
from xskit.errors import UsageError
from xskit.xsk.path.owner import Owner
from xskit.xsk.port import Port
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root

QUEUES = 3


class Left:
    """The end that tests look at the other one from, and its ways: in generic mode, what a veth sends by queue n comes
    by queue n - 1 of its peer (the stack counts from 1 what it notes of a packet's RX queue)."""

    def __init__(self, port, step):
        self._port, self._step = port, step

    def send(self, packets, queue):
        """By that queue the right port receives them."""
        return self._port.send(packets, queue=queue + self._step)

    def end_of(self, queue):
        """What the right port sends by a queue comes here."""
        return self._port.queues[queue - self._step]


@pytest.fixture(params=["native", "generic"])
def ports(request):
    step = int(request.param == "generic")
    there = QUEUES + 2 * step
    with (
        veth(rx_queues=there, tx_queues=there),
        Umem(frames=1024) as outer,
        Umem(frames=1024, debug=True) as umem,
        Port.open("va", outer, mode=request.param) as left,
        Port.open("vb", umem, mode=request.param, queues=range(step, QUEUES + step)) as right,
    ):
        for port in (left, right):
            assert port.receive(timeout=0) == []
        yield Left(left, step), right
        if not right.closed:
            right.flush()
            assert right.receive(timeout=0) == []
            counts = umem.check()
            assert counts[Owner.FREE] + counts[Owner.FILL] == umem.frames


def by_queue(port, count: int) -> dict[int, list[bytes]]:
    return {queue.queue: numbered(count, first=1000 * queue.queue) for queue in port.queues}


def fill_up(left, right, sent):
    for queue in right.queues:
        if packets := sent.get(queue.queue):
            assert left.send(packets, queue.queue) == len(packets)
            eventually(len(packets), lambda queue=queue: descriptors_waiting(queue))


def test_busy_queues_take_turns(ports):
    left, right = ports
    sent = by_queue(right, 60)
    fill_up(left, right, sent)
    order, got = [], defaultdict(list)
    while sum(map(len, got.values())) < 60 * QUEUES:
        batch = right.receive_batch(limit=20, timeout=5.0)
        order.append(batch.queue)
        got[batch.queue] += map(bytes, batch)
    assert got == sent, "in order, each"
    assert sorted(order[:QUEUES]) == sorted(sent)
    assert order == order[:QUEUES] * 3, "nobody has a second turn before everybody had the first"


def test_a_quiet_queue_is_heard_beside_a_busy_one(ports):
    left, right = ports
    busy, quiet = right.queues[0].queue, right.queues[2].queue
    fill_up(left, right, {busy: numbered(200), quiet: numbered(1, first=7)})
    seen = [right.receive_batch(limit=10, timeout=5.0).queue for _ in range(3)]
    assert seen.count(quiet) == 1
    assert collect(right, 180, timeout=1.0) == numbered(200)[20:]


@pytest.mark.parametrize("number", range(QUEUES))
def test_a_wait_ends_when_any_queue_has_a_packet(ports, number):
    left, right = ports
    queue = right.queues[number].queue
    assert right.receive(timeout=0.01) == []
    left.send(numbered(1), queue)
    (packet,) = right.receive(timeout=5.0)
    assert packet.queue == queue
    assert bytes(packet) == numbered(1)[0]


def test_packets_end_with_the_next_call_and_kept_ones_do_not(ports):
    left, right = ports
    fill_up(left, right, by_queue(right, 3))
    first = right.receive_batch(timeout=5.0)
    first[:1].keep()
    while len(right.receive_batch(timeout=0)):
        pass
    assert [packet.gone for packet in first] == [False, True, True]
    right.release(first)
    assert first[0].gone


def test_a_batch_leaves_by_the_queue_of_its_number(ports):
    left, right = ports
    sent = by_queue(right, 40)
    fill_up(left, right, sent)
    forwarded = 0
    while forwarded < 40 * QUEUES:
        batch = right.receive_batch(limit=16, timeout=5.0)
        accepted = right.forward(batch, right)
        assert accepted == len(batch)
        forwarded += accepted
    for queue, packets in sent.items():
        assert collect(left.end_of(queue), 40) == packets
    first, second, third = sent
    fill_up(left, right, {second: numbered(5)})
    batch = right.receive_batch(timeout=5.0)
    assert right.send(batch[:2], queue=third) == 2
    assert right.send_batch(batch[2:], first) == 3
    assert collect(left.end_of(third), 2) == numbered(2)
    assert collect(left.end_of(first), 3) == numbered(3, first=2)


def test_without_a_queue_each_call_takes_the_next_one(ports):
    left, right = ports
    for turn in range(2 * QUEUES):
        assert right.send(numbered(4, first=10 * turn)) == 4
    came = [collect(left.end_of(queue.queue), 8) for queue in right.queues]
    turns = [packets[0][45] // 10 for packets in came]
    assert sorted(turns) == list(range(QUEUES))
    for turn, packets in zip(turns, came, strict=True):
        assert packets == [*numbered(4, first=10 * turn), *numbered(4, first=10 * (turn + QUEUES))]


def test_queues_that_are_not_there(ports):
    _, right = ports
    for queue in (QUEUES + 1, -1, "0", 1.5, [0], True and "x"):
        with pytest.raises(UsageError, match=r"^vb has no open TX queue .*\n  try: queue=\d$"):
            right.send(numbered(1), queue=queue)


def test_a_port_without_a_tx_queue_only_receives():
    with veth(), Umem(frames=64) as umem:
        ip("link", "add", "xkr0", "numrxqueues", "2", "numtxqueues", "1", "type", "veth", "peer", "name", "xkr1")
        with Port.open("xkr0", umem, queues=[1]) as port:
            for act in (
                lambda: port.send(numbered(1)),
                lambda: port.send_batch(port.receive_batch(timeout=0)),
                lambda: port.send(numbered(1), queue=1),
            ):
                with pytest.raises(UsageError) as caught:
                    act()
                assert str(caught.value) == (
                    "xkr0 has no open TX queue: its open queues only receive\n  try: queues=[0]"
                )
            port.flush()
