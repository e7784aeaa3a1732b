"""Packets in the hands of a program: views, stamps, and whose their frames are."""

from __future__ import annotations

import pickle
import time

import pytest

from tests.real.xsk_veth import collect, numbered, receive_together, two_sockets, veth
from xskit.errors import UsageError
from xskit.xsk.path.owner import Owner

pytestmark = pytest.mark.root


@pytest.fixture
def pair():
    with veth() as name:
        yield name


def test_a_received_packet_goes_out_again_without_a_copy(pair):
    with two_sockets() as (left, right):
        left.send(numbered(20))
        batch = receive_together(right, 20)
        offsets = [packet.parts[0][0] for packet in batch]
        batch[0].segments[0][0:6] = b"\x02\0\0\0\0\x09"
        assert right.send(batch) == len(batch)
        assert all(packet.gone for packet in batch)
        returned = collect(left, len(batch))
        assert returned[0][:6] == b"\x02\0\0\0\0\x09"
        assert returned[1:] == numbered(20)[1 : len(batch)]
        right.flush()
        owners = right.umem.table.owners()
        assert {owners[offset // right.umem.frame_size] for offset in offsets} == {Owner.FREE}


def test_a_kept_packet_outlives_the_next_receive_and_others_do_not(pair):
    with two_sockets() as (sender, receiver):
        sender.send(numbered(2))
        first, second = receive_together(receiver, 2)
        first.keep()
        sender.send(numbered(1, first=2))
        assert collect(receiver, 1) == numbered(1, first=2)
        assert bytes(first) == numbered(1)[0]
        with pytest.raises(UsageError, match="this packet is gone"):
            bytes(second)
        held = receiver.umem.check()[Owner.HELD]
        first.release()
        assert receiver.umem.check()[Owner.HELD] == held - 1


def test_a_view_that_is_still_in_use_costs_the_frames_of_its_own_packet_only(pair):
    with two_sockets() as (sender, receiver):
        sender.send(numbered(4))
        batch = receive_together(receiver, 4)
        seen = pickle.PickleBuffer(batch[0].segments[0])
        with pytest.raises(UsageError, match="a view of a packet is still in use"):
            receiver.receive(timeout=0)
        assert bytes(seen) == numbered(1)[0]
        assert receiver.umem.check()[Owner.HELD] == 1
        assert [packet.gone for packet in batch] == [False, True, True, True]
        seen.release()
        batch[0].release()
        assert receiver.umem.check()[Owner.HELD] == 0


def test_a_socket_is_closed_though_a_view_is_still_in_use(pair):
    with two_sockets() as (sender, receiver):
        memory = receiver.umem
        sender.send(numbered(3))
        first, *_ = receive_together(receiver, 3)
        seen = pickle.PickleBuffer(first.segments[0])
        receiver.close()
        assert receiver.fd == -1
        assert memory.check()[Owner.FREE] == memory.frames - 1
        assert bytes(seen) == numbered(1)[0]
        seen.release()
        first.release()
        assert memory.check()[Owner.FREE] == memory.frames


def test_a_view_of_wider_items_is_sent_by_its_bytes(pair):
    with two_sockets(receiver={}) as (sender, receiver):
        words = memoryview(numbered(1, 1500)[0]).cast("I")
        assert sender.send([words]) == 1
        assert collect(receiver, 1) == numbered(1, 1500)
        with pytest.raises(UsageError, match=r"a packet of 76800 bytes needs 20 frames"):
            sender.send([memoryview(bytes(76800)).cast("I")])


def test_the_packet_begins_behind_the_headroom(pair):
    with two_sockets(receiver={}, headroom=128) as (sender, receiver):
        sender.send(numbered(5))
        assert {packet.parts[0][0] % 4096 for packet in receive_together(receiver, 5)} == {256 + 128}


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_packets_carry_the_kernels_stamp(pair, mode):
    with two_sockets(receiver={"mode": mode}) as (sender, receiver):
        before_ns = time.monotonic_ns()
        sender.send(numbered(30))
        got = receive_together(receiver, 30)
        stamps = [packet.arrived_ns for packet in got]
        assert before_ns < stamps[0]
        assert stamps == sorted(stamps)
        assert stamps[-1] < time.monotonic_ns()


def test_a_frame_keeps_no_stamp_of_an_earlier_packet(pair):
    with two_sockets(receiver={"tx": 0, "fill": 1}) as (sender, receiver):
        sender.send(numbered(1))
        (packet,) = receiver.receive(timeout=2.0)
        offset = packet.parts[0][0]
        assert packet.arrived_ns
        assert receiver.umem.read(offset - 8, 8) == bytes(8)
