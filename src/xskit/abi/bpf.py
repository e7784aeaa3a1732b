"""bpf(2): what linux/bpf.h declares, as far as xskit uses it.

Values are those of Linux 6.18.  The kernel's own names are these with BPF_, BPF_MAP_TYPE_, BPF_PROG_TYPE_, XDP_, TCX_
or BPF_FUNC_ before them.
"""

from __future__ import annotations

import os
from enum import IntEnum, IntFlag
from typing import Final

__all__ = [
    "NAME_BYTES",
    "SYSCALL_NUMBER",
    "AttachType",
    "BpfCommand",
    "Helper",
    "LinkType",
    "MapFlag",
    "MapType",
    "ProgramFlag",
    "ProgramType",
    "SkBuff",
    "TcxAction",
    "TestRunFlag",
    "UpdateFlag",
    "XdpAction",
    "XdpMd",
]

_SYSCALL_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280, "ppc64le": 361}

SYSCALL_NUMBER: Final = _SYSCALL_NUMBERS.get(os.uname().machine)
"""__NR_bpf of this machine (asm/unistd.h, asm-generic/unistd.h), None on a machine that xskit does not know."""

NAME_BYTES: Final = 16
"""BPF_OBJ_NAME_LEN: names of programs and maps, with the zero that ends them."""


class BpfCommand(IntEnum):
    """First argument of bpf(2)."""

    MAP_CREATE = 0
    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    MAP_GET_NEXT_KEY = 4
    PROG_LOAD = 5
    PROG_TEST_RUN = 10  # 4.12
    PROG_GET_NEXT_ID = 11
    PROG_GET_FD_BY_ID = 13  # 4.13
    OBJ_GET_INFO_BY_FD = 15  # 4.13
    RAW_TRACEPOINT_OPEN = 17  # 4.17
    LINK_CREATE = 28  # 5.7; for XDP 5.9, for tcx 6.6
    LINK_GET_FD_BY_ID = 30  # 5.8
    LINK_GET_NEXT_ID = 31  # 5.8


class MapType(IntEnum):
    """bpf_map_type."""

    HASH = 1
    ARRAY = 2
    PERCPU_HASH = 5  # 4.6
    PERCPU_ARRAY = 6  # 4.6
    LPM_TRIE = 11  # 4.11
    XSKMAP = 17  # 4.18

    @property
    def per_cpu(self) -> bool:
        """Whether a value has one copy for each possible CPU."""
        return self in (MapType.PERCPU_HASH, MapType.PERCPU_ARRAY)


class MapFlag(IntFlag):
    """map_flags of MAP_CREATE."""

    NO_PREALLOC = 1 << 0  # obligatory for an LPM_TRIE


class UpdateFlag(IntEnum):
    """flags of MAP_UPDATE_ELEM."""

    ANY = 0
    NOEXIST = 1
    EXIST = 2


class ProgramType(IntEnum):
    """bpf_prog_type."""

    SCHED_CLS = 3  # 4.1
    XDP = 6  # 4.8
    RAW_TRACEPOINT = 17  # 4.17


class ProgramFlag(IntFlag):
    """prog_flags of PROG_LOAD."""

    XDP_HAS_FRAGS = 1 << 5  # 5.18: the program can take multi-buffer packets


class TestRunFlag(IntFlag):
    """flags of PROG_TEST_RUN."""

    XDP_LIVE_FRAMES = 1 << 1  # 5.18: real packets, sent and redirected as the program says


class AttachType(IntEnum):
    """bpf_attach_type."""

    NONE = 0
    XDP = 37  # 5.9
    TCX_EGRESS = 47  # 6.6


class LinkType(IntEnum):
    """bpf_link_type, as far as it is shown to the user."""

    XDP = 6  # 5.9
    TCX = 11  # 6.6


class XdpAction(IntEnum):
    """What an XDP program returns."""

    ABORTED = 0
    DROP = 1
    PASS = 2
    TX = 3
    REDIRECT = 4


class TcxAction(IntEnum):
    """What a tcx program returns (6.6)."""

    NEXT = -1
    PASS = 0
    DROP = 2
    REDIRECT = 7


class Helper(IntEnum):
    """Numbers of the functions a program may call."""

    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    KTIME_GET_NS = 5  # CLOCK_MONOTONIC
    SKB_STORE_BYTES = 9
    SKB_VLAN_PUSH = 18
    SKB_VLAN_POP = 19
    REDIRECT = 23  # XDP: 4.14
    SKB_LOAD_BYTES = 26
    REDIRECT_MAP = 51  # 4.14; the action for a missing entry in the low bits of its flags 5.3
    XDP_ADJUST_META = 54  # 4.15


class XdpMd(IntEnum):
    """Offsets in struct xdp_md, the context of an XDP program; every field is a u32."""

    DATA = 0
    DATA_END = 4
    DATA_META = 8  # 4.15
    INGRESS_IFINDEX = 12  # 4.16
    RX_QUEUE_INDEX = 16  # 4.16
    EGRESS_IFINDEX = 20  # 5.8


class SkBuff(IntEnum):
    """Offsets in struct __sk_buff, the context of a tc program; every field is a u32."""

    LEN = 0
    MARK = 8
    DATA = 76
    DATA_END = 80
