"""The data plane compiled for guests: on this machine, for a CPU that both have, so that no guest compiles anything.

A guest sees the same files under the same names, so it takes this cache for its own. It runs as a process of its own,
`python -m xskit.vm.compiled`, because Numba takes its CPU from the environment when it is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType
from typing import Self

from xskit._blas import start_no_threads
from xskit.vm.children import dying_with_us
from xskit.vm.errors import GuestError
from xskit.vm.hardware import GUEST_CPU
from xskit.vm.places import vm_folder

__all__ = ["Preparation", "environment"]


def environment() -> dict[str, str]:
    """Environment variables that make xskit use the guests' compiled code, which in a guest is not root's."""
    return {
        "NUMBA_CPU_NAME": GUEST_CPU,
        "NUMBA_CPU_FEATURES": "",
        "XSKIT_CACHE": str(vm_folder("compiled")),
        "XSKIT_CACHE_OWNER": str(os.geteuid()),
    }


class Preparation:
    """Compiles what is not yet in the cache, while the guest boots."""

    def __init__(self) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "xskit.vm.compiled"],
            env={**inherited, **environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=dying_with_us(),
        )

    @property
    def finished(self) -> bool:
        """Whether there is nothing more to wait for."""
        return self._process.poll() is not None

    def wait(self) -> None:
        """Return when everything is compiled.

        Raises:
            GuestError: something cannot be compiled.
        """
        _, words = self._process.communicate()
        if self._process.returncode != 0:
            last = words.decode(errors="replace").strip().rpartition("\n")[2]
            raise GuestError(f"the data plane cannot be compiled for the guest: {last}", remedy="--no-data-plane")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()


def compile_everything() -> None:
    """Every entry point, and the pipelines that a link made by the short form has."""
    import importlib
    import pkgutil

    import xskit.bench.loops
    import xskit.engine
    import xskit.xsk.path
    from xskit.emulator.emulator import compile_data_plane
    from xskit.emulator.settings import DirectionSettings

    compile_data_plane([DirectionSettings(order=order) for order in ("keep", "free")])
    names = ["xskit.jit"]
    for package in (xskit.xsk.path, xskit.engine, xskit.bench.loops):
        names += [f"{package.__name__}.{found.name}" for found in pkgutil.iter_modules(package.__path__)]
    for name in names:
        for value in vars(importlib.import_module(name)).values():
            if callable(getattr(value, "py_func", None)) and hasattr(type(value), "compiled"):
                _ = value.compiled


if __name__ == "__main__":
    start_no_threads()
    compile_everything()
