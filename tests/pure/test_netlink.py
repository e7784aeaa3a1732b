"""The netlink socket, against the kernel and against messages as the kernel writes them."""

from __future__ import annotations

import errno
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit.abi import netlink as nl
from xskit.netlink import Netlink, NetlinkError, attribute, attributes, nest, text, u32

WORDS = attribute(nl.NLMSGERR_ATTR_MSG, b"Peer MTU is too large to set XDP\0")
CAPPED, ACK_TLVS, MULTI, DUMP_INTR = 0x100, 0x200, 0x2, 0x10


class Scripted:
    """In the place of the socket: to each request its answers, each a list of (type, flags, body)."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = 0

    def send(self, request):
        self.asked += 1
        self._sequence = nl.MESSAGE_HEADER.unpack_from(request)[3]

    def recv(self, size):
        messages = self._answers.pop(0)
        return b"".join(
            struct.pack("=IHHII", 16 + len(body), kind, flags, self._sequence, 0) + body + bytes(-len(body) % 4)
            for kind, flags, body in messages
        )


def asked(socket, flags=0):
    with Netlink() as netlink:
        pass
    netlink._socket = socket
    return netlink.request(nl.RTM_GETADDR, b"", flags)


def error(result, *, flags=CAPPED, found=b""):
    """NLMSG_ERROR with CAP_ACK: the result, the header of the request without its body, attributes."""
    return (nl.NLMSG_ERROR, flags, struct.pack("=i", result) + struct.pack("=IHHII", 60, 19, 5, 1, 0) + found)


def test_the_kernels_words_are_found_behind_the_request():
    with pytest.raises(NetlinkError) as caught:
        asked(Scripted([error(-errno.ERANGE, flags=CAPPED | ACK_TLVS, found=WORDS)]))
    assert (caught.value.errno, caught.value.words) == (errno.ERANGE, "Peer MTU is too large to set XDP")
    assert caught.value.strerror == f"Peer MTU is too large to set XDP ({os.strerror(errno.ERANGE)})"


@given(st.binary(max_size=64))
def test_other_attributes_are_skipped(cookie):
    with pytest.raises(NetlinkError) as caught:
        asked(Scripted([error(-errno.EBUSY, flags=CAPPED | ACK_TLVS, found=attribute(3, cookie) + WORDS)]))
    assert caught.value.words == "Peer MTU is too large to set XDP"


def test_a_refusal_without_words():
    with pytest.raises(NetlinkError) as caught:
        asked(Scripted([error(-errno.EPERM)]))
    assert (caught.value.errno, caught.value.words) == (errno.EPERM, None)
    assert caught.value.strerror == os.strerror(errno.EPERM)


def test_an_acknowledgement_is_no_refusal():
    assert asked(Scripted([error(0)])) == []


DONE = (nl.NLMSG_DONE, MULTI, bytes(4))


def test_a_dump_that_changed_in_its_middle_is_asked_for_again():
    changed = [(nl.RTM_NEWADDR, MULTI, b"old!")], [(nl.RTM_NEWADDR, MULTI | DUMP_INTR, b"torn")], [DONE]
    whole = [(nl.RTM_NEWADDR, MULTI, b"new1")], [(nl.RTM_NEWADDR, MULTI, b"new2"), DONE]
    socket = Scripted(*changed, *whole)
    assert asked(socket, nl.NLM_F_DUMP) == [b"new1", b"new2"]
    assert socket.asked == 2


def test_a_dump_of_what_changes_all_the_time_is_given_up():
    with pytest.raises(NetlinkError) as caught:
        asked(Scripted(*[[(nl.NLMSG_DONE, MULTI | DUMP_INTR, bytes(4))]] * 1000), nl.NLM_F_DUMP)
    assert caught.value.errno == errno.EINTR


def test_attributes_come_back():
    data = text(1, "abc") + u32(2, 7) + nest(3, [u32(1, 8)]) + attribute(4, b"")
    assert attributes(data) == {1: b"abc\0", 2: struct.pack("=I", 7), 3: u32(1, 8), 4: b""}
    assert attributes(data[:-1])[3] == u32(1, 8)
    assert attributes(b"\0\0\0\0" + data) == {}  # a length that makes no progress ends it


def test_refusal_in_the_kernels_words():
    with Netlink() as netlink, pytest.raises(NetlinkError) as caught:
        netlink.request(nl.RTM_GETLINK, nl.LINK_HEADER.pack(0, 0, 0, 0, 0) + text(nl.IFLA_IFNAME, "xk-no"))
    assert caught.value.errno == errno.ENODEV
    assert os.strerror(errno.ENODEV) in str(caught.value.strerror)


def test_a_dump_ends():
    with Netlink() as netlink:
        answers = netlink.request(nl.RTM_GETADDR, nl.ADDRESS_HEADER.pack(0, 0, 0, 0, 0), nl.NLM_F_DUMP)
        assert any(attributes(body, nl.ADDRESS_HEADER.size) for body in answers)
        assert netlink.request(nl.RTM_GETLINK, nl.LINK_HEADER.pack(0, 0, 1, 0, 0))  # the socket is in step
