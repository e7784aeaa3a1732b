"""Kernels for guests: Debian's, fetched and unpacked into the user's cache, or the user's own.

A kernel is a folder below vm/kernels: vmlinuz, modules/ and kernel.json, which says where it came from.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from xskit.errors import UsageError
from xskit.files import ReadError, read
from xskit.vm import Say
from xskit.vm.apt import Apt, Package, Suite, unpack
from xskit.vm.errors import FetchError
from xskit.vm.modules import index as modules_below
from xskit.vm.modules import read_module
from xskit.vm.modules import release as release_of_module
from xskit.vm.places import footprint, require_x86, vm_folder

__all__ = ["Available", "Kernel", "add", "available", "cached", "fetch", "find", "ready"]


SUITES = tuple(
    Suite(name)
    for name in ("bullseye-security", "bookworm-security", "trixie-security", "bookworm-backports", "trixie-backports")
)
"""Where Debian's kernels of 5.10 and of everything from 6.1 on are found."""

MOST_IMAGE_BYTES = 1 << 28
_IMAGE = re.compile(r"linux-image-(?P<release>(?P<version>\d+\.\d+)\.\d+[.+~\w]*(?:-\d+)?)-amd64")
_PATTERN = r"linux-(image|binary|modules)-[0-9].*-amd64"
_VERSION = re.compile(r"\d+\.\d+")
_FLAVOURS = ("-cloud-amd64", "-rt-amd64")

_UNNEEDED = ("sound", "drivers/gpu", "drivers/media", "drivers/staging", "drivers/infiniband", "drivers/scsi",
             "drivers/usb", "drivers/iio", "drivers/input", "drivers/mtd", "drivers/isdn", "drivers/hid",
             "drivers/net/wireless", "drivers/md", "drivers/comedi", "drivers/accel")  # fmt: skip
"""Modules that no guest here has a device for: three quarters of all bytes."""


@dataclass(frozen=True)
class Kernel:
    """A kernel in the cache.

    Attributes:
        version: "6.12", or for the user's own the name of its folder.
        release: as `uname -r` says; the file name for the user's own.
        image: path of vmlinuz or bzImage.
        modules: folder of its modules; None where it has none.
        origin: the packages it came from, or the user's path.
    """

    version: str
    release: str
    image: Path
    modules: Path | None
    origin: str

    @property
    def folder(self) -> Path:
        """Its own folder in the cache."""
        return vm_folder("kernels") / self.version


@dataclass(frozen=True)
class Available:
    """A kernel that Debian has: the newest release of its version."""

    version: str
    release: str
    packages: tuple[str, ...]
    megabytes: float


