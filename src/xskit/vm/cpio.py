"""A cpio archive in the "newc" format, which the kernel unpacks as its first root.

Source: Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Member", "archive", "file", "folder", "link"]


@dataclass(frozen=True)
class Member:
    """One file, folder or symbolic link; names have no leading slash."""

    name: str
    mode: int
    content: bytes = b""


def file(name: str, content: bytes, *, executable: bool = False) -> Member:
    """A regular file."""
    return Member(name, stat.S_IFREG | (0o755 if executable else 0o644), content)


def folder(name: str) -> Member:
    """A folder; those above it must come before it."""
    return Member(name, stat.S_IFDIR | 0o755)


def link(name: str, target: str) -> Member:
    """A symbolic link."""
    return Member(name, stat.S_IFLNK | 0o777, target.encode())


def archive(entries: Iterable[Member]) -> bytes:
    """The whole archive. All files belong to root and have no time, so that the same entries give the same bytes."""
    parts = []
    number = 0
    for number, entry in enumerate(entries, start=1):
        parts.append(_member(number, entry))
    parts.append(_member(number + 1, Member("TRAILER!!!", 0)))
    return b"".join(parts)


def _member(inode: int, entry: Member) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    # ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
    fields = (inode, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % value for value in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(content: bytes) -> bytes:
    """To a multiple of four bytes."""
    return content + bytes(-len(content) % 4)
