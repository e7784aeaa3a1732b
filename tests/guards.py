"""What a test session may leave behind: nothing. Looked for in the kernel's own lists, not in xskit's."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import struct
import time
from contextlib import closing, suppress
from pathlib import Path

from xskit.abi.bpf import SYSCALL_NUMBER, BpfCommand

PREFIX = "xk"  # of every name that xskit gives to something on the host
NAMESPACES = Path("/run/netns")
JOURNALS = Path("/run/xskit")
GRACE_S = 5.0  # the kernel frees programs and interfaces a moment after the last reference is gone

_libc = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Compares what there is with what there was, and remembers after which test a thing was first seen."""

    def __init__(self, *, whole_host: bool) -> None:
        self._whole_host = whole_host
        self._before = self._look()
        self._seen_after: dict[str, str] = {}

    def note(self, test: str) -> None:
        for thing in self._look() - self._before:
            self._seen_after.setdefault(thing, test)

    def leaked(self, last_test: str, *, grace_s: float = GRACE_S) -> list[str]:
        """One line for each thing that is still there after a moment of grace."""
        give_up = time.monotonic() + grace_s
        while (left := self._look() - self._before) and time.monotonic() < give_up:
            gc.collect()
            time.sleep(0.05)
        return sorted(f"{thing}, first seen after {self._seen_after.get(thing, last_test)}" for thing in left)

    def _look(self) -> set[str]:
        return descriptors() | (namespaces() | interfaces() | programs() | journals() if self._whole_host else set())


def descriptors() -> set[str]:
    """Open file descriptors of this process, but for the fonts that matplotlib keeps open once it has drawn a text."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that listed the folder
            target = os.readlink(f"/proc/self/fd/{number}")
            if "/matplotlib/mpl-data/fonts/" not in target:
                found.add(f"file descriptor {number} ({target})")
    return found


def namespaces() -> set[str]:
    """Network namespaces with a name of ours."""
    return {f"network namespace {path.name}" for path in NAMESPACES.glob(f"{PREFIX}*")}


def interfaces() -> set[str]:
    """Network interfaces of ours in this namespace; those of another go with it."""
    return {f"interface {name}" for _, name in socket.if_nameindex() if name.startswith(PREFIX)}


def journals() -> set[str]:
    """Journals of this process and of dead ones; PID-START-N.jsonl says whose it is."""
    paths = {path: path.name.partition("-")[0] for path in JOURNALS.glob("*.jsonl")}
    return {
        f"journal {path}" for path, pid in paths.items() if pid == str(os.getpid()) or not Path("/proc", pid).exists()
    }


def programs() -> set[str]:
    """BPF programs of ours, wherever they are attached or pinned, and the links that attach them."""
    found = {}
    for identifier in _identifiers(BpfCommand.PROG_GET_NEXT_ID):
        # struct bpf_prog_info: the name stands at offset 64
        name = _info(BpfCommand.PROG_GET_FD_BY_ID, identifier)[64:80].rstrip(b"\0").decode(errors="replace")
        if name.startswith(PREFIX):
            found[identifier] = f"BPF program {name} (id {identifier})"
    links = set()
    for identifier in _identifiers(BpfCommand.LINK_GET_NEXT_ID):
        # struct bpf_link_info: type, id, prog_id
        program = int.from_bytes(_info(BpfCommand.LINK_GET_FD_BY_ID, identifier)[8:12], "little")
        if program in found:
            links.add(f"BPF link {identifier} of {found[program]}")
    return {*found.values(), *links}


def _identifiers(command: BpfCommand) -> list[int]:
    """All ids of a kind, by *_GET_NEXT_ID (needs CAP_SYS_ADMIN)."""
    identifiers = [0]
    with suppress(FileNotFoundError):
        while True:
            attr = bytearray(struct.pack("=III", identifiers[-1], 0, 0))
            _bpf(command, attr)
            identifiers.append(struct.unpack_from("=I", attr, 4)[0])
    return identifiers[1:]


def _info(command: BpfCommand, identifier: int) -> bytes:
    """bpf_prog_info or bpf_link_info of an object; zeros if it has gone meanwhile."""
    info = ctypes.create_string_buffer(256)
    with suppress(FileNotFoundError):
        fd = _bpf(command, bytearray(struct.pack("=III", identifier, 0, 0)))
        with closing(os.fdopen(fd, "rb", buffering=0)):
            _bpf(BpfCommand.OBJ_GET_INFO_BY_FD, bytearray(struct.pack("=IIQ", fd, len(info), ctypes.addressof(info))))
    return info.raw


def _bpf(command: BpfCommand, attr: bytearray) -> int:
    assert SYSCALL_NUMBER is not None
    address = (ctypes.c_char * len(attr)).from_buffer(attr)
    result = _libc.syscall(SYSCALL_NUMBER, int(command), address, len(attr))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command.name})")
    return int(result)
