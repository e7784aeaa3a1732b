"""A socket of kernels that are not at hand, as far as registering packet memory goes."""

from __future__ import annotations

import errno
import os

from xskit.abi.xdp import UmemFlag, UmemReg


class Kernel:
    """XDP_UMEM_REG as kernels have it (net/xdp/xdp_umem.c, xdp_umem_reg): before 6.8, up to 6.10, and since."""

    def __init__(self, version: tuple[int, int]):
        self.version = version
        self.metadata_bytes: int | None = None
        """Of the memory that was registered."""

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
        self.metadata_bytes = length if looks_at_length else 0
