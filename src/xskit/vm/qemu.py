"""QEMU and busybox: the machine's own where they will do, else Debian's, fetched and unpacked into the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from xskit.vm import Say
from xskit.vm.apt import Apt, Suite, debian_release, unpack
from xskit.vm.errors import FetchError
from xskit.vm.places import require_x86, seal, sealed, vm_folder

__all__ = ["Qemu", "busybox", "qemu"]


PROGRAM = "qemu-system-x86_64"
LEAST_MAJOR = 7
"""The first in which an emulated CPU (TCG) has AVX2, which compiled code for x86-64-v3 needs."""

_SOURCES = {
    "bookworm": (("bookworm", "bookworm-security", "bookworm-backports"), "/bookworm-backports"),
    "trixie": (("trixie", "trixie-security"), ""),
}
"""By Debian release: the suites that QEMU and its libraries come from, and which of them QEMU is taken from."""

_PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")


@dataclass(frozen=True)
class Qemu:
    """A QEMU that runs here.

    Attributes:
        argv: how to start it.
        environment: what it needs besides the user's own.
        version: major and minor.
    """

    argv: tuple[str, ...]
    version: tuple[int, int]
    environment: Mapping[str, str] = field(default_factory=dict)


def qemu(least_major: int, say: Say) -> Qemu:
    """A QEMU of at least this major version: the machine's, the cached one, or a fetched one.

    Raises:
        FetchError: there is none here, and none can be fetched for this system.
    """
    require_x86()
    least = max(least_major, LEAST_MAJOR)
    if (program := shutil.which(PROGRAM)) is not None:
        own = _probe(Qemu((program,), (0, 0)))
        if own is not None and own.version[0] >= least:
            return own
    folder = vm_folder("qemu") / "root"
    present = _unpacked(folder)
    if present is None or present.version[0] < least:
        _fetch(folder, least, say)
        present = _unpacked(folder)
    if present is None:
        raise FetchError("the QEMU that was fetched does not run here", remedy="apt-get install qemu-system-x86")
    return present


def _fetch(folder: Path, least: int, say: Say) -> None:
    release = debian_release()
    if release not in _SOURCES:
        raise FetchError(
            f"QEMU {least} or newer is needed, and only for Debian 12 and 13 can it be fetched",
            remedy="apt-get install qemu-system-x86",
        )
    names, origin = _SOURCES[release]
    apt = Apt("tools", [Suite(name) for name in names], say)
    apt.update()
    say("fetching QEMU (16 MB)")
    files = apt.download_with_dependencies([f"{package}{origin}" for package in _PACKAGES])
    with tempfile.TemporaryDirectory(dir=vm_folder("qemu"), prefix=".new-") as draft:
        raw = Path(draft) / "root"
        unpack(files, raw)
        for part in ("doc", "man", "icons", "lintian"):
            shutil.rmtree(raw / "usr/share" / part, ignore_errors=True)
        seal(raw)
        shutil.rmtree(folder, ignore_errors=True)
        raw.rename(folder)
    apt.clean()


def _unpacked(folder: Path) -> Qemu | None:
    """The QEMU in the cache, if there is one that is whole and runs."""
    program = folder / "usr/bin" / PROGRAM
    if not sealed(folder):
        return None
    share = [str(folder / "usr/share" / part) for part in ("qemu", "seabios")]
    environment = {
        "LD_LIBRARY_PATH": ":".join(str(folder / part) for part in _LIBRARIES),
        "QEMU_MODULE_DIR": str(folder / _LIBRARIES[0] / "qemu"),
    }
    return _probe(Qemu((str(program), "-L", share[0], "-L", share[1]), (0, 0), environment))


def _runs(busybox: Path) -> bool:
    """Whether it is there and whole."""
    try:
        return subprocess.run([busybox, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _probe(candidate: Qemu) -> Qemu | None:
    """The same with its version; None where it does not start."""
    try:
        done = subprocess.run(
            [candidate.argv[0], "--version"],
            env={**os.environ, **candidate.environment},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    version = read_version(done.stdout)
    return None if version is None else Qemu(candidate.argv, version, candidate.environment)


def read_version(text: str) -> tuple[int, int] | None:
    """The version that `--version` prints."""
    match = re.search(r"version (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def busybox(say: Say) -> Path:
    """A static busybox: the guest's shell before it has this machine's root.

    Raises:
        FetchError: it cannot be fetched.
    """
    path = vm_folder("busybox") / "busybox"
    if _runs(path):
        return path
    release = debian_release()
    apt = Apt("tools", [Suite(name) for name in _SOURCES.get(release or "", _SOURCES["bookworm"])[0]], say)
    apt.update()
    say("fetching busybox (1 MB)")
    with tempfile.TemporaryDirectory(dir=vm_folder("busybox"), prefix=".new-") as draft:
        unpack(apt.download(["busybox-static"]), Path(draft))
        found = [*Path(draft).glob("bin/busybox"), *Path(draft).glob("usr/bin/busybox")]
        if not found:
            raise FetchError("the package busybox-static holds no busybox: Debian has changed it")
        found[0].rename(path)
    apt.clean()
    return path
