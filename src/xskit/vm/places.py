"""Where the vm floor keeps what it fetches: below $XSKIT_CACHE, or xskit/ in the user's cache folder.

vm/apt/          the private configuration, lists and archives of apt
vm/kernels/      one folder a kernel: vmlinuz, modules/, kernel.json, and what was built for it and found out of it
vm/qemu/ vm/busybox
vm/runs/         one folder a running guest, named PID-START: what a killed xskit left is swept by the next one
vm/compiled/     the compiled data plane for the guests' CPU
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from pathlib import Path

from xskit.errors import UsageError
from xskit.netconf.pids import is_running, start_time

__all__ = ["cache_root", "footprint", "new_run_folder", "require_x86", "seal", "sealed", "sweep_runs", "vm_folder"]


_SEAL = "footprint"


def cache_root() -> Path:
    """$XSKIT_CACHE, or xskit/ in the user's cache folder: the same as of compiled code, without importing Numba."""
    if given := os.environ.get("XSKIT_CACHE"):
        return Path(given).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xskit"


def vm_folder(name: str) -> Path:
    """A folder of the vm floor, made on first use.

    Raises:
        UsageError: it cannot be made.
    """
    folder = cache_root() / "vm" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the cache {folder} cannot be made: {error.strerror}", remedy="export XSKIT_CACHE=/var/tmp/xskit"
        ) from error
    return folder


def footprint(folder: Path) -> str:
    """A hash of the names and sizes of all files below a folder: a file that a power cut emptied changes it."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _SEAL:
            digest.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
    return digest.hexdigest()


def seal(folder: Path) -> None:
    """Note what is in a folder that is complete now."""
    (folder / _SEAL).write_text(footprint(folder))


def sealed(folder: Path) -> bool:
    """Whether a folder has all that was in it when it was sealed."""
    try:
        return (folder / _SEAL).read_text() == footprint(folder)
    except (OSError, ValueError):
        return False


def require_x86() -> None:
    """Guests share this machine's programs, and the kernels and NIC models known here are those of x86-64.

    Raises:
        UsageError: this is another architecture.
    """
    if platform.machine() != "x86_64":
        raise UsageError(f"guests run on x86_64 only, this machine is {platform.machine()}")


def new_run_folder() -> Path:
    """A folder for one guest of this process; whoever makes it removes it."""
    sweep_runs()
    runs, stem = vm_folder("runs"), f"{os.getpid()}-{start_time(os.getpid())}"
    number = 0
    while True:
        folder = runs / f"{stem}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def sweep_runs() -> None:
    """Remove the folders of processes that have died without removing them."""
    for folder in vm_folder("runs").iterdir():
        pid, start, *_ = (*folder.name.split("-"), "", "")
        if pid.isdigit() and start.isdigit() and not is_running(int(pid), int(start)):
            shutil.rmtree(folder, ignore_errors=True)
