"""The kernel's rules for packet memory, each checked first; and the arithmetic of frames."""

from __future__ import annotations

import errno
import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.support_frames import held_packet
from tests.pure.support_registration import Kernel
from xskit.errors import UsageError
from xskit.xsk import umem as umem_module
from xskit.xsk.errors import SocketError
from xskit.xsk.umem import Umem


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"frames": 0}, "frames must be between 1 and 4294967295, not 0\n  try: frames=1"),
        ({"frames": 1 << 32}, "frames must be between 1 and 4294967295, not 4294967296\n  try: frames=4294967295"),
        ({"frame_size": 1024}, "frames of 1024 bytes are too small: the least is 2048\n  try: frame_size=2048"),
        (
            {"frame_size": 3000},
            "a frame size of 3000 bytes is not a power of two\n  try: a frame size of 2048 or 4096, or unaligned=True",
        ),
        (
            {"headroom": 3840},
            "a headroom of 3840 bytes leaves no room for a packet in a frame of 4096: the kernel keeps "
            "256 bytes as well\n  try: headroom=3392 or less",
        ),
        (
            {"tx_metadata_bytes": 20},
            "tx_metadata_bytes must be 0 or a multiple of 8 between 24 and 248, not 20\n  try: tx_metadata_bytes=24",
        ),
        (
            {"tx_metadata_bytes": 256},
            "tx_metadata_bytes must be between 0 and 248, not 256\n  try: tx_metadata_bytes=248",
        ),
    ],
)
def test_the_rule_broken_is_named(arguments, sentence):
    with pytest.raises(UsageError) as caught:
        Umem(**{"frames": 4, **arguments})
    assert str(caught.value) == sentence


def test_frames_larger_than_a_page_are_the_kernels_to_refuse(monkeypatch):
    asked = []

    def refuse(frame_size, **memory):
        asked.append((frame_size, memory))
        return "Invalid argument"

    monkeypatch.setattr(umem_module, "why_no_frames_of", refuse)
    with pytest.raises(UsageError) as caught:
        Umem(frames=4, frame_size=8192, hugetlb=True)
    assert asked == [(8192, {"unaligned": False, "hugetlb": True})]
    assert str(caught.value) == (
        "frames of 8192 bytes: no released Linux takes frames larger than a page (4096 bytes), and this one says: "
        "Invalid argument\n  try: frame_size=4096; longer packets are received in several frames (multi-buffer)"
    )
    monkeypatch.setattr(umem_module, "why_no_frames_of", lambda frame_size, **memory: None)
    with Umem(frames=4, frame_size=8192) as umem:
        assert (umem.size, umem.capacity, umem.frame_shift) == (4 * 8192, 8192 - 256, 13)


@pytest.mark.parametrize(
    ("frame_size", "headroom", "capacity"), [(4096, 0, 3840), (2048, 0, 1792), (2048, 100, 1692), (4096, 3392, 448)]
)
def test_capacity_is_what_the_kernel_leaves(frame_size, headroom, capacity):
    with Umem(frames=2, frame_size=frame_size, headroom=headroom) as umem:
        assert umem.capacity == capacity
        assert umem.packet_offset == 256 + headroom
        assert umem.size == 2 * frame_size
        assert 1 << umem.frame_shift == frame_size


def test_a_size_that_is_no_power_of_two_has_no_shift():
    with Umem(frames=2, frame_size=3000, unaligned=True) as umem, pytest.raises(UsageError, match="have no shift"):
        _ = umem.frame_shift


@given(frame=st.integers(0, 7), offset=st.integers(0, 2999))
def test_unaligned_addresses_keep_their_offset_in_the_top_bits(frame, offset):
    with Umem(frames=8, frame_size=3000, unaligned=True, populate=False) as umem:
        address = frame * 3000 | offset << 48
        assert umem.offset_of(address) == frame * 3000 + offset
        assert umem.frame_of(address) == frame


def test_debug_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("XSKIT_DEBUG", "1")
    with Umem(frames=1) as umem:
        assert umem.debug
    with Umem(frames=1, debug=False) as umem:
        assert not umem.debug
    monkeypatch.setenv("XSKIT_DEBUG", "0")
    with Umem(frames=1) as umem:
        assert not umem.debug


