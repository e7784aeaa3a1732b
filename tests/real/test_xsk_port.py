"""Ports: the ladder of modes, all queues, two sockets a queue, and that nothing is left behind whatever happens."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import select
from contextlib import ExitStack

import numpy as np
import pytest

from tests.real.xsk_veth import (
    collect,
    completed,
    eventually,
    ip,
    kick,
    last_sent,
    namespace,
    numbered,
    put_descriptors,
    receive_together,
    veth,
)
from xskit import libc
from xskit.bpf.errors import AttachError
from xskit.bpf.redirect import Outcome
from xskit.memory import record_view
from xskit.netconf.interfaces import LinkState
from xskit.xsk import opening, umem
from xskit.xsk.batch import Drafts
from xskit.xsk.errors import PortError
from xskit.xsk.pages import MAP_FIXED, MAP_NORESERVE, Pages
from xskit.xsk.path.owner import Owner
from xskit.xsk.path.rings import Ring
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root

TX_ONLY = {"rx": 0, "program": None}


@pytest.fixture
def pair():
    with veth() as name:
        yield name


def descriptors():
    gc.collect()
    return set(os.listdir("/proc/self/fd"))


def ring_maps():
    with open("/proc/self/maps") as lines:
        return sum("socket:[" in line for line in lines)


def test_a_port_in_another_namespace_shows_what_it_got():
    home = os.readlink("/proc/thread-self/ns/net")
    with namespace() as name, Umem(frames=64) as memory:
        ip("-n", name, "link", "add", "va", "mtu", "1400", "type", "veth", "peer", "name", "vb")
        for end in ("va", "vb"):
            ip("-n", name, "link", "set", "dev", end, "up")
        before = descriptors()
        with Port.open("va", memory, namespace=name) as port:
            assert os.readlink("/proc/thread-self/ns/net") == home
            assert (port.name, port.mtu, port.max_length, port.max_frames) == ("va", 1400, 1418, 18)
            assert (port.xdp_mode, port.zero_copy, port.multi_buffer) == ("native", False, True)
            assert port.why == ["zero copy: the driver of va has no zero copy on queue 0"]
            assert port.state() is LinkState.UP
            (queue,) = port.queues
            rings = (queue.receiver.rx_ring, queue.receiver.fill_ring, queue.receiver.completion_ring)
            rings += (queue.transmitter.tx_ring,)
            assert [record_view(Ring, ring).size for ring in rings] == [2048] * 4
            assert queue.receiver.tx_ring is queue.transmitter.rx_ring is queue.transmitter.completion_ring is None
            ip("-n", name, "link", "set", "dev", "vb", "down")
            assert port.state() is LinkState.DOWN
        assert port.state() is LinkState.GONE
        assert descriptors() == before
        assert ring_maps() == 0


@pytest.mark.parametrize("mode", ["auto", "generic"])
def test_a_device_without_native_xdp_is_opened_in_generic_mode(pair, mode):
    ip("link", "add", "xkd0", "up", "type", "bridge")
    ip("link", "set", "vb", "master", "xkd0")  # a bridge has a carrier when a port of it has
    with Umem(frames=64) as memory, Port.open("xkd0", memory, mode=mode) as port:
        assert (port.xdp_mode, port.zero_copy) == ("generic", False)
        assert [sentence.partition(":")[0] for sentence in port.why] == (["native"] if mode == "auto" else [])
    with Umem(frames=64) as memory, pytest.raises(AttachError):
        Port.open("xkd0", memory, mode="native")


def test_an_opening_that_fails_half_way_is_taken_back(monkeypatch):
    monkeypatch.setattr(opening, "BUSY_SECONDS", 0.05)
    with veth(rx_queues=2, tx_queues=2), Umem(frames=64) as memory, Umem(frames=64) as other:
        with Socket("va", 1, umem=other, program=None):
            before, maps = descriptors(), ring_maps()
            with pytest.raises(PortError, match="^queue 1 of va is in use"):
                Port.open("va", memory)
            assert descriptors() == before
            assert ring_maps() == maps
        with Port.open("va", memory) as port:
            assert [queue.queue for queue in port.queues] == [0, 1]


def test_chosen_queues_only():
    with veth(rx_queues=3, tx_queues=3), Umem(frames=64) as memory, Port.open("va", memory, queues=[2, 0]) as port:
        assert [queue.queue for queue in port.queues] == [0, 2]


def test_two_ports_on_one_interface_are_refused(pair):
    with (
        Umem(frames=64) as memory,
        Port.open("va", memory),
        pytest.raises(AttachError, match="another XDP program .* is attached to va"),
    ):
        Port.open("va", memory, mode="native")


def test_a_packet_goes_from_port_to_port_without_a_copy():
    with ExitStack() as stack:
        names = [stack.enter_context(namespace(end)) for end in "ab"]
        for name in names:
            ip("-n", name, "link", "add", "va", "type", "veth", "peer", "name", "vb")
            for end in ("va", "vb"):
                ip("-n", name, "link", "set", "dev", end, "up")
        memory = stack.enter_context(Umem(frames=256, debug=True))
        outer = stack.enter_context(Umem(frames=256))
        left, right = (stack.enter_context(Port.open("vb", memory, namespace=name)) for name in names)
        source, sink = (stack.enter_context(Port.open("va", outer, namespace=name)) for name in names)
        for port in (left, sink):
            assert port.receive(timeout=0) == []
        assert source.send(numbered(30)) == 30
        forwarded = 0
        while forwarded < 30 and (batch := left.receive(timeout=2.0)):
            offsets = {packet.parts[0][0] for packet in batch}
            assert right.send(batch) == len(batch)
            assert set(last_sent(right.queues[0], len(batch))) == offsets
            forwarded += len(batch)
        assert collect(sink, 30) == numbered(30)
        right.flush()
        assert memory.check()[Owner.TX] == 0


def test_polling_the_receiver_does_not_send(pair):
    with Umem(frames=64) as memory, Port.open("va", memory) as port:
        (queue,) = port.queues
        ring = put_descriptors(queue, [(0, 64, 0)])
        poll = select.poll()
        poll.register(queue, select.POLLIN | select.POLLOUT)
        poll.poll(20)
        assert ring.pending() == 1
        assert kick(queue) == 0
        assert completed(queue) == [0]


def test_statistics_are_those_of_all_queues_and_stay_after_close():
    with veth(rx_queues=2, tx_queues=2), Umem(frames=64) as memory, Umem(frames=64) as other:
        port = Port.open("vb", memory, mode="native")
        with Socket("va", 0, umem=other, **TX_ONLY) as zero, Socket("va", 1, umem=other, shared=zero, **TX_ONLY) as one:
            zero.send(numbered(3))
            one.send(numbered(4))
            for queue in port.queues:
                put_descriptors(queue, [(1 << 40, 64, 0)])
                kick(queue)
        eventually(7, lambda: port.statistics().rx_fill_ring_empty)
        for _ in range(2):
            counted = port.statistics()
            assert (counted.rx_dropped, counted.rx_fill_ring_empty) == (7, 7)
            assert (counted.tx_invalid_descriptors, counted.rx_ring_full) == (2, 0)
            assert port.outcomes() == dict.fromkeys(Outcome, 0) | {Outcome.REDIRECTED: 7}
            port.close()


def test_a_port_whose_interface_is_deleted_closes_like_any_other(pair):
    before = descriptors()
    with Umem(frames=64) as memory:
        port = Port.open("va", memory)
        ip("link", "del", "dev", "va")
        assert port.state() is LinkState.GONE
        port.close()
        port.close()
        assert port.closed
    assert descriptors() == before
    assert ring_maps() == 0


def test_closing_the_memory_closes_its_sockets(pair):
    memory = Umem(frames=64)
    port = Port.open("va", memory)
    memory.close()
    assert port.queues[0].receiver.fd == port.queues[0].transmitter.fd == -1
    port.close()


class FoldedPages(Pages):
    """5 GiB of addresses over 2 MiB of memory, mapped again and again."""

    FOLD = 2 << 20

    def __init__(self, size, **_):
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.view = memoryview(memory)
        fd = os.memfd_create("xkfold")
        os.truncate(fd, self.FOLD)
        for offset in range(0, size, self.FOLD):
            libc.shared.mmap(self.address + offset, self.FOLD, 3, mmap.MAP_SHARED | MAP_FIXED, fd, 0)
        os.close(fd)


def test_frames_beyond_four_gibibytes(pair, monkeypatch):
    monkeypatch.setattr(umem, "Pages", FoldedPages)
    frames = (5 << 30) // 4096
    with Umem(frames=frames) as memory:
        monkeypatch.undo()
        rest = Drafts(memory).make(np.full(frames - 400, 64))  # the frames that are left lie at the end
        assert len(rest) == frames - 400
        with Umem(frames=256) as other, Socket("va", umem=memory) as left, Socket("vb", umem=other) as right:
            right.send(numbered(5))
            batch = receive_together(left, 5)
            assert batch[0].parts[0][0] > 4 << 30
            assert [bytes(packet) for packet in batch] == numbered(len(batch))
            assert left.send(numbered(5)) == 5
            assert min(last_sent(left, 5)) > 4 << 30
            assert left.send(batch) == len(batch)
            assert collect(right, 5 + len(batch)) == numbered(5) + numbered(len(batch))
