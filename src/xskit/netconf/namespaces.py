"""Network namespaces, named as `ip netns` names them, and the calling thread's way in and out.

A network namespace belongs to a *thread*: `inside` moves the calling thread alone, so sockets that other threads open
meanwhile are not affected. A name is a bind mount under /run/netns, as ip-netns(8) describes; whatever is made
here is seen by `ip netns` and the other way round.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from xskit import arguments, libc
from xskit.abi.mount import CLONE_NEWNET, MNT_DETACH, MS_BIND, MS_REC, MS_SHARED
from xskit.errors import DeviceError, KernelError, UsageError
from xskit.netconf.names import shown
from xskit.netconf.privileges import require

__all__ = [
    "FOLDER",
    "MissingError",
    "Namespace",
    "create_namespace",
    "find",
    "holders",
    "identity",
    "inside",
    "names",
    "remove_namespace",
]

FOLDER = Path("/run/netns")
OWN = "/proc/thread-self/ns/net"
_DESCRIPTORS = "/proc/self/fd"

_LARGEST_DESCRIPTOR = (1 << 31) - 1
_NAME = re.compile(r"xk[A-Za-z0-9._-]{0,61}")
_NUMBERED = re.compile(r"net:\[(\d+)\]")


class MissingError(DeviceError):
    """The network namespace or the interface is not there (any more)."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A named network namespace."""

    name: str

    @property
    def path(self) -> Path:
        """Where its bind mount lies."""
        return FOLDER / self.name

    @property
    def exists(self) -> bool:
        """Whether there is a namespace of this name now."""
        return identity(self.path) is not None

    def open(self) -> int:
        """A file descriptor of it; the caller closes it. As long as it is open the namespace lives.

        Raises:
            MissingError: there is no namespace of this name.
        """
        return _open(self.path)


def names() -> list[str]:
    """The names of all network namespaces of this machine, sorted."""
    with suppress(FileNotFoundError):
        return sorted(entry.name for entry in os.scandir(FOLDER))
    return []


def identity(path: str | Path = OWN) -> int | None:
    """The kernel's number (inode) of the namespace at `path`, or of the calling thread's; None if none is seen."""
    try:
        status = os.stat(path)
        folder = os.stat(FOLDER) if Path(path).parent == FOLDER else None
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError, PermissionError):
        return None
    if folder is not None and status.st_dev == folder.st_dev:
        return None  # a plain file: the bind mount is gone, or not there yet
    return status.st_ino


def find(inode: int) -> Path | None:
    """A path to the namespace with this number, if some process or name still holds it."""
    return next((path for path in holders() if identity(path) == inode), None)


def holders() -> Iterator[Path]:
    """Paths to every network namespace that a name, a process or a descriptor of this process holds; one may come
    again. While the only thread of a container is inside another namespace, a descriptor alone holds its own."""
    yield Path(OWN)
    yield Path("/proc/1/ns/net")
    yield from (FOLDER / name for name in names())
    yield from (Path(entry.path) / "ns/net" for entry in os.scandir("/proc") if entry.name.isdigit())
    for number in os.listdir(_DESCRIPTORS):
        path = Path(_DESCRIPTORS, number)
        with suppress(OSError):
            if os.readlink(path).startswith("net:["):
                yield path


@contextmanager
def inside(namespace: Namespace | str | Path | int | None) -> Iterator[None]:
    """The calling thread is in `namespace` for the length of the block.

    Args:
        namespace: a handle, a name, a path, an open file descriptor, or `net:[4026532281]`, as the kernel writes its
            number in /proc/PID/ns/net; None stays where the thread is.

    Raises:
        UsageError: it is something else.
        MissingError: there is no such namespace.
        PrivilegeError: entering needs CAP_SYS_ADMIN.
    """
    if namespace is None:
        yield
        return
    target = _descriptor(namespace) if isinstance(namespace, int) else _open(_path(namespace))
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.path.sameopenfile(target, home):  # already there: needs no capability
            yield
            return
        _enter(target)
        try:
            yield
        finally:
            libc.setns(home, CLONE_NEWNET)
    finally:
        os.close(home)
        if not isinstance(namespace, int):
            os.close(target)


