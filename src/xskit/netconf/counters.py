"""What an interface counts of the packets that it sends, by netlink (struct rtnl_link_stats64 in linux/if_link.h)."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from xskit.abi import netlink as nl
from xskit.closing import Closing
from xskit.netlink import Netlink, NetlinkError, attributes

__all__ = ["InterfaceCounters", "Sent"]


@dataclass(frozen=True, slots=True)
class Sent:
    """What an interface counts, for all senders. `dropped` includes packets that its driver refused, as veth does."""

    packets: int
    errors: int
    dropped: int

    def __sub__(self, earlier: Sent) -> Sent:
        return Sent(self.packets - earlier.packets, self.errors - earlier.errors, self.dropped - earlier.dropped)

    @property
    def all(self) -> int:
        """Packets that are in one of the three."""
        return self.packets + self.errors + self.dropped


class InterfaceCounters(Closing):
    """Reads them from any thread, in the namespace in which this object was made.

    Args:
        number: the interface's index, by which it is found under any name.
    """

    def __init__(self, number: int) -> None:
        self._request = nl.LINK_HEADER.pack(0, 0, number, 0, 0)
        self._lock = threading.Lock()
        self._netlink = Netlink()

    def read(self) -> Sent | None:
        """The counters now; None when the interface is gone."""
        try:
            with self._lock:
                body = self._netlink.request(nl.RTM_GETLINK, self._request)[0]
        except NetlinkError:
            return None
        found = attributes(body, nl.LINK_HEADER.size)
        _, packets, _, _, _, errors, _, dropped = nl.LINK_STATISTICS.unpack_from(found[nl.IFLA_STATS64])
        return Sent(packets, errors, dropped)

    def close(self) -> None:
        """Give the socket back."""
        self._netlink.close()
