"""Programs taken off interfaces as `bpftool link detach` does it."""

from __future__ import annotations

import struct

from xskit.bpf import syscall
from xskit.bpf.attach import BpfLink

_LINK_DETACH = 34  # linux/bpf.h, since Linux 5.9


def detach(link: BpfLink) -> None:
    """Its program is on the interface no more, and the link is held still."""
    syscall._call(_LINK_DETACH, bytearray(struct.pack("=I", link.fd)))  # type: ignore[arg-type]
