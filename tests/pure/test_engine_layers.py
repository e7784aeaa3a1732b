"""Partial checksums inside tunnels and behind extension headers, against checksums computed a second time."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure import support_layers as layers
from tests.pure.support_layers import ethernet, ip, ipv4, ipv6, kind_of, sctp, segment, udp
from tests.pure.test_engine_checksum import finish
from xskit.engine.checksum import COMPLETE, FINISHED, LEFT

PAYLOAD = b"the quick brown fox."
VXLAN = bytes([8, 0, 0, 0, 0, 0, 7, 0])


def both(build: Callable[[bool], bytes]) -> None:
    """What is partial is finished, and what is finished stays as it is."""
    assert finish(build(False)) == (FINISHED, build(True))
    assert finish(build(True))[1] == build(True)


def inner(version: int, finished: bool) -> bytes:
    """An IP packet of TCP."""
    return ip(version, 6, segment(version, PAYLOAD, finished=finished))


@pytest.mark.parametrize("version", [4, 6])
def test_sctp(version: int) -> None:
    both(lambda done: ethernet(kind_of(version), ip(version, 132, sctp(PAYLOAD, finished=done))))


def test_sctp_in_several_frames() -> None:
    def build(done: bool) -> bytes:
        return ethernet(0x0800, ipv4(132, sctp(bytes(range(200)), finished=done)))

    assert finish(build(False), [61, 1, 40]) == (FINISHED, build(True))


BEHIND = {
    "hop by hop": (0, layers.options_header),
    "destination options": (60, lambda following: layers.options_header(following, 2)),
    "mobility": (135, layers.options_header),
    "whole fragment": (44, layers.fragment_header),
    "authentication": (51, layers.authentication_header),
}


@pytest.mark.parametrize("names", [(name,) for name in BEHIND] + [("hop by hop", "destination options")])
def test_extension_headers(names: tuple[str, ...]) -> None:
    def build(done: bool) -> bytes:
        following, inside = 6, segment(6, PAYLOAD, finished=done)
        for name in reversed(names):
            number, header = BEHIND[name]
            following, inside = number, header(following) + inside
        return ethernet(0x86DD, ipv6(following, inside))

    both(build)


@pytest.mark.parametrize(("kind", "final"), [(0, -1), (2, 0), (4, 0)])
def test_a_routing_header_holds_the_address_that_is_summed(kind: int, final: int) -> None:
    hops = [bytes([9] * 16)] if kind == 2 else [bytes([number] * 16) for number in (7, 8, 9)]
    hops[final] = layers.TARGET6

    def build(done: bool) -> bytes:
        routing = layers.routing_header(6, kind, len(hops), hops)
        return ethernet(0x86DD, ipv6(43, routing + segment(6, PAYLOAD, finished=done), target=bytes([3] * 16)))

    both(build)


def test_a_routing_header_that_is_used_up_does_not() -> None:
    routing = layers.routing_header(6, 4, 0, [bytes([7] * 16)])
    both(lambda done: ethernet(0x86DD, ipv6(43, routing + segment(6, PAYLOAD, finished=done))))


@pytest.mark.parametrize("offset_and_more", [1, 8, 0xFFF8])
def test_fragments_over_ipv6_are_left_alone(offset_and_more: int) -> None:
    fragment = layers.fragment_header(6, offset_and_more) + segment(6, PAYLOAD, finished=False)
    data = ethernet(0x86DD, ipv6(44, fragment))
    assert finish(data) == (COMPLETE, data)


LINKS = {
    "PPPoE": lambda version, inside: (
        0x8864,
        struct.pack(">HHHH", 0x1100, 7, len(inside) + 2, 0x21 if version == 4 else 0x57) + inside,
    ),
    "MPLS": lambda _, inside: (0x8847, struct.pack(">II", 16 << 12, 17 << 12 | 0x100) + inside),
    "HSR": lambda version, inside: (0x892F, struct.pack(">HHH", len(inside), 1, kind_of(version)) + inside),
    "802.1ad": lambda version, inside: (0x88A8, struct.pack(">HHHH", 10, 0x8100, 20, kind_of(version)) + inside),
}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("name", LINKS)
def test_what_lies_between_ethernet_and_ip(name: str, version: int) -> None:
    both(lambda done: ethernet(*LINKS[name](version, inner(version, done))))


PROTOCOLS = {
    "IPIP": lambda version, inside: (4 if version == 4 else 41, inside),
    "GRE": lambda version, inside: (47, layers.gre(kind_of(version), inside)),
    "GRE, key and sequence": lambda version, inside: (47, layers.gre(kind_of(version), inside, 0x3000)),
    "GRE, Ethernet": lambda version, inside: (47, layers.gre(0x6558, ethernet(kind_of(version), inside), 0x2000)),
    "ERSPAN I": lambda version, inside: (47, layers.gre(0x88BE, ethernet(kind_of(version), inside))),
    "ERSPAN II": lambda version, inside: (
        47,
        layers.gre(0x88BE, bytes(8) + ethernet(kind_of(version), inside), 0x1000),
    ),
    "ERSPAN III": lambda version, inside: (
        47,
        layers.gre(0x22EB, bytes(12) + ethernet(kind_of(version), inside), 0x1000),
    ),
    "ERSPAN III with a subheader": lambda version, inside: (
        47,
        layers.gre(0x22EB, bytes(11) + b"\1" + bytes(8) + ethernet(kind_of(version), inside), 0x1000),
    ),
    "MPLS in IP": lambda _, inside: (137, struct.pack(">I", 17 << 12 | 0x100) + inside),
}


@pytest.mark.parametrize("outer", [4, 6])
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_ip_encloses(name: str, version: int, outer: int) -> None:
    both(lambda done: ethernet(kind_of(outer), ip(outer, *PROTOCOLS[name](version, inner(version, done)))))


DATAGRAMS = {
    "VXLAN": lambda version, inside: (4789, VXLAN + ethernet(kind_of(version), inside)),
    "VXLAN at another port": lambda version, inside: (7777, VXLAN + ethernet(kind_of(version), inside)),
    "Geneve": lambda version, inside: (6081, layers.geneve(0x6558, ethernet(kind_of(version), inside))),
    "Geneve, options, IP": lambda version, inside: (6081, layers.geneve(kind_of(version), inside, bytes(12))),
    "GTP-U": lambda _, inside: (2152, layers.gtp(inside)),
    "GTP-U, sequence": lambda _, inside: (2152, layers.gtp(inside, bytes(4))),
    "GTP-U, extension": lambda _, inside: (2152, layers.gtp(inside, b"\0\0\0\x85\1\1\1\0")),
    "FOU": lambda _, inside: (5555, inside),
    "GUE": lambda version, inside: (6080, bytes([0, 4 if version == 4 else 41, 0, 0]) + inside),
    "GUE and GRE": lambda version, inside: (
        6080,
        bytes([1, 47, 0, 0, 9, 9, 9, 9]) + layers.gre(kind_of(version), inside),
    ),
}


@pytest.mark.parametrize("outer", [4, 6])
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("name", DATAGRAMS)
@pytest.mark.parametrize("summed", [False, True])
def test_what_udp_encloses(name: str, version: int, outer: int, summed: bool) -> None:
    """Where the outer datagram has a checksum, the kernel computes it as if the inner one were finished."""

    def build(done: bool) -> bytes:
        port, inside = DATAGRAMS[name](version, inner(version, done))
        finished = DATAGRAMS[name](version, inner(version, True))[1] if summed else None
        return ethernet(kind_of(outer), ip(outer, 17, udp(outer, port, inside, finished)))

    both(build)


@given(
    st.lists(st.tuples(st.sampled_from([*PROTOCOLS, *DATAGRAMS]), st.sampled_from([4, 6]), st.booleans()), max_size=5),
    st.sampled_from([4, 6]),
    st.integers(4, 200),  # an SCTP packet has a chunk at least
    st.booleans(),
)
def test_any_stack_of_tunnels(stack: list[tuple[str, int, bool]], version: int, size: int, is_sctp: bool) -> None:
    payload = random.Random(size).randbytes(size)

    def build(done: bool) -> bytes:
        below = version
        content = sctp(payload, finished=done) if is_sctp else segment(below, payload, finished=done)
        whole = sctp(payload, finished=True) if is_sctp else segment(below, payload, finished=True)
        data, right = (ip(below, 132 if is_sctp else 6, one) for one in (content, whole))
        for name, outer, summed in stack:
            if name in PROTOCOLS:
                data, right = (ip(outer, *PROTOCOLS[name](below, one)) for one in (data, right))
            else:
                (port, inside), (_, after) = DATAGRAMS[name](below, data), DATAGRAMS[name](below, right)
                data = ip(outer, 17, udp(outer, port, inside, after if summed else None))
                right = ip(outer, 17, udp(outer, port, after, after if summed else None))
            below = outer
        return ethernet(kind_of(below), data)

    both(build)


def test_an_outer_udp_checksum_is_finished_behind_the_inner_one() -> None:
    inside = VXLAN + ethernet(0x0800, inner(4, True))
    right = udp(4, 4789, inside, inside)
    partial = right[:6] + struct.pack(">H", layers.pseudo(4, 17, len(right))) + right[8:]
    assert finish(ethernet(0x0800, ipv4(17, partial))) == (FINISHED, ethernet(0x0800, ipv4(17, right)))
    unfinished = VXLAN + ethernet(0x0800, inner(4, False))
    both_partial = partial[:8] + unfinished
    assert finish(ethernet(0x0800, ipv4(17, both_partial))) == (FINISHED, ethernet(0x0800, ipv4(17, right)))


@pytest.mark.parametrize("version", [4, 6])
def test_data_that_looks_partial_in_a_datagram_whose_checksum_holds_is_data(version: int) -> None:
    """As a capture that a probe sends somewhere: nothing is unfinished there."""
    for inside in (VXLAN + ethernet(kind_of(version), inner(version, False)), b"a probe " + inner(version, False)):
        data = ethernet(0x0800, ipv4(17, udp(4, 4789, inside, inside)))
        assert finish(data) == (COMPLETE, data)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("odd", [b"", b"12345678", bytes(range(30))])
def test_behind_an_unknown_header_it_is_reported_and_left(version: int, odd: bytes) -> None:
    inside = odd + inner(version, False)
    for data in (
        ethernet(0x894F, inside),
        ethernet(0x0800, ipv4(200, inside)),
        ethernet(0x0800, ipv4(17, udp(4, 1234, b"unknown." + inside))),
        ethernet(0x0800, ipv4(47, layers.gre(0x9999, inside))),
    ):
        assert finish(data) == (LEFT, data)


@pytest.mark.parametrize("version", [4, 6])
def test_sctp_behind_an_unknown_header_is_reported_too(version: int) -> None:
    data = ethernet(0x894F, b"12345678" + ip(version, 132, sctp(PAYLOAD, finished=False)))
    assert finish(data) == (LEFT, data)


@pytest.mark.parametrize("version", [4, 6])
def test_what_is_whole_behind_an_unknown_header_is_not(version: int) -> None:
    data = ethernet(0x894F, b"12345678" + inner(version, True))
    assert finish(data) == (COMPLETE, data)


@given(st.sampled_from([*DATAGRAMS]), st.integers(14, 160), st.integers(14, 160))
def test_nothing_is_read_or_written_behind_the_end(name: str, length: int, span: int) -> None:
    port, inside = DATAGRAMS[name](4, inner(4, False))
    data = ethernet(0x0800, ipv4(17, udp(4, port, inside)))
    if length < len(data):
        data = data[:length]
        said, left = finish(data, [span] if span < length else [])
        assert said in (COMPLETE, LEFT)
        assert left == data


@given(st.binary(min_size=14, max_size=200), st.sampled_from([b"", ethernet(0x0800, b""), ethernet(0x86DD, b"")]))
def test_noise_is_harmless(data: bytes, head: bytes) -> None:
    said, left = finish(head + data)
    assert said in (COMPLETE, FINISHED, LEFT)
    assert sum(a != b for a, b in zip(head + data, left, strict=True)) <= (4 if said == FINISHED else 0)
