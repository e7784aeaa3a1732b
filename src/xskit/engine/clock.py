"""Clock, sleep and system calls of the compiled loop.

Everything runs on CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns().
"""

from __future__ import annotations

import time

from xskit.jit import as_i64, external, i32, i64, inlined, last_errno

CLOCK_MONOTONIC = 1
MSG_DONTWAIT = 0x40
SECOND_NS = 1_000_000_000

EAGAIN = 11
EBUSY = 16
ENXIO = 6
ENETDOWN = 100
ENODEV = 19

_clock_gettime = external("clock_gettime", "int32", "int32", "int64")
_sendto = external("sendto", "int64", "int32", "int64", "int64", "int32", "int64", "uint32")
_sendmsg = external("sendmsg", "int64", "int32", "int64", "int32")
_recvfrom = external("recvfrom", "int64", "int32", "int64", "int64", "int32", "int64", "int64")
_ppoll = external("ppoll", "int32", "int64", "int64", "int64", "int64")
_read = external("read", "int64", "int32", "int64", "int64")


@inlined
def read_clock(scratch: int) -> int:
    """Now, in ns; `scratch` is the address of 16 bytes of ours."""
    _clock_gettime(i32(1), scratch)
    timespec = as_i64(scratch)
    return timespec[0] * 1_000_000_000 + timespec[1]


@inlined
def kick_transmit(fd: int) -> int:
    """Ask the kernel to send what lies in TX: 0, or the errno."""
    if _sendto(i32(fd), 0, 0, i32(0x40), 0, 0) < 0:
        return i64(last_errno())
    return 0


@inlined
def send_message(fd: int, message: int) -> int:
    """Send what a struct msghdr names: 0, or the errno."""
    if _sendmsg(i32(fd), message, i32(0x40)) < 0:
        return i64(last_errno())
    return 0


@inlined
def kick_receive(fd: int) -> None:
    """Ask a zero-copy driver to take frames from FILL."""
    _recvfrom(i32(fd), 0, 0, i32(0x40), 0, 0)


@inlined
def wait(descriptors: int, count: int, timeout_ns: int, scratch: int) -> None:
    """Sleep until one of the pollfd entries is ready or the time is over."""
    timespec = as_i64(scratch)
    timespec[0] = timeout_ns // 1_000_000_000
    timespec[1] = timeout_ns % 1_000_000_000
    _ppoll(descriptors, count, scratch, 0)


@inlined
def empty_eventfd(fd: int, scratch: int) -> None:
    """Take what lies in a non-blocking eventfd, so that it wakes nobody any more."""
    _read(i32(fd), scratch, 8)


def monotonic_ns() -> int:
    """Now, on the engine's clock, from Python."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
