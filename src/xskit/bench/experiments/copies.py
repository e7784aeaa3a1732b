"""How often the kernel copies a packet into an skb: calls of skb_store_bits, which is what xsk_build_skb copies with.

A kprobe counts them (CONFIG_KPROBE_EVENTS); the probe's own file of hits needs no reading of the trace.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["CopyCount"]

TRACING = Path("/sys/kernel/tracing")
FUNCTION = "skb_store_bits"
_NAME = f"xk{os.getpid()}"

_libc = ctypes.CDLL(None, use_errno=True)


class CopyCount:
    """Counts from entering to leaving.

    Attributes:
        calls: of the whole machine meanwhile; None: nobody knows, and `why`.
    """

    def __init__(self) -> None:
        self.calls: int | None = None
        self.why = ""

    def __enter__(self) -> Self:
        try:
            if not (TRACING / "events").is_dir():
                _mount()
            if not (TRACING / "kprobe_events").exists():
                self.why = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"
                return self
            with (TRACING / "kprobe_events").open("a") as file:
                file.write(f"p:{_NAME}/{_NAME} {FUNCTION}\n")
            (TRACING / "events" / _NAME / _NAME / "enable").write_text("1")
        except OSError as error:
            self.why = f"the kernel does not let {FUNCTION} be probed: {error.strerror}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.why:
            return
        (TRACING / "events" / _NAME / _NAME / "enable").write_text("0")
        for line in (TRACING / "kprobe_profile").read_text().splitlines():
            name, hits, *_ = line.split()
            if name in (_NAME, f"{_NAME}/{_NAME}"):
                self.calls = int(hits)
        with suppress(OSError), (TRACING / "kprobe_events").open("a") as file:
            file.write(f"-:{_NAME}/{_NAME}\n")


def _mount() -> None:
    """tracefs, where it belongs. Raises OSError."""
    if _libc.mount(b"tracefs", str(TRACING).encode(), b"tracefs", 0, None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
