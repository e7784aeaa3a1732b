"""Route and generic netlink as the network set-up speaks it: message kinds, flags, attributes, fixed headers.

From linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/veth.h and linux/genetlink.h.
"""

from __future__ import annotations

import struct
from enum import IntFlag

NETLINK_ROUTE = 0
NETLINK_GENERIC = 16

SOL_NETLINK = 270
NETLINK_CAP_ACK = 10  # an acknowledgement does not repeat the request (4.3)
NETLINK_EXT_ACK = 11  # an acknowledgement carries the kernel's own words (4.12)
NETLINK_GET_STRICT_CHK = 12  # a dump obeys the filter in its request (4.20)

NLMSG_ERROR = 2
NLMSG_DONE = 3

NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_DUMP = 0x300
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_ACK_TLVS = 0x200  # in an acknowledgement: attributes follow

NLMSGERR_ATTR_MSG = 1

NLA_F_NESTED = 0x8000
NLA_TYPE_MASK = 0x3FFF

MESSAGE_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
ATTRIBUTE_HEADER = struct.Struct("=HH")  # nlattr: length, type
LINK_HEADER = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
ADDRESS_HEADER = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, index
ROUTE_HEADER = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst, src, tos, table, protocol, scope, type, flags
GENERIC_HEADER = struct.Struct("=BBH")  # genlmsghdr: command, version, reserved

RTM_NEWLINK = 16
RTM_DELLINK = 17
RTM_GETLINK = 18
RTM_NEWADDR = 20
RTM_DELADDR = 21
RTM_GETADDR = 22
RTM_NEWROUTE = 24
RTM_DELROUTE = 25
RTM_GETROUTE = 26

IFLA_ADDRESS = 1
IFLA_IFNAME = 3
IFLA_MTU = 4
IFLA_LINKINFO = 18
IFLA_NET_NS_FD = 28
IFLA_PROMISCUITY = 30
IFLA_NUM_TX_QUEUES = 31
IFLA_NUM_RX_QUEUES = 32
IFLA_CARRIER = 33
IFLA_MAX_MTU = 51  # 4.19
IFLA_INFO_KIND = 1
IFLA_INFO_DATA = 2
VETH_INFO_PEER = 1

IFA_ADDRESS = 1
IFA_LOCAL = 2
IFA_FLAGS = 8
IFA_F_NODAD = 0x02

RTA_DST = 1
RTA_OIF = 4
RTA_GATEWAY = 5
RTA_PRIORITY = 6
RT_TABLE_MAIN = 254
RTPROT_STATIC = 4
RT_SCOPE_UNIVERSE = 0
RT_SCOPE_LINK = 253
RTN_UNICAST = 1

GENL_ID_CTRL = 16
CTRL_CMD_GETFAMILY = 3
CTRL_ATTR_FAMILY_ID = 1
CTRL_ATTR_FAMILY_NAME = 2


class LinkFlag(IntFlag):
    """Flags of an interface (linux/if.h, netdevice(7))."""

    UP = 0x1
    LOOPBACK = 0x8
    RUNNING = 0x40
    PROMISCUOUS = 0x100
