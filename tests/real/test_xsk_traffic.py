"""Packets from one end of a veth pair to the other; in spirit the kernel's own xskxceiver selftest."""

from __future__ import annotations

import errno
import random
import select

import pytest

from tests.real.xsk_veth import (
    collect,
    completed,
    eventually,
    handle,
    ip,
    kick,
    numbered,
    put_descriptors,
    receive_together,
    send_raw,
    two_sockets,
    veth,
)
from xskit.abi.xdp import SOL_XDP, DescriptorOption, SocketOption
from xskit.bpf.redirect import Outcome
from xskit.xsk.path.owner import Owner
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root

MODES = ("native", "generic")
TX_ONLY = {"rx": 0, "program": None}
CONTINUES = int(DescriptorOption.PKT_CONTD)


@pytest.fixture
def pair():
    with veth() as name:
        yield name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("frame_size", [2048, 4096])
def test_all_packets_arrive_unchanged_and_in_order(pair, mode, frame_size):
    options = {"mode": mode}
    with two_sockets(options, options, frame_size=frame_size) as (sender, receiver):
        packets = numbered(1000, 128)
        got = []
        for start in range(0, len(packets), 100):
            assert sender.send(packets[start : start + 100]) == 100
            got += collect(receiver, 100)
        assert got == packets
        sender.flush()
        assert sender.refused == 0
        assert receiver.xdp_mode == mode
        assert sender.umem.check()[Owner.TX] == 0
        counts = receiver.umem.check()
        assert counts[Owner.FILL] + counts[Owner.HELD] == 256
        assert 0 < counts[Owner.HELD] <= 64, "the last batch is still there"


def test_one_packet_alone_arrives(pair):
    with two_sockets() as (sender, receiver):
        sender.send(numbered(1))
        assert collect(receiver, 1) == numbered(1)


def test_both_directions_in_one_life(pair):
    with two_sockets() as (left, right):
        for _ in range(3):
            left.send(numbered(50))
            assert collect(right, 50) == numbered(50)
            right.send(numbered(50, first=50))
            assert collect(left, 50) == numbered(50, first=50)


def test_ten_lives(pair):
    for _ in range(10):
        with two_sockets() as (sender, receiver):
            sender.send(numbered(10))
            assert collect(receiver, 10) == numbered(10)


def test_poll_wakes_for_a_packet_and_only_then(pair):
    with two_sockets(TX_ONLY, {"tx": 0}) as (sender, receiver):
        poll = select.poll()
        poll.register(receiver, select.POLLIN)
        assert poll.poll(20) == []
        sender.send(numbered(1))
        assert poll.poll(2000) == [(receiver.fd, select.POLLIN)]


def test_poll_of_a_full_tx_ring_waits_for_completions_to_be_taken(pair):
    with two_sockets({**TX_ONLY, "tx": 16, "completion": 16}) as (sender, _):
        descriptors = [(number * 4096, 64, 0) for number in range(16)]
        send_raw(sender, descriptors)
        put_descriptors(sender, descriptors)
        assert kick(sender) == errno.EAGAIN
        poll = select.poll()
        poll.register(sender, select.POLLOUT)
        assert poll.poll(20) == []
        assert len(completed(sender)) == 16
        assert poll.poll(2000) == [(sender.fd, select.POLLOUT)]


def test_receive_gives_up_after_its_timeout(pair):
    with two_sockets() as (_, receiver):
        assert receiver.receive(timeout=0) == []
        assert receiver.receive(timeout=0.01) == []


