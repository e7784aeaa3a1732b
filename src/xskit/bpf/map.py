"""Maps: the memory that an XDP program shares with user space."""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from xskit.abi.bpf import MapFlag, MapType, UpdateFlag
from xskit.bpf import syscall
from xskit.bpf.errors import refused
from xskit.bpf.handle import Handle
from xskit.errors import UsageError

__all__ = ["Map", "MapSpec", "possible_cpus"]


@dataclass(frozen=True, slots=True)
class MapSpec:
    """A map not yet created: pure data.  `name` is cut to 15 bytes by the kernel."""

    name: str
    type: MapType
    key_bytes: int
    value_bytes: int
    entries: int

    @property
    def flags(self) -> MapFlag:
        """An LPM trie must not be allocated in advance; the others are."""
        return MapFlag.NO_PREALLOC if self.type is MapType.LPM_TRIE else MapFlag(0)


class Map(Handle):
    """A map in the kernel.

    Keys and values are bytes, or unsigned numbers in the machine's byte order.  A per-CPU map has one value for each
    possible CPU: `get_per_cpu` reads it, and `set` writes the same value for all of them.
    Every method raises BpfError, or PrivilegeError for EPERM.
    """

    def __init__(self, fd: int, spec: MapSpec) -> None:
        super().__init__(fd)
        self.spec = spec

    @classmethod
    def create(cls, spec: MapSpec) -> Self:
        """BPF_MAP_CREATE (CAP_BPF)."""
        try:
            fd = syscall.map_create(spec.type, spec.key_bytes, spec.value_bytes, spec.entries, spec.flags, spec.name)
        except OSError as error:
            raise refused(
                f'creating map "{spec.name}" ({spec.type.name})', error, why=_CREATE.get(error.errno)
            ) from None
        return cls(fd, spec)

    def get(self, key: int | bytes) -> bytes | None:
        """The value, or None when the key has none.  Not for XSKMAP: the kernel does not give sockets back."""
        if self.spec.type.per_cpu:
            raise UsageError(f'map "{self.spec.name}" has one value for each CPU: use get_per_cpu')
        return self._lookup(key, self.spec.value_bytes)

    def get_per_cpu(self, key: int | bytes) -> list[bytes] | None:
        """The value of each possible CPU, in order, or None when the key has none."""
        if not self.spec.type.per_cpu:
            raise UsageError(f'map "{self.spec.name}" has one value for all CPUs: use get')
        stride = self._stride_bytes
        raw = self._lookup(key, stride * possible_cpus())
        if raw is None:
            return None
        return [raw[at : at + self.spec.value_bytes] for at in range(0, len(raw), stride)]

    def set(self, key: int | bytes, value: int | bytes, flags: UpdateFlag = UpdateFlag.ANY) -> None:
        """Write a value.  For an XSKMAP the value is a socket's file descriptor, and a bound one."""
        raw = self._raw(value, self.spec.value_bytes, "value")
        if self.spec.type.per_cpu:
            raw = raw.ljust(self._stride_bytes, b"\0") * possible_cpus()
        try:
            syscall.map_update(self.fd, self._key(key), raw, flags)
        except OSError as error:
            raise refused(f'writing to map "{self.spec.name}"', error, why=self._why(error.errno)) from None

    def delete(self, key: int | bytes) -> bool:
        """Remove a key; False when there was none."""
        try:
            syscall.map_delete(self.fd, self._key(key))
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise refused(f'deleting from map "{self.spec.name}"', error, why=self._why(error.errno)) from None
        return True

    def known_keys(self) -> list[bytes]:
        """The keys that there are; of a map that changes meanwhile, perhaps not all of them."""
        found: list[bytes] = []
        try:
            while len(found) < self.spec.entries:
                last = found[-1] if found else None
                found.append(syscall.map_next_key(self.fd, last, self.spec.key_bytes))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise refused(f'reading the keys of map "{self.spec.name}"', error) from None
        return found

    @property
    def _stride_bytes(self) -> int:
        """The kernel lays the values of the CPUs at multiples of 8 bytes."""
        return -(-self.spec.value_bytes // 8) * 8

    def _lookup(self, key: int | bytes, size_bytes: int) -> bytes | None:
        try:
            return syscall.map_lookup(self.fd, self._key(key), size_bytes)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise refused(f'reading map "{self.spec.name}"', error, why=self._why(error.errno)) from None

    def _key(self, key: int | bytes) -> bytes:
        return self._raw(key, self.spec.key_bytes, "key")

    def _raw(self, value: int | bytes, size_bytes: int, what: str) -> bytes:
        if isinstance(value, int):
            if not 0 <= value < 1 << 8 * size_bytes:
                raise UsageError(f'{what} {value} does not fit into the {size_bytes} bytes of map "{self.spec.name}"')
            return value.to_bytes(size_bytes, sys.byteorder)
        if len(value) != size_bytes:
            raise UsageError(f'a {what} of map "{self.spec.name}" has {size_bytes} bytes, not {len(value)}')
        return value

    def _why(self, number: int | None) -> str | None:
        match number:
            case errno.E2BIG if self.spec.type in (MapType.HASH, MapType.PERCPU_HASH):
                return f"it is full, it has room for {self.spec.entries} entries"
            case errno.E2BIG:
                return f"its keys end at {self.spec.entries - 1}"
            case errno.EOPNOTSUPP if self.spec.type is MapType.XSKMAP:
                return "only AF_XDP sockets go into it, and nothing can be read back"
            case errno.ENOTSOCK:
                return "only AF_XDP sockets go into it, and this file descriptor is no socket"
            case errno.ENOSPC:
                return f"it is full, it has room for {self.spec.entries} entries"
        return None


_CREATE: dict[int | None, str] = {
    errno.ENOMEM: "not enough memory for that many entries",
    errno.E2BIG: "a size is beyond what the kernel allows",
    errno.EINVAL: "this kernel does not know the type, or a size does not fit the type",
}


@cache
def possible_cpus() -> int:
    """How many values a per-CPU map has: CPUs the kernel made room for, which can be more than there are."""
    count = 0
    for span in Path("/sys/devices/system/cpu/possible").read_text().strip().split(","):
        first, _, last = span.partition("-")
        count += int(last or first) - int(first) + 1
    return count
