"""bpf(2) by ctypes: the one room that lays out `union bpf_attr`.

Every function here raises OSError, as `os` does; its callers turn that into sentences.  All calls go through one
variable, and `replaced` puts a fake there: unit tests see the very bytes the kernel would see.

Layouts: linux/bpf.h, union bpf_attr; a kernel takes a longer attr than it knows as long as the rest is zero.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from xskit import libc
from xskit.abi.bpf import NAME_BYTES, SYSCALL_NUMBER, AttachType, BpfCommand, MapType, ProgramType, TestRunFlag

__all__ = [
    "BpfCall",
    "TestRun",
    "fd_by_id",
    "link_create",
    "map_create",
    "map_delete",
    "map_lookup",
    "map_next_key",
    "map_update",
    "next_id",
    "object_info",
    "program_load",
    "program_run_live",
    "program_test_run",
    "raw_tracepoint_open",
    "replaced",
]

BpfCall: TypeAlias = Callable[[BpfCommand, bytearray], int]
"""bpf(command, attr): the result, or OSError.  The kernel answers some commands by writing into attr."""

_LOG_BYTES = 1 << 20


def _kernel(command: BpfCommand, attr: bytearray) -> int:
    if SYSCALL_NUMBER is None:
        raise OSError(errno.ENOSYS, "xskit does not know the number of bpf(2) on this machine")
    buffer = (ctypes.c_char * len(attr)).from_buffer(attr)
    result = int(
        libc.shared.syscall(ctypes.c_long(SYSCALL_NUMBER), ctypes.c_int(command), buffer, ctypes.c_uint(len(attr)))
    )
    if result < 0:
        raise libc.failure()
    return result


_call: BpfCall = _kernel


@contextmanager
def replaced(fake: BpfCall) -> Iterator[None]:
    """Within the block, `fake` answers instead of the kernel."""
    global _call
    before, _call = _call, fake
    try:
        yield
    finally:
        _call = before


def _name(name: str) -> bytes:
    """At most 15 bytes of what the kernel allows in a name: letters, digits, `_` and `.`."""
    allowed = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "_" for c in name)
    return allowed.encode()[: NAME_BYTES - 1]


class _Buffer:
    """Memory whose address goes into an attr; as a local variable it lives until the call has returned."""

    def __init__(self, data: bytes, at_least: int = 1) -> None:
        self._memory = ctypes.create_string_buffer(data, max(len(data), at_least))
        self.address = ctypes.addressof(self._memory)

    def read(self, size_bytes: int) -> bytes:
        return self._memory.raw[:size_bytes]


def map_create(map_type: MapType, key_bytes: int, value_bytes: int, entries: int, flags: int, name: str) -> int:
    """BPF_MAP_CREATE: the new map's file descriptor (close-on-exec, as all of bpf(2)'s)."""
    attr = struct.pack("=7I16s", map_type, key_bytes, value_bytes, entries, flags, 0, 0, _name(name))
    return _call(BpfCommand.MAP_CREATE, bytearray(attr))


def map_lookup(fd: int, key: bytes, value_bytes: int) -> bytes:
    """BPF_MAP_LOOKUP_ELEM: the value; OSError ENOENT when there is none."""
    key_in, value_out = _Buffer(key), _Buffer(b"", value_bytes)
    _call(BpfCommand.MAP_LOOKUP_ELEM, bytearray(struct.pack("=IxxxxQQQ", fd, key_in.address, value_out.address, 0)))
    return value_out.read(value_bytes)


def map_update(fd: int, key: bytes, value: bytes, flags: int) -> None:
    """BPF_MAP_UPDATE_ELEM."""
    key_in, value_in = _Buffer(key), _Buffer(value)
    _call(BpfCommand.MAP_UPDATE_ELEM, bytearray(struct.pack("=IxxxxQQQ", fd, key_in.address, value_in.address, flags)))


def map_delete(fd: int, key: bytes) -> None:
    """BPF_MAP_DELETE_ELEM: OSError ENOENT when there is nothing to delete."""
    key_in = _Buffer(key)
    _call(BpfCommand.MAP_DELETE_ELEM, bytearray(struct.pack("=IxxxxQ", fd, key_in.address)))


def map_next_key(fd: int, key: bytes | None, key_bytes: int) -> bytes:
    """BPF_MAP_GET_NEXT_KEY: the key behind `key`, the first one for None; OSError ENOENT at the end."""
    key_in, key_out = _Buffer(key or b"", key_bytes), _Buffer(b"", key_bytes)
    address = 0 if key is None else key_in.address
    _call(BpfCommand.MAP_GET_NEXT_KEY, bytearray(struct.pack("=IxxxxQQQ", fd, address, key_out.address, 0)))
    return key_out.read(key_bytes)


def raw_tracepoint_open(name: str, program_fd: int) -> int:
    """BPF_RAW_TRACEPOINT_OPEN: a file descriptor that keeps the program attached."""
    name_in = _Buffer(name.encode() + b"\0")
    return _call(BpfCommand.RAW_TRACEPOINT_OPEN, bytearray(struct.pack("=QIxxxx", name_in.address, program_fd)))


def program_load(
    program_type: ProgramType,
    code: bytes,
    licence: str,
    flags: int,
    name: str,
    attach_type: AttachType,
) -> tuple[int, OSError | None, str]:
    """BPF_PROG_LOAD: (file descriptor, None, "") or (-1, the error, the verifier's log).

    The log costs the verifier time, so it is asked for by a second try, when the first one failed.
    """
    code_in, licence_in = _Buffer(code), _Buffer(licence.encode() + b"\0")

    def load(log_out: _Buffer | None) -> int:
        head = struct.pack("=IIQQ", program_type, len(code) // 8, code_in.address, licence_in.address)
        logging = struct.pack("=IIQ", 1, _LOG_BYTES, log_out.address) if log_out else bytes(16)
        tail = struct.pack("=II16sII", 0, flags, _name(name), 0, attach_type)
        return _retried(BpfCommand.PROG_LOAD, head + logging + tail)

    try:
        return load(None), None, ""
    except OSError as error:
        log_out = _Buffer(b"", _LOG_BYTES)
        try:
            return load(log_out), None, ""
        except OSError:
            return -1, error, log_out.read(_LOG_BYTES).split(b"\0", 1)[0].decode(errors="replace")


def _retried(command: BpfCommand, attr: bytes) -> int:
    """A signal that arrives while the verifier works ends it with EAGAIN; five tries, as libbpf does."""
    for _ in range(4):
        try:
            return _call(command, bytearray(attr))
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
    return _call(command, bytearray(attr))


@dataclass(frozen=True, slots=True)
class TestRun:
    """What BPF_PROG_TEST_RUN gave back: the program's return value, the packet and context it left, ns a run."""

    __test__ = False  # for pytest: not a test in spite of its name

    result: int
    data: bytes
    context: bytes
    duration_ns: int


def program_test_run(fd: int, data: bytes, context: bytes, *, repeat: int = 1) -> TestRun:
    """BPF_PROG_TEST_RUN on `data`; an empty `context` lets the kernel make one (with one it needs 5.14)."""
    room = len(data) + 512  # a program may grow the packet into the headroom
    data_in, data_out = _Buffer(data), _Buffer(b"", room)
    context_in, context_out = _Buffer(context), _Buffer(context)
    context_at = (context_in.address, context_out.address) if context else (0, 0)
    attr = bytearray(
        struct.pack("=IIIIQQII", fd, 0, len(data), room, data_in.address, data_out.address, repeat, 0)
        + struct.pack("=IIQQ", len(context), len(context), *context_at)
    )
    _call(BpfCommand.PROG_TEST_RUN, attr)
    result, size_out = struct.unpack_from("=I4xI", attr, 4)
    (duration,) = struct.unpack_from("=I", attr, 36)
    return TestRun(result, data_out.read(size_out), context_out.read(len(context)), duration)


def program_run_live(fd: int, data: bytes, context: bytes, *, repeat: int, batch: int) -> None:
    """BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES (5.18): `repeat` real packets, which go where the program says.

    Nothing comes back: the kernel refuses room for it in this mode.
    """
    data_in, context_in = _Buffer(data), _Buffer(context)
    attr = bytearray(
        struct.pack("=IIIIQQII", fd, 0, len(data), 0, data_in.address, 0, repeat, 0)
        + struct.pack("=IIQQ", len(context), 0, context_in.address, 0)
        + struct.pack("=III", TestRunFlag.XDP_LIVE_FRAMES, 0, batch)
    )
    _call(BpfCommand.PROG_TEST_RUN, attr)


def link_create(program_fd: int, ifindex: int, attach_type: AttachType, flags: int) -> int:
    """BPF_LINK_CREATE: a bpf_link's file descriptor; the program stays attached while anybody holds it."""
    return _call(BpfCommand.LINK_CREATE, bytearray(struct.pack("=iIII16x", program_fd, ifindex, attach_type, flags)))


def object_info(fd: int, size_bytes: int) -> bytes:
    """BPF_OBJ_GET_INFO_BY_FD: the first bytes of struct bpf_prog_info, bpf_map_info or bpf_link_info."""
    info_out = _Buffer(b"", size_bytes)
    _call(BpfCommand.OBJ_GET_INFO_BY_FD, bytearray(struct.pack("=IIQ", fd, size_bytes, info_out.address)))
    return info_out.read(size_bytes)


def fd_by_id(command: BpfCommand, object_id: int) -> int:
    """BPF_PROG_GET_FD_BY_ID or BPF_LINK_GET_FD_BY_ID (CAP_SYS_ADMIN)."""
    return _call(command, bytearray(struct.pack("=III", object_id, 0, 0)))


def next_id(command: BpfCommand, after: int) -> int | None:
    """BPF_PROG_GET_NEXT_ID or BPF_LINK_GET_NEXT_ID: the smallest id above `after`, None at the end (CAP_SYS_ADMIN)."""
    attr = bytearray(struct.pack("=III", after, 0, 0))
    try:
        _call(command, attr)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    return int(struct.unpack_from("=I", attr, 4)[0])
