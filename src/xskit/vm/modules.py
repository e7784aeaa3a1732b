"""The modules of a kernel: where their files are, what they depend on, their contents uncompressed.

Debian's packages come without modules.dep (the installation would make it), and neither depmod nor modprobe need be on
this machine. But each module names what it depends on itself: `depends=` in its .modinfo section.
"""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from xskit.vm.errors import FetchError

__all__ = ["aliases", "dependencies", "index", "load_order", "read_module", "release"]

_FILE = re.compile(r"(.+)\.ko(\.xz|\.zst|\.gz)?")


def module_name(name: str) -> str:
    """The name as the kernel has it: dashes and underscores are the same to it."""
    return name.replace("-", "_")


def index(folder: Path) -> dict[str, Path]:
    """All module files below a folder, by module name."""
    found = {}
    for path in sorted(folder.rglob("*.ko*")):
        if match := _FILE.fullmatch(path.name):
            found[module_name(match[1])] = path
    return found


def read_module(path: Path) -> bytes:
    """A module, uncompressed: the kernel's own loader takes only that before 5.17.

    Raises:
        FetchError: it is compressed by zstd, and the program zstd is missing; or it is damaged.
    """
    try:
        return _read(path)
    except (lzma.LZMAError, EOFError, zlib.error, OSError, subprocess.CalledProcessError) as error:
        raise FetchError(
            f"the module {path} cannot be read: {error}", remedy="xskit vm kernels add BZIMAGE --modules DIR (again)"
        ) from error


def _read(path: Path) -> bytes:
    match path.suffix:
        case ".xz":
            return lzma.decompress(path.read_bytes())
        case ".gz":
            import gzip

            return gzip.decompress(path.read_bytes())
        case ".zst":
            if shutil.which("zstd") is None:
                raise FetchError(f"{path.name} is compressed by zstd, which is missing", remedy="apt-get install zstd")
            return subprocess.run(["zstd", "-dcq", str(path)], stdout=subprocess.PIPE, check=True).stdout
        case _:
            return path.read_bytes()


def dependencies(module: bytes) -> list[str]:
    """The names in a module's `depends=` (include/linux/moduleinfo: strings that end with a zero)."""
    match = re.search(rb"\0depends=([^\0]*)\0", module)
    return [module_name(name) for name in match[1].decode().split(",") if name] if match else []


def release(module: bytes) -> str | None:
    """The kernel that a module was built for: the first word of its `vermagic=`."""
    match = re.search(rb"\0vermagic=([^ \0]*)", module)
    return match[1].decode(errors="replace") if match else None


def aliases(module: bytes) -> list[str]:
    """The names besides its own by which the kernel asks for a module, those of devices left out."""
    names = [name.decode() for name in re.findall(rb"\0alias=([^\0]*)(?=\0)", module)]
    return [module_name(name) for name in names if ":" not in name and "*" not in name]


def load_order(wanted: Iterable[str], files: Mapping[str, Path], needs: Callable[[str], Sequence[str]]) -> list[str]:
    """The wanted modules and what they need, each after all that it needs.

    Names without a file are left out: they are built into the kernel, or it does without them.
    """
    order: list[str] = []
    entered: set[str] = set()

    def add(name: str) -> None:
        if name in entered or name not in files:
            return
        entered.add(name)
        for needed in needs(name):
            add(needed)
        order.append(name)

    for name in wanted:
        add(module_name(name))
    return order
