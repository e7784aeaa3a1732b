"""What the kernel writes of an interface, read back."""

from __future__ import annotations

import struct

from xskit.bpf.netlink import AttachTarget, parse_interface


def attribute(kind, payload):
    raw = struct.pack("=HH", 4 + len(payload), kind) + payload
    return raw + bytes(-len(raw) % 4)


def new_link(*attributes):
    return struct.pack("=BxHiII", 0, 1, 7, 0x1003, 0) + b"".join(attributes)


NAME, MTU = attribute(3, b"va\0"), attribute(4, struct.pack("=I", 1500))


def test_a_veth_with_a_native_program():
    message = new_link(
        NAME,
        MTU,
        attribute(5, struct.pack("=I", 8)),
        attribute(18, attribute(1, b"veth\0")),
        attribute(43, attribute(2, b"\1") + attribute(4, struct.pack("=I", 12)) + attribute(5, struct.pack("=I", 12))),
    )
    assert parse_interface(message) == AttachTarget(
        name="va", kind="veth", mtu_bytes=1500, peer_ifindex=8, programs=(("native", 12),)
    )


def test_a_peer_in_another_namespace_is_not_ours_to_name():
    message = new_link(NAME, MTU, attribute(5, struct.pack("=I", 8)), attribute(37, struct.pack("=i", 0)))
    assert parse_interface(message).peer_ifindex is None


def test_a_plain_device_without_program():
    assert parse_interface(new_link(NAME, MTU)) == AttachTarget("va", None, 1500, None, ())


def test_generic_and_offloaded_programs_at_once():
    xdp = attribute(2, b"\4") + attribute(6, struct.pack("=I", 30)) + attribute(7, struct.pack("=I", 31))
    message = new_link(NAME, MTU, attribute(43 | 0x8000, xdp))
    assert parse_interface(message).programs == (("generic", 30), ("offloaded", 31))
