"""Packets of several frames: jumbo packets both ways, and what the kernel makes of broken ones."""

from __future__ import annotations

import pytest

from tests.real.xsk_veth import collect, completed, numbered, receive_together, send_raw, two_sockets, veth
from xskit.abi.xdp import DescriptorOption
from xskit.errors import UsageError
from xskit.xsk.headers import udp_packet
from xskit.xsk.path.owner import Owner

pytestmark = pytest.mark.root

TX_ONLY = {"rx": 0, "program": None}
CONTINUES = int(DescriptorOption.PKT_CONTD)


@pytest.fixture
def pair():
    with veth() as name:
        yield name


@pytest.mark.parametrize("mode", ["native", "generic"])
@pytest.mark.parametrize(("frame_size", "frames"), [(4096, 3), (2048, 6)])
def test_a_jumbo_packet_is_one_packet_both_ways(mode, frame_size, frames):
    options = {"mode": mode}
    with veth(mtu=9000), two_sockets(options, options, frame_size=frame_size) as (left, right):
        packets = numbered(10, 9014)
        assert left.send(packets) == 10
        batch = receive_together(right, 10 * frames)
        assert [packet.length for packet in batch] == [9014] * len(batch)
        assert {len(packet.segments) for packet in batch} == {frames}
        assert [bytes(packet) for packet in batch] == packets[: len(batch)]
        right.send(batch)
        assert collect(left, len(batch)) == packets[: len(batch)]
        right.flush()
        right.receive(timeout=0)
        assert right.umem.check()[Owner.TX] == 0


def test_a_jumbo_packet_without_multi_buffer_is_dropped_and_cannot_be_sent():
    with veth(mtu=9000), two_sockets(receiver={"multi_buffer": False}) as (sender, receiver):
        sender.send(numbered(1, 9014) + numbered(1))
        assert collect(receiver, 2, timeout=0.1) == numbered(1)
        assert receiver.statistics().rx_dropped == 1
        with pytest.raises(UsageError, match="needs 3 frames, and this socket has no multi-buffer"):
            receiver.send(numbered(1, 9014))


def test_eighteen_fragments_go_out_and_nineteen_are_invalid(pair):
    piece = 64
    packet = udp_packet(length=18 * piece)
    with two_sockets(TX_ONLY) as (sender, receiver):
        for number in range(18):
            sender.umem.view(number * 4096, piece)[:] = packet[number * piece : (number + 1) * piece]
        fragments = [(number * 4096, piece, CONTINUES) for number in range(18)]
        assert send_raw(sender, [*fragments, (18 * 4096, piece, 0)]) == [0]
        assert len(completed(sender)) == 19
        assert sender.statistics().tx_invalid_descriptors == 19
        assert send_raw(sender, [*fragments[:17], (17 * 4096, piece, 0)]) == [0]
        assert len(completed(sender)) == 18
        assert collect(receiver, 2, timeout=0.2) == [packet]
        with pytest.raises(UsageError, match="needs 19 frames, and the kernel sends at most 18 at once"):
            sender.send([bytes(18 * sender.umem.capacity + 1)])


@pytest.mark.parametrize("broken", [(10**12, 64), (4096 - 8, 64), (4096, 0)])
def test_a_packet_with_a_broken_fragment_is_dropped_whole(pair, broken):
    with two_sockets(TX_ONLY) as (sender, receiver):
        sender.umem.view(0, 64)[:] = numbered(1)[0]
        send_raw(sender, [(0, 64, CONTINUES), (*broken, CONTINUES), (8192, 64, 0), (0, 64, 0)])
        assert collect(receiver, 2, timeout=0.2) == numbered(1)
        assert sender.statistics().tx_invalid_descriptors > 0
