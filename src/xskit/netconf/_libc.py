"""setns, unshare, mount and umount2 by ctypes: Python 3.11 has none of them."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, path: str | None = None) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def setns(fd: int, kinds: int) -> None:
    """Move the calling thread into the namespace behind `fd` (setns(2))."""
    _checked(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kinds)))


def unshare(kinds: int) -> None:
    """Give the calling thread new namespaces (unshare(2))."""
    _checked(_libc.unshare(ctypes.c_int(kinds)))


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """mount(2) without data."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None)
    _checked(result, target)


def umount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _checked(_libc.umount2(os.fsencode(target), ctypes.c_int(flags)), target)
