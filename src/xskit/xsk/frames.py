"""Frames in the hands of the user, by their addresses: taken, given back, and why some are refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from xskit.arguments import literal
from xskit.errors import UsageError
from xskit.xsk.path import direct
from xskit.xsk.path.direct import REASON_BITS
from xskit.xsk.path.owner import FrameError

__all__ = ["first_refused", "give", "refused", "take"]

_SENTENCES = {
    direct.OUTSIDE: "address {address} lies in no frame of the packet memory",
    direct.NOT_HELD: "the frame of address {address} is not the caller's",
    direct.TWICE: "the frame of address {address} is named twice",
    direct.SHARED: "the frame of address {address} belongs to a packet of several frames",
    direct.NOT_FIRST: "address {address} is not the first of its frame, as FILL needs it in unaligned memory",
    direct.BEYOND: "{length} bytes at address {address} do not all lie in one frame",
    direct.EMPTY: "no bytes cannot be sent",
    direct.OPTIONS: "this socket can do nothing with the options {options:#x}",
    direct.METADATA: "before address {address} its frame has no room for {metadata_bytes} bytes of metadata",
    direct.TOO_LONG: "the packet needs more than {most_frames} descriptors, the most that this socket sends",
    direct.UNFINISHED: "the packet goes on (XDP_PKT_CONTD) in an entry that is not submitted",
}


def take(memory: int, pool: int, count: int) -> np.ndarray[Any, Any]:
    """Free frames for the caller, by address (u8); as many as there are, at most `count`.

    Args:
        memory: address of the PacketMemory record.
        pool: address of the Pool record.
    """
    addresses = np.empty(count, np.uint64)
    return addresses[: direct.take_frames(memory, pool, count, int(addresses.ctypes.data))]


def give(memory: int, addresses: Any) -> None:
    """The caller's frames come home.

    Args:
        memory: address of the PacketMemory record.
        addresses: any address in each of them: whole numbers, or an array of them.

    Raises:
        FrameError: a frame is not the caller's, or is named twice; none of them comes home.
        UsageError: these are no addresses.
    """
    try:
        found = np.atleast_1d(np.asarray(addresses))
    except (TypeError, ValueError):
        found = np.empty(1, object)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise UsageError(f"addresses must be whole numbers, not {literal(addresses)}", remedy="umem.take(1)")
    words = found.astype(np.uint64)
    answer = direct.give_frames(memory, len(words), int(words.ctypes.data))
    if answer < 0:
        raise refused(answer, int(found[first_refused(answer)]))


def first_refused(answer: int) -> int:
    """Which entry a refusal of xsk/path/direct.py is about."""
    return -answer >> REASON_BITS


def refused(answer: int, address: int, **facts: int) -> FrameError | UsageError:
    """The error for a refusal of xsk/path/direct.py.

    Args:
        address: what stands in the entry.
        facts: of TX, `length` and `options` of the entry, `most_frames` and `metadata_bytes` of the socket.
    """
    reason = -answer & ((1 << REASON_BITS) - 1)
    kind = FrameError if reason <= direct.NOT_FIRST else UsageError
    return kind(f"entry {first_refused(answer)}: {_SENTENCES[reason].format(address=address, **facts)}")