@pytest.mark.parametrize("frame_size", [2048, 4096])
def test_invalid_descriptors_are_counted_and_the_next_packet_goes_out(pair, frame_size):
    size = 64 * frame_size
    last = size - frame_size
    with two_sockets(TX_ONLY, frames=64, frame_size=frame_size) as (sender, receiver):
        sender.umem.view(0, 64)[:] = numbered(1)[0]
        cases = [  # address, length, options, valid
            (0, 64, 0, True),
            (2**64 - 2, 64, 0, False),
            (0, frame_size + 1, 0, False),
            (last, 64, 0, True),
            (size, 64, 0, False),
            (size - 32, 64, 0, False),
            (frame_size - 32, 64, 0, False),
            (2048 - 32, 64, 0, frame_size == 4096),
            (0, 0, 0, False),
            (0, 64, 1 << 7, False),
        ]
        invalid = 0
        for address, length, options, valid in cases:
            invalid += not valid
            assert send_raw(sender, [(address, length, options)]) == [0]
            assert send_raw(sender, [(0, 64, 0)]) == [0]
            completed(sender)
            got = collect(receiver, 1 + valid)
            assert len(got) == 1 + valid, (address, length, options)
            assert got[-1] == numbered(1)[0]
            assert sender.statistics().tx_invalid_descriptors == invalid


def test_a_packet_larger_than_the_frame_is_counted_as_dropped(pair):
    small = {"multi_buffer": False}
    with two_sockets(receiver=small, frame_size=2048, headroom=1344) as (sender, receiver):
        assert receiver.multi_buffer is False
        assert receiver.umem.capacity == 448
        sender.send(numbered(7, 440) + numbered(3, 600))
        assert len(collect(receiver, 10, timeout=0.1)) == 7
        eventually(3, lambda: receiver.statistics().rx_dropped)


def test_a_full_rx_ring_is_counted(pair):
    with two_sockets(receiver={"rx": 8}) as (sender, receiver):
        sender.send(numbered(50))
        sender.flush()
        eventually(42, lambda: receiver.statistics().rx_ring_full)
        assert len(collect(receiver, 50, timeout=0.1)) == 8


def test_an_empty_fill_ring_is_counted(pair):
    with two_sockets(receiver={"tx": 0, "fill": 8}) as (sender, receiver):
        sender.send(numbered(20))
        sender.flush()
        eventually(12, lambda: receiver.statistics().rx_fill_ring_empty)
        assert len(collect(receiver, 20, timeout=0.1)) == 8


def test_unaligned_frames_of_an_odd_size(pair):
    with two_sockets(frames=200, frame_size=3000, unaligned=True) as (left, right):
        left.send(numbered(90, 1000))
        assert collect(right, 90) == numbered(90, 1000)
        right.send(packet.keep() for packet in right.receive(timeout=0))
        right.send(numbered(30, 1400))
        assert collect(left, 30) == numbered(30, 1400)
        assert left.umem.check()[Owner.HELD] <= 30


def test_two_queues_share_one_memory():
    sent = {queue: numbered(40, first=100 * queue) for queue in (0, 1)}
    with (
        veth(rx_queues=2, tx_queues=2),
        Umem(frames=256) as memory,
        Umem(frames=512, debug=True) as umem,
        Port.open("vb", umem, mode="native") as port,
        Socket("va", 0, umem=memory, **TX_ONLY) as zero,
        Socket("va", 1, umem=memory, shared=zero, **TX_ONLY) as one,
    ):
        assert port.receive(timeout=0) == []
        zero.send(sent[0])
        one.send(sent[1])
        for queue in port.queues:
            assert collect(queue, 40) == sent[queue.queue]
        umem.check()


def test_one_queue_shared_by_two_sockets(pair):
    with (
        Umem(frames=256, debug=True) as umem,
        Umem(frames=256) as memory,
        Socket("va", umem=umem, **TX_ONLY) as first,
        Socket("va", umem=umem, shared=first, **TX_ONLY) as second,
        Socket("vb", umem=memory) as receiver,
    ):
        assert second.primary is first.primary
        assert second.transmitter.completion_ring is None
        first.send(numbered(10))
        second.send(numbered(10, first=10))
        assert collect(receiver, 20) == numbered(20)
        second.flush()
        assert umem.check()[Owner.FREE] == 256
        first.close()
        assert second.fd == -1


def test_the_program_gives_packets_to_the_socket_registered_last(pair):
    with Umem(frames=256) as umem, Umem(frames=256) as other, Socket("va", umem=other, **TX_ONLY) as sender:
        port = Port.open("vb", umem)
        receiver = port.queues[0]
        receiver.receive(timeout=0)
        sender.send(numbered(5))
        assert collect(receiver, 5) == numbered(5)
        port._attachment.program.unregister(0)
        sender.send(numbered(4))
        eventually(dict.fromkeys(Outcome, 0) | {Outcome.REDIRECTED: 5, Outcome.PASSED: 4}, port.outcomes)
        assert receiver.receive(timeout=0.02) == []
        port.close()


