"""VLAN tags as a VLAN interface gives and takes them: beside the packet, where a device is to put them in.

The kernel that these tests run on may have no VLAN interfaces (CONFIG_VLAN_8021Q); a program at the egress of a host's
interface does what they do (`__vlan_hwaccel_put_tag`), and a packet socket tells what they would read.
"""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from enum import IntEnum

from xskit.abi.bpf import AttachType, ProgramType, TcxAction
from xskit.bpf.asm import R2, R3, Assembler
from xskit.bpf.attach import attach_tcx_egress
from xskit.bpf.program import Program, ProgramSpec

SOL_PACKET, PACKET_AUXDATA, ETH_P_ALL = 263, 8, 3
TESTING = 0x88B5  # EtherType for experiments (IEEE 802)


class _Helper(IntEnum):
    SKB_VLAN_PUSH = 18


def _pushing(vlan: int, kind: int) -> ProgramSpec:
    a = Assembler()
    a.mov(R2, socket.htons(kind))
    a.mov(R3, vlan)
    a.call(_Helper.SKB_VLAN_PUSH)
    a.returns(TcxAction.NEXT)
    return ProgramSpec("xk_vlan", a.assemble(), ProgramType.SCHED_CLS, AttachType.TCX_EGRESS)


def tagging(stack: ExitStack, interface: str, vlan: int, kind: int = 0x8100) -> None:
    """Whatever leaves by this interface of the calling thread's namespace gets a tag, until the stack is closed."""
    program = stack.enter_context(Program.load(_pushing(vlan, kind)))
    stack.enter_context(attach_tcx_egress(program, socket.if_nametoindex(interface)))


def packet_socket(stack: ExitStack, interface: str) -> socket.socket:
    """Everything that comes in by this interface of the calling thread's namespace."""
    end = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)))
    end.bind((interface, ETH_P_ALL))
    end.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    end.settimeout(30)
    return end


def send(end: socket.socket, number: int) -> None:
    """One broadcast with a number in it."""
    end.send(b"\xff" * 6 + b"\x02" + bytes(5) + struct.pack("!HI", TESTING, number) + bytes(50))


def tag_of_next(end: socket.socket) -> tuple[int, int]:
    """(number, VLAN) of the next packet of `send`; 0 where it has no tag, which the kernel has taken out by now."""
    while True:
        data, ancillary, _, _ = end.recvmsg(2000, 100)
        kind, number = struct.unpack_from("!HI", data, 12)
        if kind == TESTING:
            status, vlan = struct.unpack_from("=I12xH", ancillary[0][2])  # struct tpacket_auxdata
            return number, vlan if status & 0x10 else 0  # TP_STATUS_VLAN_VALID
