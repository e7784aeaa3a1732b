"""How long the packets of a capture are: pcap and pcapng, headers only, so that a large file takes seconds.

    pcap     file header | (record header | packet)*       draft-ietf-opsawg-pcap
    pcapng   (block type | length | body | length)*        draft-ietf-opsawg-pcapng

Lengths are those of Ethernet frames without checksum, as AF_XDP sees them: what a capture on another kind of
interface lacks, or has more of, is made up for.
"""

from __future__ import annotations

import mmap
import stat
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from xskit.errors import UsageError
from xskit.files import cannot_read, quoted, shown

__all__ = ["CaptureError", "read_lengths"]

ETHERNET_BYTES = 14
LINK_HEADER_BYTES = {
    0: 4,  # LINKTYPE_NULL
    1: ETHERNET_BYTES,  # LINKTYPE_ETHERNET
    12: 0,  # raw IP, as some systems write it
    101: 0,  # LINKTYPE_RAW
    108: 4,  # LINKTYPE_LOOP
    113: 16,  # LINKTYPE_LINUX_SLL
    228: 0,  # LINKTYPE_IPV4
    229: 0,  # LINKTYPE_IPV6
    276: 20,  # LINKTYPE_LINUX_SLL2
}
"""What stands before the network layer in each packet of a link type (tcpdump.org/linktypes.html)."""

_PCAP = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\x3c\x4d": ">"}
"""Magic numbers, of microseconds and of nanoseconds, and the byte order that they tell."""
_PCAP_HEADER_BYTES = 24
_RECORD_BYTES = 16

_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 6
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}


class CaptureError(UsageError):
    """A file that is no capture, or a broken one."""


def read_lengths(path: Path) -> dict[int, int]:
    """Packets of each length: {bytes: packets}, shortest first.

    A packet that was cut when it was captured counts with its whole length.

    Raises:
        CaptureError: the file cannot be read, is neither pcap nor pcapng, or holds no packets.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CaptureError(f"{shown(path)} is not a regular file", remedy=f"ls -ldL {quoted(path)}")
        with path.open("rb") as file:
            if not status.st_size:
                raise CaptureError(f"{shown(path)} is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found = Counter(_lengths(path, data))
    except (OSError, ValueError) as error:
        told = cannot_read(path, error)
        raise CaptureError(told.cause, remedy=told.remedy) from error
    if not found:
        raise CaptureError(f"{path} holds no packets")
    return dict(sorted(found.items()))


def _lengths(path: Path, data: mmap.mmap) -> Iterator[int]:
    magic = data[:4]
    if magic in _PCAP:
        return _pcap(path, data, _PCAP[magic])
    if magic == _SECTION.to_bytes(4, "big"):
        return _pcapng(path, data)
    raise CaptureError(f"{path} is neither pcap nor pcapng", remedy=f"file {quoted(path)}")


def _pcap(path: Path, data: mmap.mmap, order: str) -> Iterator[int]:
    header = struct.Struct(f"{order}8xII")
    if len(data) < _PCAP_HEADER_BYTES:
        raise CaptureError(f"{path} ends inside its header")
    (kind,) = struct.unpack_from(f"{order}I", data, 20)
    more = _missing_bytes(path, kind & 0xFFFF)
    at, end = _PCAP_HEADER_BYTES, len(data)
    while at + _RECORD_BYTES <= end:  # a last packet that was not written out whole still had its length
        captured, original = header.unpack_from(data, at)
        yield original + more
        at += _RECORD_BYTES + captured


def _pcapng(path: Path, data: mmap.mmap) -> Iterator[int]:
    order, at, end = "<", 0, len(data)
    links: list[int] = []
    while at + 12 <= end:
        if data[at : at + 4] == _SECTION.to_bytes(4, "big"):
            try:
                order = _ORDERS[data[at + 8 : at + 12]]
            except KeyError:
                raise CaptureError(f"{path} is broken: a section at byte {at} has no byte order") from None
            links = []
        kind, length = struct.unpack_from(f"{order}II", data, at)
        if length < 12:
            raise CaptureError(f"{path} is broken: a block of {length} bytes at byte {at}")
        if kind == _INTERFACE:
            links.append(struct.unpack_from(f"{order}H", data, at + 8)[0])
        elif kind == _SIMPLE or (kind in (_ENHANCED, _OLD_PACKET) and at + 28 <= end):
            number, original = _packet(data, at + 8, kind, order)
            if number >= len(links):
                raise CaptureError(f"{path} is broken: a packet at byte {at} is of an interface that was not named")
            yield original + _missing_bytes(path, links[number])
        at += length


def _packet(data: mmap.mmap, at: int, kind: int, order: str) -> tuple[int, int]:
    """(interface, whole length) of a packet block's body."""
    if kind == _SIMPLE:
        return 0, struct.unpack_from(f"{order}I", data, at)[0]
    number = struct.unpack_from(f"{order}{'I' if kind == _ENHANCED else 'H'}", data, at)[0]
    return number, struct.unpack_from(f"{order}I", data, at + 16)[0]


def _missing_bytes(path: Path, kind: int) -> int:
    """What an Ethernet frame has more than a packet of this link type."""
    if kind not in LINK_HEADER_BYTES:
        raise CaptureError(f"{path} was captured on link type {kind}, of which no Ethernet frame can be made")
    return ETHERNET_BYTES - LINK_HEADER_BYTES[kind]
