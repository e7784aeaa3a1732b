"""The few words of route netlink that attaching XDP needs: linux/netlink.h, rtnetlink.h, if_link.h.

Everything else xskit says over netlink is said by pyroute2, in netconf.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import Final

__all__ = [
    "ATTRIBUTE_HEADER",
    "IFINFOMSG",
    "NESTED",
    "NETLINK_ROUTE",
    "NLMSGHDR",
    "SOL_NETLINK",
    "TYPE_MASK",
    "ErrorAttribute",
    "LinkAttribute",
    "LinkInfoAttribute",
    "MessageFlag",
    "MessageType",
    "NetlinkOption",
    "XdpAttachFlag",
    "XdpAttached",
    "XdpAttribute",
]

NETLINK_ROUTE: Final = 0
SOL_NETLINK: Final = 270

NLMSGHDR: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""

IFINFOMSG: Final = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type, index, flags, change."""

ATTRIBUTE_HEADER: Final = struct.Struct("=HH")
"""struct nlattr: length with this header, type.  The next attribute begins at a multiple of 4."""

NESTED: Final = 1 << 15
"""NLA_F_NESTED."""

TYPE_MASK: Final = (1 << 14) - 1
"""NLA_TYPE_MASK: the type without NLA_F_NESTED and NLA_F_NET_BYTEORDER."""


class NetlinkOption(IntEnum):
    """Socket options of level SOL_NETLINK."""

    CAP_ACK = 10  # 4.3: an error does not repeat the whole request
    EXT_ACK = 11  # 4.12: an error carries the kernel's words
    GET_STRICT_CHK = 12  # 4.20


class MessageType(IntEnum):
    """nlmsghdr.nlmsg_type."""

    ERROR = 2
    NEWLINK = 16
    GETLINK = 18
    SETLINK = 19


class MessageFlag(IntFlag):
    """nlmsghdr.nlmsg_flags."""

    REQUEST = 0x1
    ACK = 0x4
    ACK_TLVS = 0x200  # in an error: ErrorAttribute follow


class ErrorAttribute(IntEnum):
    """NLMSGERR_ATTR_* (4.12)."""

    MSG = 1


class LinkAttribute(IntEnum):
    """IFLA_*."""

    IFNAME = 3
    MTU = 4
    LINK = 5
    LINKINFO = 18
    NUM_TX_QUEUES = 31  # made room for; how many are in use, only ethtool tells
    NUM_RX_QUEUES = 32
    LINK_NETNSID = 37
    XDP = 43


class LinkInfoAttribute(IntEnum):
    """IFLA_INFO_*, inside LINKINFO."""

    KIND = 1


class XdpAttribute(IntEnum):
    """IFLA_XDP_*, inside XDP."""

    FD = 1
    ATTACHED = 2
    FLAGS = 3
    PROG_ID = 4
    DRV_PROG_ID = 5
    SKB_PROG_ID = 6
    HW_PROG_ID = 7
    EXPECTED_FD = 8  # 5.7


class XdpAttached(IntEnum):
    """XDP_ATTACHED_*: the mode in which a program is attached."""

    NONE = 0
    DRV = 1
    SKB = 2
    HW = 3
    MULTI = 4


class XdpAttachFlag(IntFlag):
    """XDP_FLAGS_*: how to attach, for netlink and, the modes alone, for BPF_LINK_CREATE."""

    UPDATE_IF_NOEXIST = 1 << 0
    SKB_MODE = 1 << 1
    DRV_MODE = 1 << 2
    HW_MODE = 1 << 3
    REPLACE = 1 << 4  # 5.7: only if EXPECTED_FD is what is attached
