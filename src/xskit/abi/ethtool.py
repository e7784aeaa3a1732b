"""The ethtool ioctl: commands and layouts, from linux/ethtool.h and linux/sockios.h."""

from __future__ import annotations

import struct

SIOCGIFNAME = 0x8910
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
SIOCGIFMTU = 0x8921
SIOCSIFMTU = 0x8922
SIOCGIFHWADDR = 0x8927
SIOCGIFINDEX = 0x8933
SIOCETHTOOL = 0x8946

ETHTOOL_GDRVINFO = 0x03
ETHTOOL_GLINK = 0x0A
ETHTOOL_GRINGPARAM = 0x10
ETHTOOL_SRINGPARAM = 0x11
ETHTOOL_GSTRINGS = 0x1B
ETHTOOL_GRXCLSRLCNT = 0x2E
ETHTOOL_GRXCLSRULE = 0x2F
ETHTOOL_GRXCLSRLALL = 0x30
ETHTOOL_SRXCLSRLDEL = 0x31
ETHTOOL_SRXCLSRLINS = 0x32
ETHTOOL_GSSET_INFO = 0x37
ETHTOOL_GFEATURES = 0x3A
ETHTOOL_SFEATURES = 0x3B
ETHTOOL_GCHANNELS = 0x3C
ETHTOOL_SCHANNELS = 0x3D

ETH_SS_FEATURES = 4
ETH_GSTRING_LEN = 32

INTERFACE_REQUEST = struct.Struct("=16sQ16x")  # ifreq, with a pointer
LINK = struct.Struct("=II")  # ethtool_value: command, carrier
DRIVER_INFO = struct.Struct("=I32s32s32s32s32s12xIIIII")  # ethtool_drvinfo
SET_INFO = struct.Struct("=IIQI")  # ethtool_sset_info for one set
STRINGS_HEADER = struct.Struct("=III")  # ethtool_gstrings: command, set, length
FEATURES_HEADER = struct.Struct("=II")  # ethtool_gfeatures, ethtool_sfeatures: command, number of blocks
GET_BLOCK = struct.Struct("=IIII")  # available, requested, active, never changed
SET_BLOCK = struct.Struct("=II")  # valid, requested
CHANNELS = struct.Struct("=9I")  # ethtool_channels: command, max and count of rx, tx, other, combined
RINGS = struct.Struct("=9I")  # ethtool_ringparam: command, max and used of rx, rx mini, rx jumbo, tx

ETHER_FLOW = 0x12
FLOW = struct.Struct("=II8x I52s20s52s20s4x Q I4x I4x".replace(" ", ""))
"""ethtool_rxnfc: command, (flow type), [data]; ethtool_rx_flow_spec: flow type, header, its extension, mask, its
extension, ring cookie, location; count of rules."""
FLOW_LOCATIONS_OFFSET = 188  # rule_locs, one u32 a rule: the answer to GRXCLSRLALL
FLOW_ETHER = struct.Struct("=6s6s2s")  # ethhdr: destination, source, type in network order
RX_CLS_LOC_ANY = 0xFFFFFFFF  # instead of a location: the driver chooses, where it can
