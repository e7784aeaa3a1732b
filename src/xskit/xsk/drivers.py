"""What zero-copy drivers do that the kernel does not tell.

A NIC is told how long its receive buffers are in units of its own, and the driver rounds down. Where a packet is longer
than that, igb delivers the beginning of it as if it were all (measured on Linux 7.3: 1024 bytes of 1514 in frames of
2048), so what a frame holds must be counted in those units.
"""

from __future__ import annotations

__all__ = ["CAREFUL_UNIT_BYTES", "UNIT_BYTES", "usable_bytes"]

UNIT_BYTES = {
    "igb": 1024,  # E1000_SRRCTL_BSIZEPKT_SHIFT
    "igc": 1024,  # IGC_SRRCTL_BSIZEPKT
    "i40e": 128,  # I40E_RXQ_CTX_DBUFF_SHIFT
    "ice": 128,  # ICE_RLAN_CTX_DBUF_S
    "virtio_net": 1,
    "mlx5_core": 1,
    "veth": 1,  # has no zero copy; kernels before 6.3 do not say so
}
"""By driver: receive buffers are multiples of this."""

CAREFUL_UNIT_BYTES = 1024
"""What to plan memory with for others: the coarsest that is known."""


def usable_bytes(driver: str, capacity: int) -> int:
    """How long a packet in one frame may be in zero copy.

    Args:
        driver: as in ethtool -i; one that is not known is taken to fill all.
        capacity: bytes of the frame behind the headroom.
    """
    unit = UNIT_BYTES.get(driver, 1)
    return capacity // unit * unit
