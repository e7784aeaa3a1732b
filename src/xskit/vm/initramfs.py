"""The guest's first root: a static busybox, the modules that lead to this machine's own root, and a script.

All further modules lie in a folder beside the archive, uncompressed: the guest loads them from there, since it has
this machine's root, when its kernel or somebody asks for them.

    kernels/6.12/boot-HASH/initramfs.cpio    bin/busybox init second.sh modules/
                           veth.ko ...
                           aliases           one line a name: the name, then what to load for it, in order
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from xskit.vm import cpio
from xskit.vm.devices import MODELS
from xskit.vm.errors import FetchError
from xskit.vm.kernels import Kernel
from xskit.vm.modules import aliases, dependencies, index, load_order, read_module
from xskit.vm.places import seal, sealed

__all__ = ["build"]

FIRST = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay")
"""The way to this machine's root, where the kernel has it as modules."""

_STALE_S = 86400.0

LATER = (
    *(model.driver for model in MODELS.values()),
    "veth", "tun", "bridge", "macvlan", "8021q", "sctp", "crc32c_generic", "xsk_diag",
    "sch_netem", "sch_fq", "sch_fq_codel", "sch_tbf", "sch_ingress", "cls_bpf", "act_mirred",
)  # fmt: skip
"""What a guest may ask for: NICs, and what is built of interfaces."""


def build(kernel: Kernel, busybox: Path) -> Path:
    """The archive for a kernel, from the cache where the same has been built before.

    Raises:
        FetchError: a module cannot be uncompressed.
    """
    scripts = {name: Path(__file__).with_name(name).read_bytes() for name in ("first.sh", "second.sh")}
    source = (scripts, FIRST, LATER, busybox.stat().st_size, str(kernel.folder))
    folder = kernel.folder / f"boot-{hashlib.sha256(repr(source).encode()).hexdigest()[:12]}"
    if not sealed(folder):
        _make(folder, kernel, busybox, scripts)
    with suppress(OSError):  # a cache that cannot be written will do
        os.utime(folder)
    return folder / "initramfs.cpio"


def _make(folder: Path, kernel: Kernel, busybox: Path, scripts: dict[str, bytes]) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=kernel.folder, prefix=".new-") as draft:
            made = Path(draft) / "boot"
            made.mkdir()
            _write(made, kernel, busybox, scripts, folder)
            seal(made)
            _sweep(kernel.folder)
            if folder.is_dir() and not sealed(folder):
                shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another xskit was first
                made.rename(folder)
    except OSError as error:
        raise FetchError(
            f"{folder} cannot be made: {error.strerror}", remedy="export XSKIT_CACHE=/var/tmp/xskit"
        ) from error
    if not sealed(folder):
        raise FetchError(f"{folder} cannot be made", remedy=f"ls -ld {kernel.folder}")


def _sweep(kernel: Path) -> None:
    """Remove what nobody has used for a day: a guest of another xskit may still load modules from the rest."""
    for stale in kernel.glob("boot-*"):
        with suppress(OSError):
            if time.time() - stale.stat().st_mtime > _STALE_S:
                shutil.rmtree(stale, ignore_errors=True)


def _write(made: Path, kernel: Kernel, busybox: Path, scripts: dict[str, bytes], folder: Path) -> None:
    files = index(kernel.modules) if kernel.modules is not None else {}

    @functools.cache
    def content(name: str) -> bytes:
        return read_module(files[name])

    def order(wanted: Iterable[str]) -> list[str]:
        return load_order(wanted, files, lambda name: dependencies(content(name)))

    lines = []
    for name in order(LATER):
        (made / f"{name}.ko").write_bytes(content(name))
        lines += [" ".join([alias, *order([name])]) for alias in [name, *aliases(content(name))]]
    (made / "aliases").write_text("".join(f"{line}\n" for line in lines))

    first = order(FIRST)
    entries = [
        *(cpio.folder(name) for name in ("bin", "dev", "modules")),
        cpio.file("bin/busybox", busybox.read_bytes(), executable=True),
        cpio.link("bin/sh", "busybox"),
        cpio.file("init", scripts["first.sh"], executable=True),
        cpio.file("second.sh", scripts["second.sh"], executable=True),
        cpio.file("modules/order", "".join(f"{name}\n" for name in first).encode()),
        cpio.file("modules/folder", f"{folder}\n".encode()),
        *(cpio.file(f"modules/{name}.ko", content(name)) for name in first),
    ]
    (made / "initramfs.cpio").write_bytes(cpio.archive(entries))
