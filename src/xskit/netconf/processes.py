"""Commands inside a network namespace, with names of their own in /etc/hosts and a /sys that shows the namespace.

A command inherits the namespaces of the *thread* that starts it. So a short-lived thread enters the network namespace,
takes a mount namespace of its own, mounts there what the command is to see, starts the command, and ends. Nothing is
left to clean up: the mounts and the hosts file (on a tmpfs of that mount namespace) end with the command.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from xskit import libc
from xskit.abi.mount import (
    CLONE_NEWNS,
    MNT_DETACH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_SLAVE,
)
from xskit.errors import KernelError, UsageError
from xskit.netconf.namespaces import Namespace, inside
from xskit.netconf.privileges import require

__all__ = ["SPAWNER", "spawn_in"]

SPAWNER = "xskit-spawn"
"""The name of the short-lived thread."""

_HOSTS = "/etc/hosts"
# Daemons that answer for /etc/hosts on behalf of glibc, and read the machine's file, not ours.
_NAME_DAEMONS = ("/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve")


def spawn_in(
    namespace: Namespace | str | Path | int | None,
    argv: Sequence[str],
    *,
    hosts: Mapping[str, Sequence[str]] | None = None,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a command inside a network namespace.

    Args:
        namespace: a handle, a name, a path or an open file descriptor; None: that of the calling thread.
        argv: the command and its arguments; no shell.
        hosts: names and their addresses, {"peer": ["10.0.0.2", "fd00::2"]}, that the command sees before those of
            /etc/hosts.
        options: as of subprocess.Popen: env, cwd, stdin, stdout, stderr, text, start_new_session, ...

    Raises:
        UsageError: there is no such command or folder, or it cannot be executed.
        MissingError: there is no such namespace.
        PrivilegeError: CAP_SYS_ADMIN is missing.
        KernelError: the kernel refused, or there is no /etc/hosts to extend.
    """
    if not argv:
        raise UsageError("there is no command to start")
    require("CAP_SYS_ADMIN", "starting a command in a network namespace")
    outcome: list[subprocess.Popen[Any] | BaseException] = []

    def start() -> None:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())  # what the caller blocks is no affair of the command
            with inside(namespace):
                _separate_mounts(hosts or {})
                outcome.append(subprocess.Popen(list(argv), **options))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=start, name=SPAWNER)
    thread.start()
    thread.join()
    match outcome[0]:
        case subprocess.Popen() as process:
            return process
        case FileNotFoundError() | PermissionError() | NotADirectoryError() as error:
            folder = options.get("cwd")
            where = f" in {folder}" if folder is not None and error.filename == folder else ""
            raise UsageError(f"{argv[0]} cannot be started{where}: {error.strerror}") from error
        case BaseException() as error:
            raise error


def _separate_mounts(hosts: Mapping[str, Sequence[str]]) -> None:
    """The calling thread's own view of /sys and /etc/hosts. There is no way back: the thread must end."""
    try:
        libc.unshare(CLONE_NEWNS)
        libc.mount("none", "/", "none", MS_REC | MS_SLAVE)  # what is mounted here is not seen elsewhere
        if hosts:
            _extend_hosts(hosts)
    except OSError as error:
        raise KernelError(f"a mount namespace for the command cannot be made: {error.strerror}") from error
    with suppress(OSError):  # a container may forbid it: then /sys shows the outer namespace's interfaces
        _mount_sys()


def _extend_hosts(hosts: Mapping[str, Sequence[str]]) -> None:
    try:
        content = Path(_HOSTS).read_bytes()
    except FileNotFoundError as error:
        raise KernelError(f"there is no {_HOSTS} to add {' and '.join(hosts)} to", remedy=f"touch {_HOSTS}") from error
    lines = "".join(f"{address}\t{name}\n" for name, addresses in hosts.items() for address in addresses)
    # A tmpfs that lies over /sys for a moment: the file is never seen outside, and dies with its last bind mount.
    libc.mount("none", "/sys", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    try:
        file = Path("/sys/hosts")
        file.write_bytes(lines.encode() + content)
        file.chmod(0o644)
        libc.mount(str(file), _HOSTS, "none", MS_BIND)
    finally:
        libc.umount("/sys", MNT_DETACH)
    for daemon in _NAME_DAEMONS:
        with suppress(OSError):
            if stat.S_ISSOCK(os.stat(daemon).st_mode):
                libc.mount("/dev/null", daemon, "none", MS_BIND)  # glibc finds nobody there and reads the file


def _mount_sys() -> None:
    """A /sys of the thread's network namespace, with what was mounted under the old one (cgroups, bpf) in its place."""
    flags = MS_RDONLY if os.statvfs("/sys").f_flag & os.ST_RDONLY else 0
    kept = [(point, os.open(point, os.O_PATH | os.O_CLOEXEC)) for point in _mounts_under("/sys")]
    try:
        libc.mount("none", "/sys", "sysfs", flags | MS_NOSUID | MS_NODEV | MS_NOEXEC)
        for point, fd in kept:
            with suppress(OSError):
                libc.mount(f"/proc/thread-self/fd/{fd}", point, "none", MS_BIND | MS_REC)
    finally:
        for _, fd in kept:
            os.close(fd)


def _mounts_under(folder: str) -> list[str]:
    """The mount points below `folder`, without those below another of them."""
    found: list[str] = []
    for line in Path("/proc/thread-self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        point = line.split(" ")[4]
        if point.startswith(f"{folder}/") and not any(
            point == upper or point.startswith(f"{upper}/") for upper in found
        ):
            found.append(point)
    return found
