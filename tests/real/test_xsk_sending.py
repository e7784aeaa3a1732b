"""What `send` takes, how much of it, and what an iterator of packets may do meanwhile."""

from __future__ import annotations

import array
import threading

import numpy as np
import pytest

from tests.real.xsk_veth import GROUNDS, Chain, collect, last_sent, numbered, two_sockets, veth
from xskit.errors import UsageError
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


ONE = {
    "bytes": lambda data: data,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "part of a memoryview": lambda data: memoryview(b"..." + data + b"...")[3:-3],
    "wide items": lambda data: memoryview(array.array("Q", data)) if len(data) % 8 == 0 else data,
    "rows of bytes": lambda data: (
        memoryview(np.frombuffer(data, np.uint8).reshape(2, -1)) if len(data) % 2 == 0 else data
    ),
}


@pytest.mark.parametrize("kind", ONE)
def test_one_packet_is_sent_by_itself_or_in_a_list(chain, kind):
    packets = chain.packets(5)
    assert chain.far.send(ONE[kind](packets[0])) == 1
    assert chain.far.send([ONE[kind](packet) for packet in packets[1:]]) == 4
    assert collect(chain.sink, 5) == packets


@pytest.mark.parametrize("many", [list, tuple, iter, lambda packets: (packet for packet in packets), dict.fromkeys])
def test_many_packets_are_sent_in_order(chain, many):
    packets = chain.packets(30)
    assert chain.far.send(many(packets)) == 30
    assert collect(chain.sink, 30) == packets
    assert chain.far.send(many([])) == 0


def test_received_packets_are_sent_where_they_lie(chain):
    batch = chain.batch(8)
    addresses = batch.rows["address"].tolist()
    one, *others = batch
    assert chain.far.send(one) == 1
    assert chain.far.send(others) == 7
    assert all(packet.gone for packet in batch)
    assert collect(chain.sink, 8) == chain.packets(8)
    assert set(addresses) <= set(last_sent(chain.far, int(batch.rows["frames"].sum())))
    assert refusal(lambda: chain.far.send(one)).startswith("this packet is gone: its frames went back")


def test_bytes_and_received_packets_go_out_together(chain):
    batch = chain.batch(6)
    mixed = [packet if number % 2 else bytes(packet) for number, packet in enumerate(batch)]
    assert chain.far.send(mixed) == 6
    assert collect(chain.sink, 6) == chain.packets(6)
    assert [packet.gone for packet in batch] == [False, True] * 3


def test_a_batch_is_sent_as_send_batch_does(chain):
    batch = chain.batch(6)
    assert chain.far.send(batch[:3]) == 3
    assert chain.far.send(batch[3:]) == 3
    assert collect(chain.sink, 6) == chain.packets(6)


def test_packets_of_other_memory_are_copied_and_stay(chain):
    chain.far.send(chain.packets(4))
    got: list[bytes] = []
    while len(got) < 4:
        for packet in chain.sink.receive(timeout=5.0):
            seen = packet.segments
            assert chain.far.send(packet) == 1
            assert not packet.gone
            assert b"".join(seen) == bytes(packet), "its views are as they were"
            got.append(bytes(packet))
    assert got == chain.packets(4)
    assert collect(chain.sink, 4) == chain.packets(4)


def test_packets_are_made_in_place(chain):
    packets = chain.packets(7)
    batch = chain.far.new_batch(map(len, packets))
    assert len(batch) == 7
    assert batch.rows["length"].tolist() == list(map(len, packets))
    for packet, data in zip(batch, packets, strict=True):
        at = 0
        for segment in packet.segments:
            segment[:] = data[at : at + len(segment)]
            at += len(segment)
    assert chain.far.send_batch(batch) == 7
    assert collect(chain.sink, 7) == packets
    assert chain.far.new_batch(chain.length, 3).rows["length"].tolist() == [chain.length] * 3


def test_a_sent_bytearray_may_be_changed_at_once(chain):
    data = bytearray(chain.packets(1)[0])
    assert chain.far.send(data) == 1
    data[42:46] = b"....  "
    assert collect(chain.sink, 1) == chain.packets(1)


