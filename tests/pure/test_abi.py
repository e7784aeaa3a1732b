"""The layouts of abi/ against sizes and bytes written down from the kernel's headers."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit.abi import bpf, netdev, netlink, xdp

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))


@pytest.mark.parametrize(
    ("layout", "size"),
    [
        (xdp.SockaddrXdp.LAYOUT, 16),
        (xdp.UmemReg.LAYOUT, 32),
        (xdp.MmapOffsets.LAYOUT, 128),
        (xdp.Statistics.LAYOUT, 48),
        (xdp.DESCRIPTOR, 16),
        (netlink.MESSAGE_HEADER, 16),
        (netlink.LINK_HEADER, 16),
        (netlink.ATTRIBUTE_HEADER, 4),
    ],
)
def test_structs_have_the_size_of_the_header(layout, size):
    assert layout.size == size


def test_sockaddr_is_the_bytes_that_bind_takes():
    address = xdp.SockaddrXdp(ifindex=7, queue_id=3, flags=xdp.BindFlag.COPY | xdp.BindFlag.USE_NEED_WAKEUP)
    assert address.pack() == bytes.fromhex("2c00 0a00 07000000 03000000 00000000")


@given(U32, U32, st.integers(0, 31), U32)
def test_sockaddr_comes_back(ifindex, queue, flags, fd):
    address = xdp.SockaddrXdp(ifindex, queue, xdp.BindFlag(flags), fd)
    assert xdp.SockaddrXdp.unpack(address.pack()) == address


def test_sockaddr_of_another_family_is_refused():
    with pytest.raises(ValueError, match="address family 2 is not AF_XDP"):
        xdp.SockaddrXdp.unpack(struct.pack("=HHIII", 2, 0, 1, 0, 0))


@given(U64, U64, U32, U32, st.integers(0, 7), U32)
def test_umem_registration_comes_back(address, length, chunk, headroom, flags, metadata):
    umem = xdp.UmemReg(address, length, chunk, headroom, xdp.UmemFlag(flags), metadata)
    assert xdp.UmemReg.unpack(umem.pack()) == umem


def test_umem_registration_begins_with_the_layout_of_4_18():
    umem = xdp.UmemReg(0x1000, 0x200000, 4096, 64, xdp.UmemFlag.TX_METADATA_LEN, 24)
    assert umem.pack()[:24] == struct.pack("=QQII", 0x1000, 0x200000, 4096, 64)
    assert umem.pack()[24:] == struct.pack("=II", 4, 24)


@given(st.lists(U64, min_size=6, max_size=6))
def test_statistics_keep_the_order_of_the_header(words):
    statistics = xdp.Statistics.unpack(struct.pack("=6Q", *words))
    assert [
        statistics.rx_dropped,
        statistics.rx_invalid_descriptors,
        statistics.tx_invalid_descriptors,
        statistics.rx_ring_full,
        statistics.rx_fill_ring_empty,
        statistics.tx_ring_empty,
    ] == words
    assert statistics.pack() == struct.pack("=6Q", *words)


def test_mmap_offsets_are_rx_tx_fill_completion():
    offsets = xdp.MmapOffsets.unpack(struct.pack("=16Q", *range(16)))
    assert offsets.rx == xdp.RingOffsets(producer=0, consumer=1, descriptors=2, flags=3)
    assert offsets.tx.producer == 4
    assert offsets.fill.descriptors == 10
    assert offsets.completion.flags == 15
    assert offsets.pack() == struct.pack("=16Q", *range(16))


def test_the_values_that_a_slip_would_change_silently():
    assert (xdp.AF_XDP, xdp.SOL_XDP) == (44, 283)
    assert xdp.SocketOption.MAX_TX_SKB_BUDGET == 9
    assert xdp.PageOffset.COMPLETION_RING == 0x180000000
    assert (bpf.AttachType.XDP, bpf.AttachType.TCX_EGRESS, bpf.MapType.XSKMAP) == (37, 47, 17)
    assert bpf.ProgramFlag.XDP_HAS_FRAGS == 32
    assert netlink.XdpAttachFlag.DRV_MODE == 4
    assert netdev.XdpFeature(35) == (netdev.XdpFeature.BASIC | netdev.XdpFeature.REDIRECT | netdev.XdpFeature.RX_SG)


def test_abi_imports_nothing_heavy():
    """`xskit --help` pays for every import of the lowest floor."""
    source = (
        "import sys; import xskit.abi.xdp, xskit.abi.bpf, xskit.abi.netlink, xskit.abi.netdev; "
        "print([m for m in ('numpy', 'numba', 'pyroute2', 'ctypes') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", source], text=True).strip() == "[]"
