"""Who is there already: the XDP programs attached to an interface, and the processes that hold them there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from os import close, getpid, readlink
from pathlib import Path

from xskit.abi.bpf import BpfCommand, LinkType
from xskit.bpf import netlink, syscall
from xskit.bpf.program import program_info

__all__ = ["Occupant", "occupants"]

_LINK_INFO = struct.Struct("=III4xI")  # bpf_link_info: type, id, prog_id, xdp.ifindex


@dataclass(frozen=True, slots=True)
class Occupant:
    """A program attached to an interface."""

    mode: str
    """`native`, `generic` or `offloaded`."""
    program_id: int
    program_name: str | None
    """None when it has none, or when this process may not ask (CAP_SYS_ADMIN)."""
    link_id: int | None = None
    """The bpf_link that holds it; None when it was attached by netlink, or when this process may not ask."""
    holders: tuple[tuple[int, str], ...] = ()
    """Processes that hold the link, as (pid, name); "this process" for our own."""

    def __str__(self) -> str:
        named = f", name {self.program_name}" if self.program_name else ""
        return f"id {self.program_id}{named}, {self.mode}"


def occupants(ifindex: int) -> tuple[Occupant, ...]:
    """The XDP programs of an interface of the calling thread's network namespace; empty when there is none."""
    interface = netlink.interface(ifindex)
    if interface is None:
        return ()
    return tuple(_occupant(mode, program_id, ifindex) for mode, program_id in interface.programs)


def _occupant(mode: str, program_id: int, ifindex: int) -> Occupant:
    link_id = _link_of(program_id, ifindex)
    holders = tuple(_holders(link_id)) if link_id is not None else ()
    return Occupant(mode, program_id, _name_of(program_id), link_id, holders)


def _name_of(program_id: int) -> str | None:
    with suppress(OSError):
        fd = syscall.fd_by_id(BpfCommand.PROG_GET_FD_BY_ID, program_id)
        try:
            return program_info(fd).name or None
        finally:
            close(fd)
    return None


def _link_of(program_id: int, ifindex: int) -> int | None:
    """The XDP bpf_link that holds a program on an interface; the same program may have others on other interfaces."""
    with suppress(OSError):
        link_id = syscall.next_id(BpfCommand.LINK_GET_NEXT_ID, 0)
        while link_id is not None:
            with suppress(OSError):  # it may be gone by now
                fd = syscall.fd_by_id(BpfCommand.LINK_GET_FD_BY_ID, link_id)
                try:
                    kind, _, program, interface = _LINK_INFO.unpack(syscall.object_info(fd, _LINK_INFO.size))
                finally:
                    close(fd)
                if (kind, program, interface) == (LinkType.XDP, program_id, ifindex):
                    return link_id
            link_id = syscall.next_id(BpfCommand.LINK_GET_NEXT_ID, link_id)
    return None


def _holders(link_id: int) -> Iterator[tuple[int, str]]:
    """Processes with a file descriptor of this link, as far as /proc shows them."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _holds(process, link_id):
            pid = int(process.name)
            with suppress(OSError):
                yield pid, "this process" if pid == getpid() else (process / "comm").read_text().strip()


def _holds(process: Path, link_id: int) -> bool:
    with suppress(OSError):
        for entry in (process / "fd").iterdir():
            with suppress(OSError):  # files come and go while we look
                if "bpf" in readlink(entry) and _has_link_id(process / "fdinfo" / entry.name, link_id):
                    return True
    return False


def _has_link_id(fdinfo: Path, link_id: int) -> bool:
    return any(line.split() == ["link_id:", str(link_id)] for line in fdinfo.read_text().splitlines())
