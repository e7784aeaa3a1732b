"""What probing concludes from the answers of kernels that are not at hand."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext

import pytest

from xskit.abi.xdp import UmemFlag, UmemReg
from xskit.xsk import probe
from xskit.xsk.probe import SocketFeature


class Kernel:
    """XDP_UMEM_REG as kernels have it (net/xdp/xdp_umem.c, xdp_umem_reg): before 6.8, up to 6.10, and since."""

    def __init__(self, version: tuple[int, int]):
        self.version = version

    def setsockopt(self, level, option, raw):
        asked = UmemReg.unpack(raw)
        flags = {UmemFlag.UNALIGNED_CHUNK}
        if self.version >= (6, 8):
            flags.add(UmemFlag.TX_SW_CSUM)
        if self.version >= (6, 11):
            flags.add(UmemFlag.TX_METADATA_LEN)
        looks_at_length = UmemFlag.TX_METADATA_LEN in asked.flags if self.version >= (6, 11) else self.version >= (6, 8)
        length = asked.tx_metadata_bytes
        if not set(asked.flags) <= flags or (looks_at_length and (length % 8 or length >= 256)):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize(
    ("version", "there"), [((5, 15), False), ((6, 7), False), ((6, 8), True), ((6, 10), True), ((6, 11), True)]
)
def test_tx_metadata_came_before_its_flag(monkeypatch, version, there):
    monkeypatch.setattr(probe.socket, "socket", lambda *_: nullcontext(Kernel(version)))
    support = probe._probe(SocketFeature.TX_METADATA)
    assert (support.available, bool(support.detail)) == (there, not there)
