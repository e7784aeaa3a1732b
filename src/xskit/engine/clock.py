"""Clock and sleep of the compiled loop.

Everything runs on CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns().
"""

from __future__ import annotations

import time

from xskit.jit import as_i64, external, i32, inlined

_clock_gettime = external("clock_gettime", "int32", "int32", "int64")
_ppoll = external("ppoll", "int32", "int64", "int64", "int64", "int64")
_read = external("read", "int64", "int32", "int64", "int64")


@inlined
def read_clock(scratch: int) -> int:
    """Now, in ns; `scratch` is the address of 16 bytes of ours."""
    return read_any_clock(1, scratch)


@inlined
def read_any_clock(clock: int, scratch: int) -> int:
    """Now on a clock of clock_gettime(2), in ns."""
    _clock_gettime(i32(clock), scratch)
    timespec = as_i64(scratch)
    return timespec[0] * 1_000_000_000 + timespec[1]


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
