"""What AF_XDP sockets can do on this kernel, found out by trying; no interface is touched.

A flag of bind(2) is known when the kernel complains of the interface, which cannot exist, and not of the flag
(net/xdp/xsk.c, xsk_bind).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import socket
from collections.abc import Callable
from contextlib import closing
from functools import cache

from xskit import libc
from xskit.abi.xdp import AF_XDP, SOL_XDP, TX_METADATA_BYTES, BindFlag, SockaddrXdp, SocketOption, UmemFlag, UmemReg
from xskit.bpf.support import KernelFeature, Support, tried

__all__ = ["SocketFeature", "looks_at_length", "probe_sockets", "why_no_frames_of"]

_SO_PREFER_BUSY_POLL = 69  # asm-generic/socket.h, 5.11
_NO_INTERFACE = (1 << 31) - 1
_LITTLE_BYTES = 4 * 8192
_HUGE_PAGE_BYTES = 2 << 20
_MAP_HUGETLB = 0x40000  # asm-generic/mman-common.h; memory.py has it too, but loads NumPy
_EVERY = 2048


class SocketFeature(KernelFeature):
    """What `probe_sockets` tries."""

    SOCKET = ("AF_XDP sockets", "4.18")
    NEED_WAKEUP = ("need_wakeup: no system call while the driver is awake", "5.4")
    MULTI_BUFFER = ("multi-buffer packets", "6.6")
    TX_METADATA = ("TX metadata", "6.8")
    TX_BUDGET = ("more than 32 packets a sendto", "6.17")
    BUSY_POLL = ("preferred busy polling", "5.11")
    LARGE_FRAMES = ("frames of 8192 bytes", "never merged")


@cache
def probe_sockets() -> list[Support]:
    """Every feature, in the order of the enum."""
    return [_probe(feature) for feature in SocketFeature]


def _probe(feature: SocketFeature) -> Support:
    def trial() -> None:
        with socket.socket(AF_XDP, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as opened:
            _TRIALS[feature](opened)

    return tried(feature, trial)


def _try_nothing(opened: socket.socket) -> None:
    """That it could be opened is enough."""


def _try_flag(opened: socket.socket, flag: BindFlag) -> None:
    _register(opened, _EVERY)
    for option in (SocketOption.UMEM_FILL_RING, SocketOption.UMEM_COMPLETION_RING, SocketOption.RX_RING):
        opened.setsockopt(SOL_XDP, option, 64)
    address = SockaddrXdp(_NO_INTERFACE, 0, BindFlag.COPY | flag).pack()
    try:
        libc.bind(opened.fileno(), address)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def _try_budget(opened: socket.socket) -> None:
    opened.setsockopt(SOL_XDP, SocketOption.TX_RING, 64)
    opened.setsockopt(SOL_XDP, SocketOption.MAX_TX_SKB_BUDGET, 64)


def _try_metadata(opened: socket.socket) -> None:
    try:
        _register(opened, _EVERY, TX_METADATA_BYTES, UmemFlag.TX_METADATA_LEN)
    except OSError as error:
        if error.errno != errno.EINVAL or not looks_at_length(lambda length: _register(opened, _EVERY, length)):
            raise


def looks_at_length(register: Callable[[int], None]) -> bool:
    """Whether the kernel looks at a length of TX metadata that is registered without its flag, as Linux 6.8 to 6.10 do.

    They refuse one that is no multiple of 8; others take it, and ignore it.
    """
    try:
        register(TX_METADATA_BYTES + 1)
    except OSError as error:
        return error.errno == errno.EINVAL
    return False


def why_no_frames_of(frame_size: int, *, unaligned: bool = False, hugetlb: bool = False) -> str | None:
    """The kernel's answer to packet memory in frames of this size; None: it takes them.

    With `hugetlb` in a page of the hugetlb pool, where patches for frames larger than a page wanted them.
    """
    flags = UmemFlag.UNALIGNED_CHUNK if unaligned else UmemFlag.NONE
    try:
        with socket.socket(AF_XDP, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as opened:
            _register(opened, frame_size, flags=flags, hugetlb=hugetlb)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _register(
    opened: socket.socket,
    frame_size: int,
    metadata_bytes: int = 0,
    flags: UmemFlag = UmemFlag.NONE,
    *,
    hugetlb: bool = False,
) -> None:
    """Register a little memory. The kernel keeps its own hold of the pages, so it may be unmapped at once."""
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_MAP_HUGETLB if hugetlb else 0)
    with closing(mmap.mmap(-1, _HUGE_PAGE_BYTES if hugetlb else _LITTLE_BYTES, flags=kind)) as memory:
        view = (ctypes.c_char * len(memory)).from_buffer(memory)
        wanted = UmemReg(ctypes.addressof(view), len(memory), frame_size, flags=flags, tx_metadata_bytes=metadata_bytes)
        del view
        opened.setsockopt(SOL_XDP, SocketOption.UMEM_REG, wanted.pack())


_TRIALS: dict[SocketFeature, Callable[[socket.socket], None]] = {
    SocketFeature.SOCKET: _try_nothing,
    SocketFeature.NEED_WAKEUP: lambda opened: _try_flag(opened, BindFlag.USE_NEED_WAKEUP),
    SocketFeature.MULTI_BUFFER: lambda opened: _try_flag(opened, BindFlag.USE_SG),
    SocketFeature.TX_METADATA: _try_metadata,
    SocketFeature.TX_BUDGET: _try_budget,
    SocketFeature.BUSY_POLL: lambda opened: opened.setsockopt(socket.SOL_SOCKET, _SO_PREFER_BUSY_POLL, 1),
    SocketFeature.LARGE_FRAMES: lambda opened: _register(opened, 8192),
}
