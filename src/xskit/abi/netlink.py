"""Netlink as xskit speaks it: message kinds, flags, attributes, fixed headers, and how XDP programs are attached.

From linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/if_arp.h, linux/if_tunnel.h,
linux/neighbour.h, linux/veth.h, linux/net_namespace.h, linux/genetlink.h and linux/nl80211.h. `xskit.netlink` speaks
it, for bpf and netconf; `netdev.py` has the words of the netdev family.
"""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag

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
NLM_F_DUMP_INTR = 0x10  # in an answer: what is dumped has changed meanwhile (3.1)
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_ACK_TLVS = 0x200  # in an acknowledgement: attributes follow

NLMSGERR_ATTR_MSG = 1

NLA_F_NESTED = 0x8000
NLA_TYPE_MASK = 0x3FFF  # the type without NLA_F_NESTED and NLA_F_NET_BYTEORDER

MESSAGE_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
ATTRIBUTE_HEADER = struct.Struct("=HH")  # nlattr: length with this header, type; the next begins at a multiple of 4
LINK_HEADER = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
LINK_STATISTICS = struct.Struct("=8Q")  # its beginning: rx, tx of packets, of bytes, of errors, dropped
ADDRESS_HEADER = struct.Struct("=BBBBI")  # ifaddrmsg: family, prefix length, flags, scope, index
ROUTE_HEADER = struct.Struct("=BBBBBBBBI")  # rtmsg: family, dst, src, tos, table, protocol, scope, type, flags
NEIGHBOUR_HEADER = struct.Struct("=BxxxiHBB")  # ndmsg: family, index, state, flags, type
CACHE_INFO = struct.Struct("=IIII")  # ifa_cacheinfo: preferred and valid lifetime in seconds, two time stamps
NSID_HEADER = struct.Struct("=Bxxx")  # rtgenmsg: family
GENERIC_HEADER = struct.Struct("=BBH")  # genlmsghdr: command, version, reserved

RTM_NEWLINK = 16
RTM_DELLINK = 17
RTM_GETLINK = 18
RTM_SETLINK = 19
RTM_NEWADDR = 20
RTM_DELADDR = 21
RTM_GETADDR = 22
RTM_NEWROUTE = 24
RTM_DELROUTE = 25
RTM_GETROUTE = 26
RTM_NEWNEIGH = 28
RTM_DELNEIGH = 29
RTM_GETNEIGH = 30
RTM_GETNSID = 90

ARPHRD_ETHER = 1
ARPHRD_LOOPBACK = 772

IFLA_ADDRESS = 1
IFLA_IFNAME = 3
IFLA_MTU = 4
IFLA_LINK = 5
IFLA_MASTER = 10
IFLA_LINKINFO = 18
IFLA_STATS64 = 23  # struct rtnl_link_stats64
IFLA_NET_NS_FD = 28
IFLA_PROMISCUITY = 30
IFLA_NUM_TX_QUEUES = 31  # made room for; how many are in use, only ethtool tells
IFLA_NUM_RX_QUEUES = 32
IFLA_CARRIER = 33
IFLA_LINK_NETNSID = 37
IFLA_XDP = 43
IFLA_MAX_MTU = 51  # 4.19
IFLA_INFO_KIND = 1
IFLA_INFO_DATA = 2
VETH_INFO_PEER = 1
IFLA_MACVLAN_MODE = 1
IFLA_IPVLAN_MODE = 1
IFLA_BOND_MODE = 1
IFLA_NETKIT_MODE = 5
IFLA_GENEVE_COLLECT_METADATA = 6
IFLA_GRE_COLLECT_METADATA = 18
IFLA_VXLAN_COLLECT_METADATA = 25

IFA_ADDRESS = 1
IFA_LOCAL = 2
IFA_CACHEINFO = 6
IFA_FLAGS = 8
IFA_F_NODAD = 0x02
FOREVER_S = 0xFFFF_FFFF  # INFINITY_LIFE_TIME (net/if_inet6.h)

NDA_DST = 1
NDA_LLADDR = 2
NUD_PERMANENT = 0x80

RTA_DST = 1
RTA_OIF = 4
RTA_GATEWAY = 5
RTA_PRIORITY = 6
RTA_PREFSRC = 7
RT_TABLE_MAIN = 254
RTPROT_STATIC = 4
RT_SCOPE_UNIVERSE = 0
RT_SCOPE_LINK = 253
RTN_UNICAST = 1

NETNSA_NSID = 1
NETNSA_FD = 3

GENL_ID_CTRL = 16
CTRL_CMD_GETFAMILY = 3
CTRL_ATTR_FAMILY_ID = 1
CTRL_ATTR_FAMILY_NAME = 2

NL80211_FAMILY = "nl80211"
NL80211_CMD_GET_INTERFACE = 5
NL80211_ATTR_IFINDEX = 3
NL80211_ATTR_IFTYPE = 5
NL80211_ATTR_4ADDR = 83


class LinkFlag(IntFlag):
    """Flags of an interface (linux/if.h, netdevice(7))."""

    UP = 0x1
    LOOPBACK = 0x8
    RUNNING = 0x40
    NOARP = 0x80
    PROMISCUOUS = 0x100


class WirelessType(IntEnum):
    """NL80211_IFTYPE_*."""

    ADHOC = 1
    STATION = 2
    AP = 3
    AP_VLAN = 4
    WDS = 5
    MONITOR = 6
    MESH_POINT = 7
    P2P_CLIENT = 8
    P2P_GO = 9
    P2P_DEVICE = 10
    OCB = 11
    NAN = 12


class XdpAttribute(IntEnum):
    """IFLA_XDP_*, inside IFLA_XDP."""

    FD = 1
    ATTACHED = 2
    FLAGS = 3
    PROG_ID = 4
    DRV_PROG_ID = 5
    SKB_PROG_ID = 6
    HW_PROG_ID = 7
    EXPECTED_FD = 8  # 5.7


class XdpAttachFlag(IntFlag):
    """XDP_FLAGS_*: how to attach, for netlink and, the modes alone, for BPF_LINK_CREATE."""

    UPDATE_IF_NOEXIST = 1 << 0
    SKB_MODE = 1 << 1
    DRV_MODE = 1 << 2
    HW_MODE = 1 << 3
    REPLACE = 1 << 4  # 5.7: only if EXPECTED_FD is what is attached
