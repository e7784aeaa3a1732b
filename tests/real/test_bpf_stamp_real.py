"""The redirect program with a real AF_XDP socket: where in the UMEM the packet and its stamp come to lie.

The rings are driven by hand here, with nothing but `abi`: bpf/ stands below xsk/.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
import time
from contextlib import ExitStack, contextmanager

import pytest

from tests.real.bpf_veth import entered, two_hosts
from xskit.abi.xdp import (
    AF_XDP,
    DESCRIPTOR,
    SOL_XDP,
    BindFlag,
    DescriptorOption,
    MmapOffsets,
    PageOffset,
    SockaddrXdp,
    SocketOption,
    UmemReg,
)
from xskit.bpf.attach import XdpMode
from xskit.bpf.redirect import STAMP_BYTES, Outcome, RedirectProgram

pytestmark = pytest.mark.root

FRAME_BYTES, FRAMES = 2048, 64
MAP_POPULATE = 0x8000
_libc = ctypes.CDLL(None, use_errno=True)


class Receiver:
    """One AF_XDP socket that receives: a UMEM, and FILL and RX in the simplest way."""

    def __init__(self, stack, ifindex):
        self.memory = stack.enter_context(mmap.mmap(-1, FRAME_BYTES * FRAMES, flags=mmap.MAP_PRIVATE | MAP_POPULATE))
        self.socket = stack.enter_context(socket.socket(AF_XDP, socket.SOCK_RAW, 0))
        pointer = ctypes.c_char.from_buffer(self.memory)
        self._set(SocketOption.UMEM_REG, UmemReg(ctypes.addressof(pointer), len(self.memory), FRAME_BYTES).pack())
        del pointer
        for ring in (SocketOption.UMEM_FILL_RING, SocketOption.UMEM_COMPLETION_RING, SocketOption.RX_RING):
            self._set(ring, struct.pack("=I", FRAMES))
        offsets = MmapOffsets.unpack(self.socket.getsockopt(SOL_XDP, SocketOption.MMAP_OFFSETS, 128))
        self.at_fill, self.at_rx = offsets.fill, offsets.rx
        self.fill = self._map(stack, PageOffset.FILL_RING, offsets.fill.descriptors + 8 * FRAMES)
        self.rx = self._map(stack, PageOffset.RX_RING, offsets.rx.descriptors + 16 * FRAMES)
        for number in range(FRAMES):
            struct.pack_into("=Q", self.fill, self.at_fill.descriptors + 8 * number, number * FRAME_BYTES)
        struct.pack_into("=I", self.fill, self.at_fill.producer, FRAMES)
        address = SockaddrXdp(ifindex, 0, BindFlag.COPY | BindFlag.USE_SG).pack()
        if _libc.bind(self.socket.fileno(), address, len(address)) != 0:
            raise OSError(ctypes.get_errno(), "bind")

    def _set(self, option, value):
        self.socket.setsockopt(SOL_XDP, option, value)

    def _map(self, stack, offset, size):
        return stack.enter_context(mmap.mmap(self.socket.fileno(), size, mmap.MAP_SHARED, offset=offset))

    def packets(self, number):
        """(stamp, packet) of the next ones; waits for them."""
        packets, parts, read = [], [], 0
        give_up = time.monotonic() + 10
        while len(packets) < number:
            assert time.monotonic() < give_up, f"{len(packets)} of {number} packets came"
            (produced,) = struct.unpack_from("=I", self.rx, self.at_rx.producer)
            while read != produced:
                address, length, options = DESCRIPTOR.unpack_from(self.rx, self.at_rx.descriptors + 16 * read)
                parts.append((address, self.memory[address : address + length]))
                read += 1
                if not options & DescriptorOption.PKT_CONTD:
                    first = parts[0][0]
                    (stamp,) = struct.unpack_from("=Q", self.memory, first - STAMP_BYTES)
                    packets.append((stamp, b"".join(part for _, part in parts)))
                    parts = []
        return packets


@contextmanager
def receiving(mode, mtu=1500):
    with ExitStack() as stack:
        a, b = stack.enter_context(two_hosts(mtu))
        redirect = stack.enter_context(RedirectProgram.load())
        with entered(b):
            ifindex = socket.if_nametoindex("vb")
            receiver = Receiver(stack, ifindex)
            stack.enter_context(redirect.attach(ifindex, mode))
        redirect.register(0, receiver.socket.fileno())
        with entered(a):
            sender = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
            sender.bind(("va", 0x88B5))
        yield redirect, receiver, sender


def frame(payload):
    return bytes.fromhex("020000000002 020000000001 88b5") + payload


@pytest.mark.parametrize("mode", XdpMode)
def test_the_stamp_ends_where_the_packet_begins(mode):
    sent = [frame(bytes([number]) * (46 + 100 * number)) for number in range(10)]
    with receiving(mode) as (redirect, receiver, sender):
        before_ns = time.monotonic_ns()
        for packet in sent:
            sender.send(packet)
        came = [(stamp, packet) for stamp, packet in receiver.packets(len(sent)) if packet[12:14] == b"\x88\xb5"]
        after_ns = time.monotonic_ns()
        outcomes = redirect.outcomes()
    assert [packet for _, packet in came] == sent
    stamps = [stamp for stamp, _ in came]
    assert before_ns <= stamps[0]
    assert stamps == sorted(stamps)
    assert stamps[-1] <= after_ns
    assert outcomes[Outcome.REDIRECTED] >= len(sent)
    assert outcomes[Outcome.UNSTAMPED] == 0


@pytest.mark.parametrize("mode", XdpMode)
def test_a_multi_buffer_packet_has_its_stamp_before_the_first_buffer(mode):
    sent = frame(bytes(range(256)) * 32)
    with receiving(mode, mtu=9000) as (redirect, receiver, sender):
        before_ns = time.monotonic_ns()
        sender.send(sent)
        ((stamp, packet),) = receiver.packets(1)
        assert redirect.outcomes()[Outcome.UNSTAMPED] == 0
    assert packet == sent
    assert before_ns <= stamp <= time.monotonic_ns()


def test_the_kernel_takes_a_queue_back():
    with receiving(XdpMode.NATIVE) as (redirect, receiver, sender):
        sender.send(frame(b"first"))
        assert len(receiver.packets(1)) == 1
        redirect.unregister(0)
        before = redirect.outcomes()
        sender.send(frame(b"second"))
        give_up = time.monotonic() + 10
        while redirect.outcomes()[Outcome.PASSED] == before[Outcome.PASSED]:
            assert time.monotonic() < give_up
        assert redirect.outcomes()[Outcome.REDIRECTED] == before[Outcome.REDIRECTED]
