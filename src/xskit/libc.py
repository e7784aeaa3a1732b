"""The C library of this process: system calls that Python 3.11 has no function for.

Each raises OSError when it fails, as the functions of `os` do.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

__all__ = ["bind", "external", "failure", "mount", "prctl", "setns", "shared", "umount", "unshare"]

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
"""linux/prctl.h."""

shared = ctypes.CDLL(None, use_errno=True)
"""All of it. An argument without a declared type is a C int, a pointer to bytes, or NULL."""

shared.mmap.restype = ctypes.c_void_p
shared.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
shared.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
shared.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
shared.syscall.restype = ctypes.c_long


def external(name: str, returns: str, *arguments: str) -> Any:
    """A C function by name, with types named as in ctypes without `c_`: external("close", "int32", "int32")."""
    found = shared[name]  # an object of its own; the attribute is everybody's
    found.restype = getattr(ctypes, f"c_{returns}")
    found.argtypes = [getattr(ctypes, f"c_{argument}") for argument in arguments]
    return found


def failure(path: str | None = None) -> OSError:
    """Why the call that this thread has just made failed: its errno."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)


def _checked(result: int, path: str | None = None) -> None:
    if result != 0:
        raise failure(path)


def bind(fd: int, address: bytes) -> None:
    """bind(2) with a struct sockaddr; Python knows none for AF_XDP."""
    _checked(shared.bind(fd, address, len(address)))


def prctl(option: int, argument: int) -> None:
    """prctl(2) of the calling thread."""
    _checked(shared.prctl(option, ctypes.c_ulong(argument), 0, 0, 0))


def setns(fd: int, kinds: int) -> None:
    """Move the calling thread into the namespace behind `fd` (setns(2))."""
    _checked(shared.setns(fd, kinds))


def unshare(kinds: int) -> None:
    """Give the calling thread new namespaces (unshare(2))."""
    _checked(shared.unshare(kinds))


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """mount(2) without data."""
    result = shared.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None)
    _checked(result, target)


def umount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _checked(shared.umount2(os.fsencode(target), flags), target)
