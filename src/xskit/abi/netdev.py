"""What a network device can do with XDP: linux/netdev.h, the `netdev` family of generic netlink (6.3)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

__all__ = [
    "FAMILY",
    "DeviceAttribute",
    "NetdevCommand",
    "PagePoolAttribute",
    "RxMetadataFeature",
    "XdpFeature",
    "XskFeature",
]

FAMILY: Final = "netdev"
"""NETDEV_FAMILY_NAME; its version is 1."""


class NetdevCommand(IntEnum):
    """NETDEV_CMD_*; only those that are used."""

    DEV_GET = 1
    PAGE_POOL_GET = 5  # 6.8


class DeviceAttribute(IntEnum):
    """NETDEV_A_DEV_*."""

    IFINDEX = 1  # u32
    PAD = 2
    XDP_FEATURES = 3  # u64, XdpFeature
    XDP_ZC_MAX_SEGS = 4  # u32, 6.6: buffers a packet may have in zero copy; 1 means no multi-buffer
    XDP_RX_METADATA_FEATURES = 5  # u64, 6.8, RxMetadataFeature
    XSK_FEATURES = 6  # u64, 6.8, XskFeature


class PagePoolAttribute(IntEnum):
    """NETDEV_A_PAGE_POOL_* (6.8); integers of 4 or 8 bytes."""

    ID = 1
    IFINDEX = 2
    NAPI_ID = 3
    INFLIGHT = 4  # pages allocated and not yet given back to the page allocator
    INFLIGHT_MEM = 5  # bytes
    DETACH_TIME = 6


class XdpFeature(IntFlag):
    """NETDEV_XDP_ACT_* (6.3)."""

    BASIC = 1 << 0  # XDP_ABORTED, DROP, PASS, TX in native mode
    REDIRECT = 1 << 1
    NDO_XMIT = 1 << 2  # takes packets redirected from other devices
    XSK_ZEROCOPY = 1 << 3
    HW_OFFLOAD = 1 << 4
    RX_SG = 1 << 5  # multi-buffer packets in native mode
    NDO_XMIT_SG = 1 << 6


class RxMetadataFeature(IntFlag):
    """NETDEV_XDP_RX_METADATA_*."""

    TIMESTAMP = 1 << 0  # 6.3
    HASH = 1 << 1  # 6.3
    VLAN_TAG = 1 << 2  # 6.8


class XskFeature(IntFlag):
    """NETDEV_XSK_FLAGS_*: TX metadata in zero copy."""

    TX_TIMESTAMP = 1 << 0  # 6.8
    TX_CHECKSUM = 1 << 1  # 6.8
    TX_LAUNCH_TIME_FIFO = 1 << 2  # 6.15