def create_namespace(name: str) -> Namespace:
    """Make a network namespace, as `ip netns add` does. Its loopback is down.

    Raises:
        UsageError: the name does not begin with xk.
        DeviceError: there is one of this name.
        PrivilegeError: CAP_SYS_ADMIN is missing.
        KernelError: the kernel refused.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"a network namespace of xskit is named xk..., not {name!r}")
    require("CAP_SYS_ADMIN", "making a network namespace")
    namespace = Namespace(name)
    with _locked_folder():
        if namespace.exists:
            raise DeviceError(f"there is already a network namespace {name}", remedy="xskit restore")
        home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(os.open(namespace.path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o444))
            libc.unshare(CLONE_NEWNET)
            try:
                libc.mount(OWN, str(namespace.path), "none", MS_BIND)
            finally:
                libc.setns(home, CLONE_NEWNET)
        except OSError as error:
            with suppress(OSError):
                namespace.path.unlink()
            raise KernelError(f"the network namespace {name} cannot be made: {error.strerror}") from error
        finally:
            os.close(home)
    return namespace


def remove_namespace(name: str) -> bool:
    """Take the name away, as `ip netns delete` does; the namespace dies with its last user. False if it was gone.

    Raises:
        KernelError: the kernel refused.
    """
    path = Namespace(name).path
    try:
        while _unmount(path):
            pass
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise KernelError(
            f"the network namespace {name} cannot be removed: {error.strerror}", remedy=f"ip netns delete {name}"
        ) from error
    return True


def _unmount(path: Path) -> bool:
    """Take the upmost mount away; False if there is none."""
    try:
        libc.umount(str(path), MNT_DETACH)
    except OSError as error:
        if error.errno == errno.EINVAL:  # a plain file
            return False
        raise
    return True


def _descriptor(fd: int) -> int:
    """An open file descriptor. Raises UsageError."""
    try:
        os.fstat(arguments.whole("namespace", fd, 0, _LARGEST_DESCRIPTOR))
    except OSError as error:
        raise UsageError(f"namespace={fd} is not an open file descriptor", remedy="ip netns list") from error
    return fd


def _path(namespace: Namespace | str | Path) -> Path:
    if isinstance(namespace, Namespace):
        return namespace.path
    if not isinstance(namespace, Path):
        arguments.text("namespace", namespace)
    if numbered := _NUMBERED.fullmatch(str(namespace)):
        return find(int(numbered[1])) or Path(namespace)
    return FOLDER / namespace  # an absolute path stays what it is


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _missing(path) from error


def _missing(path: Path) -> MissingError:
    name = path.name if path.parent == FOLDER else str(path)
    return MissingError(f"there is no network namespace {shown(name)}", remedy="ip netns list")


def _enter(fd: int) -> None:
    try:
        libc.setns(fd, CLONE_NEWNET)
    except OSError as error:
        if error.errno == errno.EPERM:
            require("CAP_SYS_ADMIN", "entering a network namespace")
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if error.errno == errno.EINVAL:  # a plain file: what a half-made or half-removed namespace leaves
            raise _missing(path) from error
        raise KernelError(f"the network namespace {path.name} cannot be entered: {error.strerror}") from error


@contextmanager
def _locked_folder() -> Iterator[None]:
    """/run/netns under a lock; a shared mount, so that every mount namespace sees the names (ip-netns(8))."""
    try:
        FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise KernelError(f"{FOLDER} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # iproute2 takes the same lock
        _share_folder()
        yield
    finally:
        os.close(lock)


def _share_folder() -> None:
    try:
        try:
            libc.mount("", str(FOLDER), "none", MS_SHARED | MS_REC)
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: not a mount point yet
                raise
            libc.mount(str(FOLDER), str(FOLDER), "none", MS_BIND | MS_REC)
            libc.mount("", str(FOLDER), "none", MS_SHARED | MS_REC)
    except OSError as error:
        raise KernelError(f"{FOLDER} cannot be made a shared mount: {error.strerror}") from error
