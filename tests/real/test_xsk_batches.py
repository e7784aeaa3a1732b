"""Batches: rows, columns and masks of packets in whatever frames they lie."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from tests.real.xsk_veth import GROUNDS, Chain, collect, last_sent, two_sockets, veth
from xskit.errors import UsageError
from xskit.xsk.batch import Batch
from xskit.xsk.path.owner import Owner

pytestmark = pytest.mark.root


@pytest.fixture(scope="module", params=GROUNDS.values(), ids=GROUNDS.keys())
def shared_chain(request):
    with Chain(**request.param) as chain:
        yield chain


@pytest.fixture
def chain(shared_chain):
    yield shared_chain
    shared_chain.all_home()


def refusal(action):
    with pytest.raises(UsageError) as caught:
        action()
    return str(caught.value)


GONE = (
    "is gone: its frames went back when the next ones were received, or it was sent\n"
    "  try: packet.keep() before the next receive()"
)


def test_rows_say_what_the_packets_are(chain):
    batch = chain.batch(20)
    packets = chain.packets(20)
    assert len(batch) == 20
    assert (batch.queue, batch.umem) == (0, chain.umem)
    assert repr(batch) == "<Batch of 20 packets, queue 0>"
    assert batch.rows["length"].tolist() == list(map(len, packets))
    assert batch.rows["frames"].tolist() == [-(-len(packet) // chain.umem.capacity) for packet in packets]
    stamps = batch.rows["arrived_ns"].tolist()
    assert 0 < stamps[0] <= stamps[-1]
    assert stamps == sorted(stamps)
    for number, packet in enumerate(batch):
        assert packet.length == len(packets[number])
        assert packet.arrived_ns == stamps[number]
        assert bytes(batch.view(number)) == bytes(batch[number]) == packets[number]
        address, length = int(batch.rows["address"][number]), min(packet.length, chain.umem.capacity)
        assert chain.umem.read(address, length) == packets[number][:length]
    assert bytes(batch[-1]) == bytes(batch[np.int8(-1)]) == packets[-1]


@pytest.mark.parametrize("kind", ["u1", ">u2", "<i8", "S13", "V7", ">f8", [("a", ">u2"), ("b", "u1", 3)]])
def test_a_column_is_the_same_field_of_every_packet(chain, kind):
    batch = chain.batch(10)
    packets = chain.packets(10)
    size, capacity = np.dtype(kind).itemsize, chain.umem.capacity
    shortest = len(packets[0])
    offsets = {0, 12, 42, shortest - size, shortest - 1, capacity - size // 2, capacity, 2 * capacity - 1, 20_000}
    for offset in offsets:
        expected = b"".join(packet[offset : offset + size].ljust(size, b"\0") for packet in packets)
        column = batch.column(offset, kind)
        assert column.dtype == np.dtype(kind)
        assert column.tobytes() == expected, f"at {offset}"


def test_some_packets_of_a_batch_are_a_batch(chain):
    batch = chain.batch(12)
    packets = chain.packets(12)
    numbers = batch.column(42, ">u4")
    for some, expected in (
        (batch[numbers % 3 == 0], packets[::3]),
        (batch[np.array([7, 1, 4])], [packets[7], packets[1], packets[4]]),
        (batch[[2, 3]], packets[2:4]),
        (batch[::-2], packets[::-2]),
        (batch[5:], packets[5:]),
        (batch[numbers > 99], []),
        (batch[4:9][1:3], packets[5:7]),
    ):
        assert isinstance(some, Batch)
        assert list(map(bytes, some)) == expected
        assert some.column(42, ">u4").tolist() == [int.from_bytes(packet[42:46], "big") for packet in expected]
    for index in (12, -13):
        with pytest.raises(IndexError):
            batch[index]
    for index in ("length", None, 1.5, ...):
        with pytest.raises(TypeError):
            batch[index]


def test_kept_packets_outlive_the_next_batch_and_others_do_not(chain):
    batch = chain.batch(10)
    kept = batch[batch.column(42, ">u4") < 4].keep()
    later = chain.batch(5, first=10)
    assert list(map(bytes, kept)) == chain.packets(4)
    assert [packet.gone for packet in batch] == [False] * 4 + [True] * 6
    assert [packet.kept for packet in batch] == [True] * 4 + [False] * 6
    assert refusal(lambda: batch.column(0)) == f"packet 4 of the batch {GONE}"
    assert refusal(batch.keep) == f"a packet of the batch {GONE}"
    assert refusal(lambda: bytes(batch[4])) == f"this packet {GONE}"
    assert chain.umem.check()[Owner.HELD] == sum(batch.rows["frames"][:4]) + sum(later.rows["frames"])
    batch.release()
    batch.release()
    assert all(packet.gone for packet in kept)
    assert chain.umem.check()[Owner.HELD] == sum(later.rows["frames"])


def test_released_packets_make_room_at_once(chain):
    batch = chain.batch(6)
    free = chain.umem.pool.free
    chain.near.release(batch[2:4])
    assert chain.umem.pool.free == free + batch.rows["frames"][2:4].sum()
    assert [packet.gone for packet in batch] == [False, False, True, True, False, False]
    assert refusal(lambda: chain.near.release([])) == "batch must be a Batch, not []\n  try: packet.release()"


def test_a_batch_goes_on_without_a_copy(chain):
    batch = chain.batch(30)
    addresses = batch.rows["address"].tolist()
    batch[0].segments[0][0:6] = b"\x02\0\0\0\0\x09"
    assert chain.near.forward(batch, chain.far) == 30
    assert all(packet.gone for packet in batch)
    came = collect(chain.sink, 30)
    assert came[0] == b"\x02\0\0\0\0\x09" + chain.packets(1)[0][6:]
    assert came[1:] == chain.packets(30)[1:]
    assert set(addresses) <= set(last_sent(chain.far, int(batch.rows["frames"].sum())))
    assert refusal(lambda: chain.near.forward(batch, chain.far)) == f"packet 0 of the batch {GONE}"


def test_a_batch_can_go_back_where_it_came_from(chain):
    batch = chain.batch(10)
    assert chain.near.forward(batch[5:], chain.near) == 5
    assert chain.near.send_batch(batch[:5]) == 5
    assert collect(chain.source, 10) == chain.packets(10)[5:] + chain.packets(10)[:5]
    chain.near.flush()


def test_packets_of_more_frames_than_the_socket_sends_are_refused():
    with Chain(mtu=9000, frame_size=2048, length=4000, far={"multi_buffer": False}) as chain:
        batch = chain.batch(3)
        assert refusal(lambda: chain.near.forward(batch, chain.far)).startswith("packet 0 of the batch")
        assert not any(packet.gone for packet in batch)
        assert chain.near.send_batch(batch) == 3
        assert collect(chain.source, 3) == chain.packets(3)


def test_a_batch_that_outlives_its_socket_or_its_memory():
    with veth(), two_sockets() as (sender, receiver):
        sender.send([bytes(64)] * 4)
        batch = receiver.receive_batch(timeout=5.0)
        batch[0].keep()
        receiver.close()
        assert [packet.gone for packet in batch] == [False] + [True] * (len(batch) - 1)
        assert bytes(batch[0]) == bytes(64)
        assert batch[:1].column(0, "u8").tolist() == [0]
        closed = "the socket of queue 0 of vb is closed"
        assert refusal(lambda: receiver.send_batch(batch)) == closed
        assert receiver.umem.check()[Owner.FREE] == receiver.umem.frames - 1
        batch[:1].release()
        receiver.umem.close()
        gone = "is gone: its packet memory is closed\n  try: bytes(packet) before the end"
        for act in (batch.keep, lambda: batch.column(0)):
            assert refusal(act) == f"the batch {gone}"
        assert refusal(lambda: bytes(batch[0])) == f"this packet {gone}"
        batch.release()
        assert all(packet.gone for packet in batch)
        with suppress(UsageError):
            sender.send(list(batch))
