"""What a wireless interface is, by nl80211, generic netlink's family for wireless devices (linux/nl80211.h)."""

from __future__ import annotations

from dataclasses import dataclass

from xskit.abi import netlink as nl
from xskit.netlink import Netlink, NetlinkError, attributes, u32

__all__ = ["Wireless", "wireless"]


@dataclass(frozen=True, slots=True)
class Wireless:
    """The type of a wireless interface, and whether it sends frames with four addresses (iw: 4addr on)."""

    type: int
    four_addresses: bool

    @property
    def carries_others(self) -> bool:
        """Whether it carries frames of stations other than itself.

        A frame with three addresses has no room for them: the kernel refuses such an interface to a bridge
        (IFF_DONT_BRIDGE in net/wireless/core.c).
        """
        alone = (nl.WirelessType.STATION, nl.WirelessType.P2P_CLIENT, nl.WirelessType.ADHOC)
        return self.four_addresses or self.type not in alone


def wireless(index: int) -> Wireless | None:
    """What the interface with this index is, in the calling thread's namespace; None when it is not wireless."""
    with Netlink(nl.NETLINK_GENERIC) as netlink:
        family = netlink.family(nl.NL80211_FAMILY)
        if family is None:
            return None
        request = nl.GENERIC_HEADER.pack(nl.NL80211_CMD_GET_INTERFACE, 0, 0) + u32(nl.NL80211_ATTR_IFINDEX, index)
        try:
            (body,) = netlink.request(family, request)
        except NetlinkError:  # ENODEV: nothing that nl80211 knows
            return None
    found = attributes(body, nl.GENERIC_HEADER.size)
    return Wireless(
        type=int.from_bytes(found.get(nl.NL80211_ATTR_IFTYPE, b""), "little"),
        four_addresses=any(found.get(nl.NL80211_ATTR_4ADDR, b"")),
    )
