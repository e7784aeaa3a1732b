"""Route netlink messages, as the kernel writes them, read back."""

from __future__ import annotations

import errno
import struct

from hypothesis import given
from hypothesis import strategies as st

from xskit.bpf.netlink import Interface, Refusal, parse_interface, parse_refusal


def attribute(kind, payload):
    raw = struct.pack("=HH", 4 + len(payload), kind) + payload
    return raw + bytes(-len(raw) % 4)


def error_message(result, *, flags, attributes=b""):
    """NLMSG_ERROR with CAP_ACK: header, result, the header of the request without its body, attributes."""
    body = struct.pack("=i", result) + struct.pack("=IHHII", 60, 19, 5, 1, 0) + attributes
    return struct.pack("=IHHII", 16 + len(body), 2, 0x100 | flags, 1, 0) + body


WORDS = attribute(1, b"Peer MTU is too large to set XDP\0")


def test_the_kernels_words_are_found_behind_the_request():
    message = error_message(-errno.ERANGE, flags=0x200, attributes=WORDS)
    assert parse_refusal(message) == Refusal(errno.ERANGE, "Peer MTU is too large to set XDP")


@given(st.binary(max_size=64))
def test_other_attributes_are_skipped(cookie):
    message = error_message(-errno.EBUSY, flags=0x200, attributes=attribute(3, cookie) + WORDS)
    assert parse_refusal(message) == Refusal(errno.EBUSY, "Peer MTU is too large to set XDP")


def test_a_refusal_without_words():
    assert parse_refusal(error_message(-errno.EPERM, flags=0)) == Refusal(errno.EPERM, None)


def test_an_acknowledgement_is_no_refusal():
    assert parse_refusal(error_message(0, flags=0)) is None


def new_link(*attributes):
    body = struct.pack("=BxHiII", 0, 1, 7, 0x1003, 0) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), 16, 0, 1, 0) + body


NAME, MTU = attribute(3, b"va\0"), attribute(4, struct.pack("=I", 1500))


def test_a_veth_with_a_native_program():
    message = new_link(
        NAME,
        MTU,
        attribute(5, struct.pack("=I", 8)),
        attribute(18, attribute(1, b"veth\0")),
        attribute(43, attribute(2, b"\1") + attribute(4, struct.pack("=I", 12)) + attribute(5, struct.pack("=I", 12))),
    )
    assert parse_interface(message) == Interface(
        name="va", kind="veth", mtu_bytes=1500, peer_ifindex=8, programs=(("native", 12),)
    )


def test_a_peer_in_another_namespace_is_not_ours_to_name():
    message = new_link(NAME, MTU, attribute(5, struct.pack("=I", 8)), attribute(37, struct.pack("=i", 0)))
    assert parse_interface(message).peer_ifindex is None


def test_a_plain_device_without_program():
    assert parse_interface(new_link(NAME, MTU)) == Interface("va", None, 1500, None, ())


def test_generic_and_offloaded_programs_at_once():
    xdp = attribute(2, b"\4") + attribute(6, struct.pack("=I", 30)) + attribute(7, struct.pack("=I", 31))
    message = new_link(NAME, MTU, attribute(43 | 0x8000, xdp))
    assert parse_interface(message).programs == (("generic", 30), ("offloaded", 31))
