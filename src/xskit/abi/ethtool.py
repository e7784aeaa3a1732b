"""The ethtool ioctl: commands and layouts, from linux/ethtool.h and linux/sockios.h."""

from __future__ import annotations

import struct

SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
SIOCGIFMTU = 0x8921
SIOCSIFMTU = 0x8922
SIOCGIFHWADDR = 0x8927
SIOCETHTOOL = 0x8946

ETHTOOL_GDRVINFO = 0x03
ETHTOOL_GLINK = 0x0A
ETHTOOL_GRINGPARAM = 0x10
ETHTOOL_GSTRINGS = 0x1B
ETHTOOL_GSSET_INFO = 0x37
ETHTOOL_GFEATURES = 0x3A
ETHTOOL_SFEATURES = 0x3B
ETHTOOL_GCHANNELS = 0x3C

ETH_SS_FEATURES = 4
ETH_GSTRING_LEN = 32

ETHTOOL_F_UNSUPPORTED = 1  # result of SFEATURES: some of the bits cannot be changed
ETHTOOL_F_WISH = 2  # result of SFEATURES: noted, but not all of it is active

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