def version_key(version: str) -> tuple[int, ...]:
    """Sorts versions by their numbers: 6.1 before 6.12."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def newest(packages: Sequence[Package]) -> dict[str, Available]:
    """Of all kernel packages in the lists, the newest release of each version, with what makes it up.

    Up to 6.18 a kernel is one package, linux-image; since then that only draws in linux-binary, and since 7.2
    linux-modules too.
    """
    by_name = {package.name: package for package in packages}
    found: dict[str, Available] = {}
    for package in packages:
        match = _IMAGE.fullmatch(package.name)
        if match is None or package.name.endswith(_FLAVOURS):
            continue
        parts = [by_name.get(f"linux-{part}-{match['release']}-amd64") for part in ("binary", "modules")]
        split = [part for part in parts if part is not None] or [package]
        entry = Available(
            match["version"],
            f"{match['release']}-amd64",
            tuple(part.name for part in split),
            sum(part.megabytes for part in split),
        )
        known = found.get(entry.version)
        if known is None or version_key(known.release) < version_key(entry.release):
            found[entry.version] = entry
    return dict(sorted(found.items(), key=lambda item: version_key(item[0])))


def available(say: Say, *, refresh: bool = False) -> dict[str, Available]:
    """Debian's kernels, by version; lists are fetched when there are none yet, or at `refresh`.

    Raises:
        FetchError: as `Apt` says.
    """
    require_x86()
    apt = Apt("kernels", SUITES, say)
    if refresh or not apt.has_lists:
        apt.update()
    return newest(apt.packages(_PATTERN))


def cached() -> list[Kernel]:
    """The kernels in the cache that are whole, oldest version first."""
    found = [_read(note) for note in vm_folder("kernels").glob("*/kernel.json")]
    whole = [kernel for kernel in found if kernel is not None]
    return sorted(whole, key=lambda kernel: (version_key(kernel.version), kernel.version))


def _read(note: Path) -> Kernel | None:
    """The kernel in the note's folder; None where something of it is damaged."""
    image, modules = note.parent / "vmlinuz", note.parent / "modules"
    try:
        facts = json.loads(note.read_text())
        if facts["contents"] != _contents(note.parent):
            return None
        release, origin = str(facts["release"]), str(facts["origin"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return Kernel(note.parent.name, release, image, modules if modules.is_dir() else None, origin)


def _contents(folder: Path) -> list[str]:
    """What kernel.json says of the files beside it: the image's hash, and that of the modules' names and sizes."""
    return [hashlib.sha256((folder / "vmlinuz").read_bytes()).hexdigest(), footprint(folder / "modules")]


def find(version: str) -> Kernel | None:
    """The cached kernel of a version or name, if there is one."""
    return next((kernel for kernel in cached() if version in (kernel.version, kernel.release)), None)


def ready(version: str, say: Say) -> Kernel:
    """A kernel by version, fetched if it must be.

    Raises:
        UsageError: Debian has no such kernel.
        FetchError: it could not be fetched, or it is one of the user's own and damaged.
    """
    if (kernel := find(version)) is not None:
        return kernel
    if (vm_folder("kernels") / version).is_dir():
        if not _VERSION.fullmatch(version):
            raise FetchError(
                f"the kernel {version} in the cache is damaged",
                remedy=f"xskit vm kernels add BZIMAGE --modules DIR --name {version}",
            )
        say(f"the kernel {version} in the cache is damaged")
    return fetch(version, say)


def fetch(version: str, say: Say) -> Kernel:
    """Fetch the newest release of a version from Debian; a cached older one is replaced.

    Raises:
        UsageError: Debian has no such kernel.
        FetchError: it could not be fetched or unpacked.
    """
    offered = available(say, refresh=True)
    if version not in offered:
        raise UsageError(
            f"Debian has no kernel {version!r}: it has {', '.join(offered)}", remedy="xskit vm kernels list"
        )
    wanted = offered[version]
    present = find(version)
    if present is not None and present.release == wanted.release:
        say(f"{wanted.release} is here already")
        return present
    apt = Apt("kernels", SUITES, say)
    say(f"fetching {wanted.release} ({wanted.megabytes:.0f} MB)")
    files = apt.download(wanted.packages)
    say("unpacking")
    with tempfile.TemporaryDirectory(dir=vm_folder("kernels"), prefix=".new-") as draft:
        raw, made = Path(draft) / "raw", Path(draft) / "kernel"
        unpack(files, raw)
        _arrange(raw, made, wanted)
        target = vm_folder("kernels") / version
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
    apt.clean()
    return _cached_now(version)


def _arrange(raw: Path, made: Path, wanted: Available) -> None:
    """From an unpacked package the parts that a guest needs."""
    images = [*raw.glob("boot/vmlinuz-*"), *raw.glob("usr/lib/modules/*/vmlinuz"), *raw.glob("lib/modules/*/vmlinuz")]
    trees = [*raw.glob("usr/lib/modules/*/kernel"), *raw.glob("lib/modules/*/kernel")]
    if not images or not trees:
        raise FetchError(f"{' and '.join(wanted.packages)} hold no kernel image with modules: Debian has changed them")
    for part in _UNNEEDED:
        shutil.rmtree(trees[0] / part, ignore_errors=True)
    made.mkdir()
    images[0].rename(made / "vmlinuz")
    trees[0].rename(made / "modules")
    _note(made, wanted.release, " ".join(wanted.packages))


def add(image: Path, modules: Path | None, name: str | None = None) -> Kernel:
    """Put a kernel of the user's own into the cache, by copying it.

    Args:
        image: bzImage or vmlinuz.
        modules: a folder with its .ko files, as `make modules_install INSTALL_MOD_PATH=...` makes; may be left out
            where all that a guest needs is built in.
        name: by which `--kernel` finds it; the file's own name if not given.

    Raises:
        UsageError: there is no such file, it is no x86 kernel image, or the name cannot be one.
    """
    require_x86()
    try:
        content = read(image, MOST_IMAGE_BYTES)
    except ReadError as error:
        raise UsageError(error.cause, remedy=error.remedy) from error
    if content[0x202:0x206] != b"HdrS":  # Documentation/arch/x86/boot.rst
        raise UsageError(f"{image} is no x86 kernel image (arch/x86/boot/bzImage of a build)")
    if modules is not None and not modules.is_dir():
        raise UsageError(f"{modules} is no folder of modules", remedy="make modules_install INSTALL_MOD_PATH=DIR")
    if modules is not None:
        _require_fitting(modules, release_in(content))
    name = name or image.name
    if not re.fullmatch(r"[\w.+-]+", name) or _VERSION.fullmatch(name) or name.startswith("."):
        raise UsageError(f"a kernel of your own cannot be named {name!r}: letters, digits, dots, and no bare version")
    try:
        with tempfile.TemporaryDirectory(dir=vm_folder("kernels"), prefix=".new-") as draft:
            made = Path(draft) / "kernel"
            made.mkdir()
            (made / "vmlinuz").write_bytes(content)
            if modules is not None:
                ignored = shutil.ignore_patterns("build", "source")
                shutil.copytree(modules, made / "modules", symlinks=True, ignore=ignored)
            _note(made, release_in(content) or image.name, str(image.absolute()))
            target = vm_folder("kernels") / name
            shutil.rmtree(target, ignore_errors=True)
            made.rename(target)
    except OSError as error:
        reason = error.strerror or "not everything could be copied"
        raise FetchError(
            f"{image} cannot be put into the cache: {reason}", remedy="export XSKIT_CACHE=/var/tmp/xskit"
        ) from error
    return _cached_now(name)


def _require_fitting(modules: Path, release: str | None) -> None:
    """A guest would refuse modules of another kernel one by one, and then have no way to its root.

    Raises:
        UsageError: there are none, or the first is another kernel's.
    """
    first = next(iter(modules_below(modules).values()), None)
    if first is None:
        raise UsageError(f"{modules} holds no modules", remedy="make modules_install INSTALL_MOD_PATH=DIR")
    built_for = release_of_module(read_module(first))
    if release is not None and built_for is not None and built_for != release:
        raise UsageError(
            f"the modules in {modules} are those of {built_for}, and the kernel is {release}",
            remedy="make modules_install INSTALL_MOD_PATH=DIR",
        )


def release_in(image: bytes) -> str | None:
    """The release that an x86 kernel image says it is: boot protocol field kernel_version (boot.rst)."""
    offset = int.from_bytes(image[0x20E:0x210], "little")
    if offset == 0:
        return None
    text = image[offset + 0x200 : offset + 0x200 + 256].split(b"\0")[0].split(b" ")[0]
    return text.decode(errors="replace") or None


def _note(folder: Path, release: str, origin: str) -> None:
    (folder / "kernel.json").write_text(
        json.dumps({"release": release, "origin": origin, "contents": _contents(folder)})
    )


def _cached_now(version: str) -> Kernel:
    kernel = find(version)
    assert kernel is not None, "it has just been written"
    return kernel


def as_dict(kernel: Kernel) -> dict[str, str | None]:
    """For JSON."""
    return {key: None if value is None else str(value) for key, value in asdict(kernel).items()}