def test_what_cannot_be_sent_stops_a_list_and_those_before_it_are_sent(chain):
    good = chain.packets(3)
    for bad, said in (
        (b"", "a packet of no bytes cannot be sent"),
        (memoryview(b""), "a packet of no bytes cannot be sent"),
        ("abc", "a packet must be bytes or a Packet, not 'abc'"),
        (memoryview(b"....")[::2], "a packet must be bytes or a Packet, not <memory at"),
        (np.zeros(4), "a packet must be bytes or a Packet, not array"),
        (bytes(18 * chain.umem.capacity + 1), "needs 19 frames, and the kernel sends at most 18 at once"),
    ):
        assert said in refusal(lambda bad=bad: chain.far.send([*good, bad, good[0]]))
        assert collect(chain.sink, 4, timeout=0.05) == good
        assert chain.umem.check()[Owner.HELD] == 0


def test_an_iterator_that_fails_is_heard_and_what_it_gave_is_sent(chain):
    packets = chain.packets(70)

    def broken():
        yield from packets
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        chain.far.send(broken())
    assert collect(chain.sink, 70) == packets


@pytest.fixture
def pair():
    with veth() as name:
        yield name


def test_more_than_there_is_room_for_is_sent_as_frames_come_back(pair):
    with two_sockets({"tx": 16}, {"rx": 2048}, frames=64) as (sender, receiver):
        packets = iter(numbered(500))
        assert sender.send(packets) == 500
        sender.flush()
        assert sender.umem.check()[Owner.TX] == 0
        assert 32 <= len(collect(receiver, 500, timeout=0.1)) <= 500


def test_send_stops_where_there_is_no_room_and_says_how_far_it_came(pair):
    with two_sockets(frames=64) as (sender, receiver):
        packets = numbered(20)
        held = [sender.new_batch(64, sender.umem.pool.free - 3)]
        assert sender.send(packets) == 20, "frames come back"
        assert collect(receiver, 20) == packets
        held.append(sender.new_batch(64, 3))
        assert sender.umem.pool.free == 0
        left = iter(packets)
        assert sender.send(left) == 0
        assert len(list(left)) == 19, "of an iterator, one packet is lost"
        for batch in held:
            batch.release()
        assert sender.send(packets) == 20


def test_an_iterator_may_use_other_sockets_but_not_the_one_that_sends(pair):
    with two_sockets() as (sender, receiver):
        said = []

        def curious():
            yield numbered(1)[0]
            said.append(refusal(lambda: sender.send(numbered(1))))
            said.append(refusal(sender.flush))
            assert sender.receive(timeout=0) == []
            assert receiver.send(numbered(1, first=5)) == 1
            yield numbered(1, first=1)[0]

        assert sender.send(curious()) == 2
        busy = "another call is sending on queue 0 of va, and only one can at a time"
        assert said == [f"{busy}\n  try: threading.Lock() around the calls"] * 2
        assert collect(receiver, 2) == numbered(2)
        assert collect(sender, 1) == numbered(1, first=5)


def test_an_iterator_may_close_the_socket_that_sends(pair):
    with two_sockets() as (sender, _):

        def closing():
            yield numbered(1)[0]
            sender.close()
            assert not sender.closed, "not while a call is inside"
            yield numbered(1)[0]

        sender.send(closing())
        assert sender.closed
        assert sender.umem.check()[Owner.FREE] == sender.umem.frames


def test_a_socket_is_a_sequence_of_packets_until_it_is_closed(pair):
    with two_sockets() as (sender, receiver):
        sender.send(numbered(10))
        got = []
        for packet in receiver:
            got.append(bytes(packet))
            if len(got) == 4:
                break
        assert got == numbered(4)
        sender.send(numbered(3, first=20))
        closing = threading.Timer(0.2, receiver.close)
        closing.start()
        later = [bytes(packet) for packet in receiver]
        closing.join()
        assert later[-3:] == numbered(3, first=20)
        assert receiver.closed
        assert list(receiver) == []
