"""The program that moves a packet's outer VLAN tag from the packet to a place beside it (skb->vlan_tci).

There the tag does not count against the MTU of a veth's far end (__is_skb_forwardable), just like a tag that the stack
adds. AF_XDP cannot send such a packet; a packet socket with this program can.
"""

from __future__ import annotations

from typing import Final

from xskit.abi.bpf import AttachType, Helper, ProgramType, SkBuff, TcxAction
from xskit.bpf.asm import R0, R1, R2, R3, R4, R6, R10, U16, U32, Assembler
from xskit.bpf.program import ProgramSpec

__all__ = ["OUTER_TAG_MARK", "outer_tag_program"]

OUTER_TAG_MARK: Final = 0x786B7667
"""SO_MARK of the sockets whose packets the program changes."""

_ETHER_TYPE = 12


def outer_tag_program() -> ProgramSpec:
    """For `attach_tcx_egress`: packets of other senders pass unchanged; the mark is cleared."""
    a = Assembler()
    a.mov(R6, R1)
    a.load(R2, R6, SkBuff.MARK, U32)
    a.jump_if(R2, "!=", OUTER_TAG_MARK, "next")
    a.store(R6, SkBuff.MARK, 0, U32)
    a.mov(R2, _ETHER_TYPE)
    a.mov(R3, R10)
    a.alu(R3, "+=", -4)
    a.mov(R4, 4)
    a.call(Helper.SKB_LOAD_BYTES)
    a.jump_if(R0, "!=", 0, "next")
    a.mov(R1, R6)
    a.call(Helper.SKB_VLAN_POP)  # moves the inner tag, if there is one, beside the packet
    a.jump_if(R0, "!=", 0, "next")
    a.mov(R1, R6)
    a.load(R2, R10, -4, U16)
    a.load(R3, R10, -2, U16)
    a.big_endian(R3, 16)
    a.call(Helper.SKB_VLAN_PUSH)  # and that one back into the packet
    a.label("next")
    a.returns(TcxAction.NEXT)
    return ProgramSpec("xk_outer_tag", a.assemble(), ProgramType.SCHED_CLS, AttachType.TCX_EGRESS)
