"""A netlink socket of the calling thread's namespace: one request, its answers, the kernel's own words in an error.

Written here although pyroute2 exists: importing that costs 0.13 s, an eighth of what `xskit run` may take from command
to first packet, its sockets refuse to work under a running asyncio loop, and a few kinds of message are all it takes.
The tests decode every message with pyroute2's classes.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

from xskit.abi import netlink as nl
from xskit.closing import Closing

__all__ = ["Netlink", "NetlinkError", "attribute", "attributes", "nest", "text", "u32"]

_RECEIVE_BYTES = 1 << 16
_TRIES = 100  # of a dump of what changes meanwhile


class NetlinkError(OSError):
    """The kernel refused a request; `words` is its own sentence if it gave one, and `strerror` begins with it then."""

    def __init__(self, number: int, words: str | None = None) -> None:
        meaning = os.strerror(number)
        super().__init__(number, f"{words} ({meaning})" if words else meaning)
        self.words = words


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute (struct nlattr), padded to 4 bytes."""
    return nl.ATTRIBUTE_HEADER.pack(4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def u32(kind: int, value: int) -> bytes:
    """An attribute with a 32-bit number."""
    return attribute(kind, struct.pack("=I", value))


def text(kind: int, value: str) -> bytes:
    """An attribute with a zero-terminated string."""
    return attribute(kind, value.encode() + b"\0")


def nest(kind: int, parts: Iterable[bytes]) -> bytes:
    """An attribute that holds attributes."""
    return attribute(kind | nl.NLA_F_NESTED, b"".join(parts))


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """The attributes in `data` from `offset` on, kind to value; of a repeated kind the last."""
    found = {}
    while offset + 4 <= len(data):
        length, kind = nl.ATTRIBUTE_HEADER.unpack_from(data, offset)
        if length < 4:
            break
        found[kind & nl.NLA_TYPE_MASK] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


class Netlink(Closing):
    """One netlink socket. It stays in the namespace in which it was opened, whichever thread uses it."""

    def __init__(self, protocol: int = nl.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._sequence = 0
        for option in (nl.NETLINK_CAP_ACK, nl.NETLINK_EXT_ACK, nl.NETLINK_GET_STRICT_CHK):
            with suppress(OSError):  # a kernel without the option gives fewer words, no wrong ones
                self._socket.setsockopt(nl.SOL_NETLINK, option, 1)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def request(self, kind: int, body: bytes, flags: int = 0) -> list[bytes]:
        """Send one request and collect the bodies of its answers, until the kernel acknowledges it.

        A dump of what changed meanwhile, which may lack what was there all the time, is asked for again.

        Raises:
            NetlinkError: the kernel refused, or EINTR: what is dumped changes all the time.
        """
        for _ in range(_TRIES):
            bodies = self._try(kind, body, flags)
            if bodies is not None:
                return bodies
        raise NetlinkError(errno.EINTR)

    def family(self, name: str) -> int | None:
        """The number of a generic netlink family; None if the kernel does not have it.

        Raises:
            NetlinkError: the kernel refused for another reason.
        """
        body = nl.GENERIC_HEADER.pack(nl.CTRL_CMD_GETFAMILY, 1, 0) + text(nl.CTRL_ATTR_FAMILY_NAME, name)
        try:
            (answer,) = self.request(nl.GENL_ID_CTRL, body)
        except NetlinkError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return int.from_bytes(attributes(answer, nl.GENERIC_HEADER.size)[nl.CTRL_ATTR_FAMILY_ID], "little")

    def _try(self, kind: int, body: bytes, flags: int) -> list[bytes] | None:
        """As `request`; None for a dump that was changed in its middle."""
        self._sequence += 1
        flags |= nl.NLM_F_REQUEST | nl.NLM_F_ACK
        header = nl.MESSAGE_HEADER.pack(nl.MESSAGE_HEADER.size + len(body), kind, flags, self._sequence, 0)
        self._socket.send(header + body)
        bodies: list[bytes] = []
        whole = True
        for answer, answer_flags, answer_body in self._answers():
            if answer == nl.NLMSG_ERROR or (answer == nl.NLMSG_DONE and len(answer_body) >= 4):
                _raise_refusal(answer_body, answer_flags)
            whole = whole and not answer_flags & nl.NLM_F_DUMP_INTR
            if answer in (nl.NLMSG_ERROR, nl.NLMSG_DONE):
                break
            bodies.append(answer_body)
        return bodies if whole else None

    def _answers(self) -> Iterator[tuple[int, int, bytes]]:
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            offset = 0
            while offset + nl.MESSAGE_HEADER.size <= len(data):
                length, kind, flags, sequence, _ = nl.MESSAGE_HEADER.unpack_from(data, offset)
                if sequence == self._sequence:
                    yield kind, flags, data[offset + nl.MESSAGE_HEADER.size : offset + length]
                offset += max((length + 3) & ~3, nl.MESSAGE_HEADER.size)


def _raise_refusal(body: bytes, flags: int) -> None:
    (code,) = struct.unpack_from("=i", body)
    if code == 0:
        return
    said = b""
    if flags & nl.NLM_F_ACK_TLVS:  # behind the header of the request, without its body (CAP_ACK)
        said = attributes(body, 4 + nl.MESSAGE_HEADER.size).get(nl.NLMSGERR_ATTR_MSG, b"").rstrip(b"\0")
    raise NetlinkError(-code, said.decode(errors="replace") or None)
