"""What the packet memory can do besides: checksums by TX metadata, the introduction's example, and fork."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import xskit
from tests.real.xsk_veth import collect, numbered, send_raw, two_sockets, veth
from xskit.abi.xdp import AF_XDP, SOL_XDP, DescriptorOption, SocketOption, TxMetadataFlag
from xskit.errors import UsageError
from xskit.xsk import headers
from xskit.xsk.headers import udp_packet
from xskit.xsk.mapping import RingSet
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root

TX_ONLY = {"rx": 0, "program": None}


@pytest.fixture
def pair():
    with veth() as name:
        yield name


def test_the_kernel_finishes_a_checksum_asked_for_in_tx_metadata(pair):
    memory = {"tx_metadata_bytes": 24, "software_checksums": True}
    with two_sockets(TX_ONLY, **memory) as (sender, receiver):
        packet = bytearray(udp_packet(b"payload", length=64))
        addresses = headers.pseudo_header("10.0.0.1", "10.0.0.2", 17, 64 - 34)
        packet[40:42] = (0xFFFF - headers.checksum(addresses)).to_bytes(2, "big")
        assert not headers.transport_checksum_holds(bytes(packet))
        checksum = struct.pack("=QHH", TxMetadataFlag.CHECKSUM, 34, 6)
        sender.umem.view(256 - 24, 24 + 64)[:] = checksum.ljust(24, b"\0") + packet
        assert send_raw(sender, [(256, 64, DescriptorOption.TX_METADATA)]) == [0]
        (arrived,) = collect(receiver, 1)
        assert headers.transport_checksum_holds(arrived)
        assert arrived[:40] == packet[:40]


def test_the_example_of_the_introduction(pair, capsys):
    with (
        Umem(frames=64) as other,
        Socket("va", umem=other, **TX_ONLY) as sender,
        xskit.Umem(frames=4096) as umem,
        xskit.Socket("vb", umem=umem) as sock,
    ):
        sender.send(numbered(1))
        for packet in sock.receive(timeout=1.0):
            print(packet.length, bytes(packet[:14]))
    assert capsys.readouterr().out == f"64 {numbered(1)[0][:14]}\n"


def test_a_forked_child_takes_nothing_from_its_parent(pair):
    with two_sockets() as (sender, receiver):
        if (child := os.fork()) == 0:
            code = 1
            with suppress(BaseException):
                with pytest.raises(UsageError, match="^the socket of queue 0 of vb is closed$"):
                    receiver.receive(timeout=0)
                for one in (sender, receiver):
                    one.close()
                    one.umem.close()
                code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        sender.send(numbered(3))
        assert len(receiver.receive(timeout=30.0)) >= 1


def test_what_a_forked_child_has_not_is_said(pair):
    with two_sockets() as (sender, receiver):
        sender.send(numbered(1))
        (packet,) = receiver.receive(timeout=30.0)
        packet.keep()
        if (child := os.fork()) == 0:
            code = 1
            with suppress(BaseException):
                with pytest.raises(UsageError, match="^this packet is gone: its packet memory is closed"):
                    bytes(packet)
                with pytest.raises(UsageError, match="^the socket of queue 0 of vb is closed$"):
                    receiver.statistics()
                packet.release()
                receiver.umem.check()
                code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert bytes(packet) == numbered(1)[0]


def test_a_forked_child_has_no_rings_and_zeros_for_packets(pair):
    with two_sockets() as (sender, receiver):
        sender.send(numbered(1))
        (packet,) = receiver.receive(timeout=30.0)
        seen = packet.keep().segments[0][:]
        rings = receiver.receiver.rings
        entries = rings.rx.entries, rings.fill.entries
        assert all(shown.view(np.uint64).any() for shown in entries)
        assert "socket:[" in Path("/proc/self/maps").read_text()
        if (child := os.fork()) == 0:
            code = 1
            with suppress(BaseException):
                assert "socket:[" not in Path("/proc/self/maps").read_text()
                assert bytes(seen) == bytes(64)
                assert not any(shown.view(np.uint64).any() for shown in entries)
                entries[1][:] = 5
                rings.close()
                assert entries[1].size == rings.rx.entries.size == 2048
                code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert all(shown.view(np.uint64).any() for shown in entries)
        assert bytes(seen) == numbered(1)[0]
        sender.send(numbered(3))
        assert collect(receiver, 3) == numbered(3)


def test_a_queue_is_free_again_while_views_of_its_rings_are_held(pair):
    held = []
    for _ in range(3):
        with Umem(frames=64) as umem:
            sock = Socket("vb", umem=umem)  # EBUSY for a second would raise
            received, sent = sock.receiver.rings, sock.transmitter.rings
            rings = [received.rx, sent.tx, received.fill, received.completion]
            held += [ring.entries[:32] for ring in rings]
            assert held[-2].any()  # FILL
            sock.close()
            assert "socket:[" not in Path("/proc/self/maps").read_text()
            assert [ring.size for ring in rings] == [0] * 4
            assert [ring.pending() for ring in rings] == [0] * 4
    assert not any(entries.view(np.uint64).any() for entries in held)
    held[-2][:] = 1
    assert held[-2].sum() == 32


def test_a_forgotten_set_of_rings_lets_go_of_the_queue(pair):
    with Umem(frames=64) as umem:
        sizes = {"rx": 64, "tx": 0, "fill": 64, "completion": 64}
        with socket.socket(AF_XDP, socket.SOCK_RAW) as other:
            umem.register(other)
            for option, entries in (("RX_RING", 64), ("UMEM_FILL_RING", 64), ("UMEM_COMPLETION_RING", 64)):
                other.setsockopt(SOL_XDP, SocketOption[option], entries)
            rings = RingSet(other, **sizes)
            count = Path("/proc/self/maps").read_text().count("socket:[")
            del rings
            assert Path("/proc/self/maps").read_text().count("socket:[") == count - 3


@pytest.mark.parametrize("memory", [{"huge": False}, {"huge": True}])
def test_after_a_fork_the_kernel_and_the_parent_still_have_the_same_memory(pair, memory):
    with two_sockets(receiver={}, frames=1024, **memory) as (sender, receiver):
        sender.send(numbered(200))
        assert collect(receiver, 200) == numbered(200)
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            os.read(reading, 1)  # it lives on, so that pages shared with it would be copied when they are written
            os._exit(0)
        try:
            for number in range(10):  # each frame again, FILL's as well as those that are sent from
                sender.send(numbered(200, first=200 * number))
                assert collect(receiver, 200) == numbered(200, first=200 * number)
        finally:
            os.write(writing, b"x")
            assert os.waitpid(child, 0)[1] == 0
            os.close(reading)
            os.close(writing)


def test_a_view_of_a_received_packet_outlives_everything(pair):
    with two_sockets() as (sender, receiver):
        sender.send(numbered(1))
        (packet,) = receiver.receive(timeout=30.0)
        seen = np.frombuffer(packet.keep().segments[0], np.uint8)
        receiver.umem.close()
        assert seen.tobytes() == numbered(1)[0]
        with Umem(frames=64) as umem, Socket("vb", umem=umem) as again:  # the queue is free all the same
            sender.send(numbered(1, first=1))
            assert collect(again, 1) == numbered(1, first=1)
        assert seen.tobytes() == numbered(1)[0]
