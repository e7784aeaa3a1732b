"""Partial checksums, against a checksum written a second time from RFC 1071."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pure.support_checksums import ICMP, PLACE, TCP, UDP, Spec, internet_sum
from tests.pure.support_engine import finish_call
from xskit.engine.checksum import COMPLETE, FINISHED, LEFT
from xskit.memory import Region, record_view
from xskit.xsk.path.lines import NIL, PacketLine
from xskit.xsk.path.sizes import LINE_SHIFT

FRAME_BYTES = 2048


def finish(data: bytes, spans: Sequence[int] = ()) -> tuple[int, bytes]:
    """What finish_checksum says and leaves of a packet that lies in frames of these spans, the rest in the last."""
    pieces = []
    for span in spans:
        pieces.append(data[:span])
        data = data[span:]
    pieces.append(data)
    with Region(len(pieces) << LINE_SHIFT) as table, Region(len(pieces) * FRAME_BYTES) as memory:
        window = memory.array(memory.size, "u1")
        for frame, piece in enumerate(pieces):
            start = frame * FRAME_BYTES
            window[start : start + len(piece)] = list(piece)
            line = record_view(PacketLine, table.address + (frame << LINE_SHIFT))
            line.address, line.span = memory.address + start, len(piece)
            line.length, line.frames = sum(map(len, pieces)), len(pieces)
            line.fragment = frame + 1 if frame + 1 < len(pieces) else NIL
        said = finish_call(table.address, 0)
        left = b"".join(window[frame * FRAME_BYTES :][: len(piece)].tobytes() for frame, piece in enumerate(pieces))
    return said, left


SPECS = st.builds(
    Spec,
    version=st.sampled_from([4, 6]),
    protocol=st.sampled_from([TCP, UDP]),
    payload=st.builds(lambda n, seed: random.Random(seed).randbytes(n), st.integers(0, 300), st.integers(0, 99)),
    tags=st.sampled_from([(), (0x8100,), (0x88A8, 0x8100), (0x8100, 0x8100)]),
    options=st.integers(0, 10).map(lambda words: bytes(range(4 * words))),
    trailer=st.binary(max_size=9),
    source=st.binary(min_size=16, max_size=16),
    target=st.binary(min_size=16, max_size=16),
)


@given(SPECS)
def test_a_partial_checksum_is_finished(spec: Spec) -> None:
    assert finish(spec.packet(spec.pseudo)) == (1, spec.packet(spec.right))


@given(SPECS, st.lists(st.integers(1, 21), max_size=6))
def test_in_several_frames_of_odd_spans_too(spec: Spec, spans: list[int]) -> None:
    first = len(spec.headers) + PLACE[spec.protocol] + 2
    assert finish(spec.packet(spec.pseudo), [first + spans[0], *spans[1:]] if spans else []) == (
        1,
        spec.packet(spec.right),
    )


@given(SPECS)
def test_a_right_packet_stays_as_it_is(spec: Spec) -> None:
    assert finish(spec.packet(spec.right))[1] == spec.packet(spec.right)


@given(SPECS, st.integers(0, 0xFFFF))
def test_a_wrong_checksum_is_not_mended(spec: Spec, wrong: int) -> None:
    if wrong != spec.pseudo:
        assert finish(spec.packet(wrong)) == (0, spec.packet(wrong))


def payload_for_sum(spec: Spec, checksum: int) -> Spec:
    """The same packet with two more bytes that make its finished checksum this one."""
    bare = replace(spec, payload=b"\0\0")
    rest = internet_sum(struct.pack(">H", bare.pseudo) + bare.segment)
    wanted = (checksum ^ 0xFFFF) - rest
    return replace(spec, payload=struct.pack(">H", wanted % 0xFFFF))


@pytest.mark.parametrize("version", [4, 6])
def test_udp_has_no_zero_checksum(version: int) -> None:
    spec = payload_for_sum(Spec(version, UDP), 0)
    assert internet_sum(struct.pack(">H", spec.pseudo) + spec.segment) == 0xFFFF
    assert finish(spec.packet(spec.pseudo)) == (1, spec.packet(0xFFFF))


def test_tcp_has() -> None:
    spec = payload_for_sum(Spec(4, TCP), 0)
    assert finish(spec.packet(spec.pseudo)) == (1, spec.packet(0))


@pytest.mark.parametrize("protocol", [TCP, UDP])
def test_a_right_checksum_that_looks_partial_comes_out_right(protocol: int) -> None:
    spec = payload_for_sum(Spec(4, protocol), Spec(4, protocol, b"\0\0").pseudo)
    assert spec.right == spec.pseudo
    assert finish(spec.packet(spec.right)) == (1, spec.packet(spec.right))


def test_udp_without_a_checksum_stays_without() -> None:
    spec = Spec(4, UDP)
    assert finish(spec.packet(0)) == (0, spec.packet(0))


@pytest.mark.parametrize("fragment", [0x2000, 0x0001, 0x2010, 0x1FFF])
def test_fragments_are_left_alone(fragment: int) -> None:
    spec = Spec(4, UDP, fragment=fragment)
    assert finish(spec.packet(spec.pseudo)) == (0, spec.packet(spec.pseudo))


def test_dont_fragment_is_no_fragment() -> None:
    spec = Spec(4, UDP, fragment=0x4000)
    assert finish(spec.packet(spec.pseudo)) == (1, spec.packet(spec.right))


@pytest.mark.parametrize("version", [4, 6])
def test_other_protocols_are_left_alone(version: int) -> None:
    spec = Spec(version, ICMP, payload=bytes(40))
    assert finish(spec.packet(spec.pseudo)) == (0, spec.packet(spec.pseudo))


def test_other_ether_types_are_left_alone() -> None:
    data = bytearray(Spec().packet(Spec().pseudo))
    data[12:14] = b"\x08\x06"
    assert finish(bytes(data)) == (0, bytes(data))


@given(SPECS, st.integers(14, 300), st.lists(st.integers(1, 100), max_size=2))
def test_a_packet_cut_short_is_left_alone_and_reported(spec: Spec, length: int, spans: list[int]) -> None:
    """Whatever arrives: nothing but the checksum is written, and only where all of the segment is there."""
    data = spec.packet(spec.pseudo)[:length]
    said, left = finish(data, [14 + spans[0], *spans[1:]] if spans else [])
    if length < len(spec.headers) + len(spec.segment):
        assert said in (COMPLETE, LEFT)
        assert left == data
    else:
        assert said in (COMPLETE, FINISHED)
        assert left == (spec.packet(spec.right)[:length] if said else data)


@given(SPECS)
def test_a_segment_that_did_not_come_whole_is_reported(spec: Spec) -> None:
    data = spec.packet(spec.pseudo)[: len(spec.headers) + PLACE[spec.protocol] + 2]
    if len(data) < len(spec.headers) + len(spec.segment):
        assert finish(data) == (LEFT, data)


@given(st.binary(min_size=14, max_size=120))
def test_noise_is_harmless(data: bytes) -> None:
    said, left = finish(data)
    assert len(left) == len(data)
    assert said == 0 or sum(a != b for a, b in zip(data, left, strict=True)) <= 2