def test_closing_twice_is_fine():
    umem = Umem(frames=1)
    umem.close()
    umem.close()
    assert umem.address == 0


@given(spans=st.lists(st.integers(1, 60), min_size=1, max_size=5), data=st.data())
def test_a_packet_reads_as_one_sequence_of_bytes(spans, data):
    with Umem(frames=8, frame_size=2048) as umem:
        packet = held_packet(umem, *spans)
        expected = bytes(number % 251 for number in range(sum(spans)))
        bound = st.none() | st.integers(-len(expected) - 3, len(expected) + 3)
        part = slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, -1])))
        index = data.draw(st.integers(-len(expected), len(expected) - 1))
        assert bytes(packet) == expected
        assert packet[part] == expected[part]
        assert packet[index] == expected[index]
        assert len(packet) == packet.length == len(expected)
        assert list(packet) == list(expected)
        assert b"".join(packet.segments) == expected
        assert [len(view) for view in packet.segments] == spans
        with pytest.raises(IndexError):
            packet[len(expected)]


def test_segments_are_the_packet_itself():
    with Umem(frames=2) as umem:
        packet = held_packet(umem, 20)
        packet.segments[0][3] = 0xAA
        assert packet[3] == 0xAA


def test_a_packet_that_is_gone_says_so_and_its_views_are_dead():
    with Umem(frames=2) as umem:
        packet = held_packet(umem, 20)
        view = packet.segments[0]
        packet.keep().release()
        packet.release()
        assert packet.gone
        assert umem.pool.free == 2
        with pytest.raises(UsageError, match=r"this packet is gone.*\n  try: packet.keep\(\) before the next receive"):
            bytes(packet)
        with pytest.raises(ValueError, match="released memoryview"):
            view[0]


def test_a_view_in_use_keeps_its_frame():
    with Umem(frames=2) as umem:
        packet = held_packet(umem, 20)
        view = packet.segments[0]
        exported = pickle.PickleBuffer(view)
        with pytest.raises(UsageError, match="a view of a packet is still in use"):
            packet.release()
        exported.release()
        assert bytes(packet) == bytes(range(20))
        assert umem.pool.free == 1


@pytest.mark.parametrize("version", [(6, 8), (6, 10), (6, 11), (6, 18)])
def test_tx_metadata_is_registered_with_and_without_its_flag(version):
    kernel = Kernel(version)
    with Umem(frames=2, tx_metadata_bytes=32) as umem:
        umem.register(kernel)
    assert kernel.metadata_bytes == 32


@pytest.mark.parametrize("version", [(5, 15), (6, 7)])
def test_a_kernel_without_tx_metadata_does_not_just_ignore_it(version):
    with Umem(frames=2, tx_metadata_bytes=32) as umem, pytest.raises(SocketError) as caught:
        umem.register(Kernel(version))
    assert str(caught.value) == ("this kernel has no TX metadata: it came with Linux 6.8\n  try: tx_metadata_bytes=0")


def test_a_kept_packet_does_not_outlive_its_memory():
    with Umem(frames=2) as umem:
        packet = held_packet(umem, 20).keep()
    assert packet.gone
    packet.release()
    for use in (bytes, lambda packet: packet[0], lambda packet: packet.segments):
        with pytest.raises(UsageError, match="^this packet is gone: its packet memory is closed"):
            use(packet)


@pytest.mark.parametrize(
    ("linux", "frames", "said"),
    [
        ((5, 10), (1 << 19) + 1, "before Linux 5.14 it takes 2 GiB at most"),
        ((5, 10), 1 << 19, "the kernel cannot pin"),
        ((5, 14), (1 << 19) + 1, "the kernel cannot pin"),
    ],
)
def test_an_old_kernel_that_takes_no_such_size_is_told_from_one_without_memory(linux, frames, said, monkeypatch):
    class WithoutMemory:
        def setsockopt(self, level, option, raw):
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(umem_module, "_linux", lambda: linux)
    with Umem(frames, populate=False) as umem, pytest.raises(SocketError, match=said):
        umem.register(WithoutMemory())
