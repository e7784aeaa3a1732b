"""What a network device can do with XDP, and its page pools: the `netdev` family of generic netlink (since 6.3)."""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass

from xskit.abi import netdev as abi
from xskit.abi import netlink as nl
from xskit.netconf import interfaces
from xskit.netlink import Netlink, NetlinkError, attributes, u32

__all__ = ["DeviceFeatures", "PagePool", "device_features", "page_pools"]


@dataclass(frozen=True, slots=True)
class DeviceFeatures:
    """Features of one device. `zero_copy_segments`: frames of one packet in zero copy; 1 means no multi-buffer."""

    xdp: abi.XdpFeature
    zero_copy_segments: int
    rx_metadata: abi.RxMetadataFeature
    xsk: abi.XskFeature

    @property
    def zero_copy(self) -> bool:
        """Whether the driver has what AF_XDP zero copy needs."""
        needed = abi.XdpFeature.BASIC | abi.XdpFeature.REDIRECT | abi.XdpFeature.XSK_ZEROCOPY
        return needed in self.xdp


def device_features(name: str) -> DeviceFeatures | None:
    """The features of interface `name` in the calling thread's namespace; None where the kernel is too old to say.

    Raises:
        MissingError: there is no interface of this name.
        RefusedError: the kernel refused for another reason.
    """
    number = interfaces.index(name)
    with Netlink(nl.NETLINK_GENERIC) as netlink:
        family = netlink.family(abi.FAMILY)
        if family is None:
            return None
        request = nl.GENERIC_HEADER.pack(abi.NetdevCommand.DEV_GET, 1, 0) + u32(abi.DeviceAttribute.IFINDEX, number)
        try:
            (body,) = netlink.request(family, request)
        except NetlinkError as error:
            raise interfaces.refusal(f"the features of {name} cannot be read", error, name) from error
    found = attributes(body, nl.GENERIC_HEADER.size)
    values = {kind: int.from_bytes(found.get(kind, b""), "little") for kind in abi.DeviceAttribute}
    return DeviceFeatures(
        xdp=abi.XdpFeature(values[abi.DeviceAttribute.XDP_FEATURES]),
        zero_copy_segments=values[abi.DeviceAttribute.XDP_ZC_MAX_SEGS],
        rx_metadata=abi.RxMetadataFeature(values[abi.DeviceAttribute.XDP_RX_METADATA_FEATURES]),
        xsk=abi.XskFeature(values[abi.DeviceAttribute.XSK_FEATURES]),
    )


@dataclass(frozen=True, slots=True)
class PagePool:
    """A pool of pages of a device: those that are not with the page allocator, in use or kept for the next packet."""

    id: int
    ifindex: int
    pages: int
    bytes: int


def page_pools() -> list[PagePool] | None:
    """The page pools of the devices in the calling thread's namespace; None before Linux 6.8.

    Only pools that their drivers have tied to a device are listed: those of veth are not (6.18).

    Raises:
        RefusedError: the kernel refused for another reason.
    """
    with Netlink(nl.NETLINK_GENERIC) as netlink:
        family = netlink.family(abi.FAMILY)
        if family is None:
            return None
        try:
            bodies = netlink.request(
                family, nl.GENERIC_HEADER.pack(abi.NetdevCommand.PAGE_POOL_GET, 1, 0), nl.NLM_F_DUMP
            )
        except NetlinkError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return None
            raise interfaces.refusal("the page pools cannot be read", error) from error
    found = []
    for body in bodies:
        parts = attributes(body, nl.GENERIC_HEADER.size)
        numbers = {kind: int.from_bytes(parts.get(kind, b""), sys.byteorder) for kind in abi.PagePoolAttribute}
        found.append(
            PagePool(
                id=numbers[abi.PagePoolAttribute.ID],
                ifindex=numbers[abi.PagePoolAttribute.IFINDEX],
                pages=numbers[abi.PagePoolAttribute.INFLIGHT],
                bytes=numbers[abi.PagePoolAttribute.INFLIGHT_MEM],
            )
        )
    return found
