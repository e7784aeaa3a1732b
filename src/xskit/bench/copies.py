"""How often the kernel copies a packet of AF_XDP, counted by kprobes (CONFIG_KPROBE_EVENTS).

    skb_store_bits     xsk_build_skb copies with it, where a packet is not sent from its own page (net/xdp/xsk.c)
    __pskb_pull_tail   makes a packet of pages linear, for a device without scatter-gather (net/core/dev.c)
    __xsk_rcv          puts a received packet into a frame, in copy mode (net/xdp/xsk.c)

The probes' own file of hits needs no reading of the trace.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from xskit import libc
from xskit.closing import Closing

__all__ = ["RECEIVING", "SENDING", "CopyCount"]

TRACING = Path("/sys/kernel/tracing")
SENDING = ("skb_store_bits", "__pskb_pull_tail")
RECEIVING = ("__xsk_rcv",)
_GROUP = f"xk{os.getpid()}"


class CopyCount(Closing):
    """Counts from when it is made to `close`.

    Args:
        functions: to count the calls of.

    Attributes:
        calls: of each of them, on the whole machine meanwhile; None: nobody knows, and `why`, or not closed yet.
    """

    def __init__(self, functions: Sequence[str] = SENDING) -> None:
        self._functions = functions
        self.calls: dict[str, int] | None = None
        self.why = ""
        try:
            if not (TRACING / "events").is_dir():  # tracefs, where it belongs
                libc.mount("tracefs", str(TRACING), "tracefs", 0)
            if not (TRACING / "kprobe_events").exists():
                self.why = "this kernel has no kprobes (CONFIG_KPROBE_EVENTS)"
                return
            for function in self._functions:
                _say(f"p:{_GROUP}/{_event(function)} {function}")
            (TRACING / "events" / _GROUP / "enable").write_text("1")
        except OSError as error:
            self.why = f"the kernel does not let it be probed: {error.strerror}"
            self._remove()

    def close(self) -> None:
        """Read the counts and take the probes away; twice is fine."""
        if self.why or self.calls is not None:
            return
        (TRACING / "events" / _GROUP / "enable").write_text("0")
        hits = dict(line.split()[:2] for line in (TRACING / "kprobe_profile").read_text().splitlines())
        self.calls = {function: int(hits.get(_event(function), 0)) for function in self._functions}
        self._remove()

    def _remove(self) -> None:
        for function in self._functions:
            with suppress(OSError):
                _say(f"-:{_GROUP}/{_event(function)}")


def _event(function: str) -> str:
    """A name that is nobody else's in the list of hits, which leaves the group out."""
    return f"{_GROUP}_{function.strip('_')}"


def _say(line: str) -> None:
    """Add a line; Python's own way to append seeks to the end, which this file refuses. Raises OSError."""
    fd = os.open(TRACING / "kprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)