def test_the_budget_of_one_sendto(pair):
    with two_sockets({**TX_ONLY, "tx": 256}) as (sender, _):
        assert sender.transmit_budget in (256, None)
        with handle(sender.transmitter) as sending:
            sending.setsockopt(SOL_XDP, SocketOption.MAX_TX_SKB_BUDGET, 32)
        ring = put_descriptors(sender, [(number * 4096, 64, 0) for number in range(100)])
        left, answers = [], []
        while pending := ring.pending():
            answers.append(kick(sender))
            left.append(pending)
        assert left == [100, 68, 36, 4]
        assert answers == [errno.EAGAIN] * 3 + [0]


def test_completions_that_are_not_taken_stop_the_sender(pair):
    with two_sockets({**TX_ONLY, "completion": 16}) as (sender, receiver):
        assert sender.send(numbered(40)) == 40
        assert collect(receiver, 40) == numbered(40)
        sender.flush()
        ring = put_descriptors(sender, [(number * 4096, 64, 0) for number in range(40)])
        assert [kick(sender) for _ in range(3)] == [errno.EAGAIN] * 3
        assert ring.pending() == 24


def test_each_refused_packet_is_counted_once(pair):
    with two_sockets() as (sender, receiver):
        longest, too_long, runt = numbered(1, 1518)[0], numbered(1, 1519)[0], bytes(13)
        sender.send([too_long, longest, runt, runt, *numbered(3), too_long])
        sender.flush()
        assert sender.refused == 4
        assert collect(receiver, 4) == [longest, *numbered(3)]
        assert sender.umem.check()[Owner.TX] == 0
        ip("-n", pair, "link", "set", "dev", "vb", "down")  # no carrier
        sender.send(numbered(5))
        sender.flush()
        assert sender.refused == 9


def test_more_packets_than_frames_are_sent_as_frames_come_back(pair):
    with two_sockets({**TX_ONLY, "tx": 32}, frames=16) as (sender, receiver):
        assert sender.send(numbered(200)) == 200
        sender.flush()
        assert sender.umem.check()[Owner.FREE] == 16
        assert len(collect(receiver, 200, timeout=0.1)) >= 8


def test_send_stops_where_no_frame_is_left(pair):
    with two_sockets(frames=8) as (left, right):
        left.send(numbered(4))
        kept = [packet.keep() for packet in receive_together(right, 4)]
        rest = right.new_batch(64, right.umem.pool.free)
        assert right.umem.pool.free == 0
        assert right.send([b"x" * 60, b"y" * 60]) == 0
        assert right.send(kept) == len(kept) == 4
        rest.release()


def test_nothing_is_lost_in_a_thousand_random_steps(pair):
    dice = random.Random(7)
    with two_sockets(frames=96) as ends:
        kept = []
        for step in range(1000):
            sock = dice.choice(ends)
            match dice.randrange(5):
                case 0 | 1:
                    sock.send(numbered(dice.randrange(20), dice.choice([64, 300, 1500]), first=step))
                case 2:
                    batch = sock.receive(timeout=0, limit=dice.randrange(1, 70))
                    kept += [(sock, packet.keep()) for packet in batch if dice.random() < 0.2]
                case 3 if kept:
                    owner, packet = kept.pop(dice.randrange(len(kept)))
                    if dice.random() < 0.5 or not owner.send([packet]):
                        packet.release()
                case 4:
                    sock.flush()
        for sock in ends:
            sock.flush()
            counts = sock.umem.check()
            assert sum(counts.values()) == 96
            assert counts[Owner.TX] == counts[Owner.COMPLETION] == 0
        for _, packet in kept:
            packet.release()
        memories = [sock.umem for sock in ends]
        for sock in ends:
            sock.close()
        for umem in memories:
            assert umem.check()[Owner.FREE] == 96
