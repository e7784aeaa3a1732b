"""Two programs that measure one-way delay: packets carry the time they left and the time they came.

```
  UDP payload:  ... | u64 left_ns | ... | u64 came_ns | ...      both bpf_ktime_get_ns(), CLOCK_MONOTONIC, little-endian
                      ^ egress_stamp       ^ arrival_stamp
```

On one machine both ends read the same clock, so the difference is the owd between the two hosts' interfaces, whatever
the link between them is made of.  Only IPv4 without options, over Ethernet without VLAN tag, UDP to one port, and not
a later fragment.  The UDP checksum is left as it is: send with SO_NO_CHECK, so that it is 0, "none" (RFC 768).
"""

from __future__ import annotations

from xskit.abi.bpf import AttachType, Helper, ProgramType, SkBuff, TcxAction, XdpAction, XdpMd
from xskit.bpf.asm import R0, R1, R2, R3, R4, R5, R6, R7, R8, R10, U8, U16, U32, U64, Assembler
from xskit.bpf.program import ProgramSpec
from xskit.errors import UsageError

__all__ = ["PAYLOAD_OFFSET_BYTES", "STAMP_BYTES", "arrival_stamp_program", "egress_stamp_program"]

PAYLOAD_OFFSET_BYTES = 14 + 20 + 8
"""Where the UDP payload begins: behind Ethernet, IPv4 and UDP headers."""

STAMP_BYTES = 8

_ETHERTYPE, _VERSION, _FRAGMENT, _PROTOCOL, _DESTINATION_PORT = 12, 14, 20, 23, 36
_IPV4, _NO_OPTIONS, _FRAGMENT_OFFSET, _UDP = 0x0800, 0x45, 0x1FFF, 17


def egress_stamp_program(port: int, payload_offset_bytes: int) -> ProgramSpec:
    """For `attach_tcx_egress`: writes the time into packets to UDP `port`, as they leave the stack.

    Packets too short for the stamp, and all others, go on unchanged.
    """
    at = PAYLOAD_OFFSET_BYTES + _checked(port, payload_offset_bytes)
    a = Assembler()
    a.mov(R6, R1)
    a.load(R7, R6, SkBuff.DATA, U32)
    a.load(R8, R6, SkBuff.DATA_END, U32)
    _require_udp_to(a, port, PAYLOAD_OFFSET_BYTES)
    a.load(R2, R6, SkBuff.LEN, U32)
    a.jump_if(R2, "<", at + STAMP_BYTES, "next")
    a.call(Helper.KTIME_GET_NS)
    a.store(R10, -8, R0, U64)
    a.mov(R1, R6)
    a.mov(R2, at)
    a.mov(R3, R10)
    a.alu(R3, "+=", -8)
    a.mov(R4, STAMP_BYTES)
    a.mov(R5, 0)
    a.call(Helper.SKB_STORE_BYTES)  # unshares the packet first: direct writes would need that too
    a.label("next")
    a.returns(TcxAction.NEXT)
    return ProgramSpec("xk_egress_stamp", a.assemble(), ProgramType.SCHED_CLS, AttachType.TCX_EGRESS)


def arrival_stamp_program(port: int, payload_offset_bytes: int, *, frags: bool = False) -> ProgramSpec:
    """An XDP program: writes the time into packets to UDP `port`, as they arrive, and passes everything to the stack.

    The stamp must lie in the packet's first buffer; a shorter one goes on unchanged.
    """
    at = PAYLOAD_OFFSET_BYTES + _checked(port, payload_offset_bytes)
    a = Assembler()
    a.mov(R6, R1)
    a.load(R7, R6, XdpMd.DATA, U32)
    a.load(R8, R6, XdpMd.DATA_END, U32)
    _require_udp_to(a, port, at + STAMP_BYTES)
    a.call(Helper.KTIME_GET_NS)
    a.store(R7, at, R0, U64)
    a.label("next")
    a.returns(XdpAction.PASS)
    return ProgramSpec("xk_arrive_stamp", a.assemble(), frags=frags)


def _require_udp_to(a: Assembler, port: int, length_bytes: int) -> None:
    """Go to label `next` unless R7 (data) up to R8 (data_end) holds `length_bytes` of UDP over IPv4 to this port."""
    a.mov(R2, R7)
    a.alu(R2, "+=", length_bytes)
    a.jump_if(R2, ">", R8, "next")
    for offset, size, mask, value in (
        (_ETHERTYPE, U16, None, _IPV4),
        (_VERSION, U8, None, _NO_OPTIONS),
        (_PROTOCOL, U8, None, _UDP),
        (_FRAGMENT, U16, _FRAGMENT_OFFSET, 0),
        (_DESTINATION_PORT, U16, None, port),
    ):
        a.load(R2, R7, offset, size)
        if size is U16:
            a.big_endian(R2, 16)
        if mask is not None:
            a.alu(R2, "&=", mask)
        a.jump_if(R2, "!=", value, "next")


def _checked(port: int, payload_offset_bytes: int) -> int:
    if not 0 < port < 1 << 16:
        raise UsageError(f"UDP port {port} is not between 1 and 65535")
    if not 0 <= payload_offset_bytes <= 1 << 14:
        raise UsageError(f"payload offset {payload_offset_bytes} is not between 0 and {1 << 14} bytes")
    return payload_offset_bytes
