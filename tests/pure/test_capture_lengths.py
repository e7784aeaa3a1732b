"""Packet lengths out of captures, which are made here byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit.capture.lengths import CaptureError, read_lengths

PACKETS = st.lists(st.tuples(st.integers(14, 9000), st.integers(0, 64)), min_size=1, max_size=40)
"""(length on the wire, bytes that were kept of it)."""
ORDERS = st.sampled_from("<>")
MAGICS = st.sampled_from([0xA1B2C3D4, 0xA1B23C4D])


def pcap(packets, order="<", magic=0xA1B2C3D4, link=1) -> bytes:
    parts = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link)]
    parts += [struct.pack(f"{order}IIII", 1, 2, kept, length) + bytes(kept) for length, kept in packets]
    return b"".join(parts)


def block(order, kind, body) -> bytes:
    body += bytes(-len(body) % 4)
    return struct.pack(f"{order}II", kind, len(body) + 12) + body + struct.pack(f"{order}I", len(body) + 12)


def section(order) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order, link=1) -> bytes:
    return block(order, 1, struct.pack(f"{order}HHI", link, 0, 0))


def enhanced(order, number, length, kept) -> bytes:
    return block(order, 6, struct.pack(f"{order}IIIII", number, 0, 0, kept, length) + bytes(kept))


def lengths_of(tmp_path, content) -> dict[int, int]:
    path = tmp_path / "some.capture"
    path.write_bytes(content)
    return read_lengths(path)


def counted(packets) -> dict[int, int]:
    found: dict[int, int] = {}
    for length, _ in sorted(packets):
        found[length] = found.get(length, 0) + 1
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("captures")


@given(packets=PACKETS, order=ORDERS, magic=MAGICS)
def test_pcap(folder, packets, order, magic):
    assert lengths_of(folder, pcap(packets, order, magic)) == counted(packets)


@given(packets=PACKETS, order=ORDERS)
def test_pcapng_with_blocks_of_other_kinds_between(folder, packets, order):
    content = section(order) + interface(order) + block(order, 5, bytes(12))
    for length, kept in packets:
        content += enhanced(order, 0, length, kept) + block(order, 0x80000001, b"unknown")
    assert lengths_of(folder, content) == counted(packets)


def test_sections_of_both_byte_orders_in_one_file(folder):
    content = b"".join(section(o) + interface(o) + enhanced(o, 0, 100, 20) for o in "<>")
    assert lengths_of(folder, content) == {100: 2}


def test_simple_and_obsolete_packet_blocks(folder):
    simple = block("<", 3, struct.pack("<I", 60))
    old = block("<", 2, struct.pack("<HHIIII", 1, 0, 0, 0, 8, 1514) + bytes(8))
    content = section("<") + interface("<") + interface("<") + simple + old
    assert lengths_of(folder, content) == {60: 1, 1514: 1}


@pytest.mark.parametrize(("link", "length"), [(1, 1014), (101, 1014), (113, 1016), (276, 1020), (0, 1004)])
def test_packets_of_other_link_types_count_as_ethernet_frames(folder, link, length):
    assert lengths_of(folder, pcap([(length, 0)], link=link)) == {
        1: {1014: 1}, 101: {1028: 1}, 113: {1014: 1}, 276: {1014: 1}, 0: {1014: 1}
    }[link]  # fmt: skip


def test_a_capture_that_was_cut_off_counts_what_it_announces(folder):
    assert lengths_of(folder, pcap([(100, 60), (1514, 60)])[:-10]) == {100: 1, 1514: 1}
    assert lengths_of(folder, pcap([(100, 60), (1514, 60)])[:-70]) == {100: 1}


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "is empty"),
        (b"PK\3\4" + bytes(60), "is neither pcap nor pcapng"),
        (pcap([])[:20], "ends inside its header"),
        (pcap([]), "holds no packets"),
        (section("<"), "holds no packets"),
        (
            section("<") + enhanced("<", 0, 100, 0),
            "is broken: a packet at byte 28 is of an interface that was not named",
        ),
        (section("<") + struct.pack("<II", 6, 3) + bytes(30), "is broken: a block of 3 bytes at byte 28"),
        (section("<")[:8] + b"what" + section("<")[12:], "is broken: a section at byte 0 has no byte order"),
        (pcap([(9, 0)], link=105), "was captured on link type 105, of which no Ethernet frame can be made"),
    ],
)
def test_what_is_no_capture_is_said(folder, content, cause):
    with pytest.raises(CaptureError) as caught:
        lengths_of(folder, content)
    assert caught.value.cause == f"{folder / 'some.capture'} {cause}"


def test_a_file_that_is_not_there(folder):
    with pytest.raises(CaptureError, match="^there is no file "):
        read_lengths(folder / "nowhere.pcap")
    with pytest.raises(CaptureError, match=" is not a regular file"):
        read_lengths(folder)
