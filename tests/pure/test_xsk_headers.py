"""Packets from parts: known packets, and that checksums notice what is changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit.xsk import headers

IPV4 = st.ip_addresses(v=4)
IPV6 = st.ip_addresses(v=6)
PORTS = st.integers(0, 65535)


def test_the_example_of_rfc_1071():
    assert headers.checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2


def test_a_known_ipv4_header():
    # the header that Wikipedia's article on the IPv4 checksum works through: its checksum is b861
    made = headers.ipv4(bytes(0x73 - 20), "192.168.0.1", "192.168.0.199", ttl=64)
    assert made[:20].hex() == "4500007300004000 4011 b861 c0a80001 c0a800c7".replace(" ", "")


@pytest.mark.parametrize("version", [4, 6])
@given(data=st.data(), payload=st.binary(max_size=200))
def test_what_is_built_is_valid_until_a_bit_is_turned(version, data, payload):
    address = IPV4 if version == 4 else IPV6
    source, destination = data.draw(address), data.draw(address)
    packet = headers.udp_packet(
        payload, source=source, destination=destination, source_port=data.draw(PORTS), destination_port=data.draw(PORTS)
    )
    assert headers.transport_checksum_holds(packet)
    start = 14 + (20 if version == 4 else 40)
    place = data.draw(st.integers(start, len(packet) - 1).filter(lambda at: at - start not in (4, 5, 6, 7)))
    broken = bytearray(packet)
    broken[place] ^= 1 << data.draw(st.integers(0, 7))
    assert not headers.transport_checksum_holds(bytes(broken))
    if version == 4:
        assert headers.checksum(packet[14:34]) == 0


def test_a_vlan_tag():
    packet = headers.ethernet(b"\x45", "02:00:00:00:00:01", "02:00:00:00:00:02", vlan=100)
    assert packet.hex() == "02000000000202000000000181000064080045"


def test_the_ethertype_follows_the_payload():
    made = headers.ethernet(b"\x60", bytes(6), bytes(6))
    assert made[12:14] == b"\x86\xdd"
    assert headers.ethernet(b"\x45", bytes(6), bytes(6), ethertype=0x88B5)[12:14] == b"\x88\xb5"


@pytest.mark.parametrize("length", [60, 64, 1514])
def test_a_packet_of_a_given_length(length):
    packet = headers.udp_packet(b"x", length=length)
    assert len(packet) == length
    assert packet[42:43] == b"x"
    assert headers.transport_checksum_holds(packet)


def test_lengths_too_small_for_the_headers_are_refused():
    with pytest.raises(ValueError, match="^43 bytes are too few for 42 bytes of headers and 2 of payload$"):
        headers.udp_packet(b"xy", length=43)


def test_a_checksum_of_zero_means_none_over_ipv4():
    packet = bytearray(headers.udp_packet(b"xy"))
    packet[40:42] = b"\0\0"
    assert headers.transport_checksum_holds(bytes(packet))


@pytest.mark.parametrize(("at", "value"), [(12, 0x12), (23, 1)])
def test_other_packets_are_refused(at, value):
    packet = bytearray(headers.udp_packet(b"xy"))
    packet[at] = value
    with pytest.raises(ValueError, match="neither"):
        headers.transport_checksum_holds(bytes(packet))


@pytest.mark.parametrize("length", [0, 13, 33])
def test_what_is_too_short_for_an_ip_packet_is_refused(length):
    with pytest.raises(ValueError, match=f"{length} bytes are no IP packet"):
        headers.transport_checksum_holds(headers.udp_packet(b"xy")[:length])


@pytest.mark.parametrize("text", ["02:00:00:00:00", "0200000000011", b"12345", "zz:00:00:00:00:00"])
def test_what_is_no_mac_address(text):
    with pytest.raises(ValueError):
        headers.mac(text)
