"""What becomes of multi-buffer packets that a native program passes to the stack, or redirects: every byte compared.

far 0 --> near 0 [XDP_PASS] --> UDP socket
far 0 --> near 0 [XDP_REDIRECT] --> near 1 --> far 1, AF_XDP
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from xskit.abi.bpf import Helper, XdpAction
from xskit.bench.bed import Bed, Place
from xskit.bench.packet import DESTINATION, FCS_BYTES, UDP_PORT
from xskit.bench.settings import Case
from xskit.bpf.asm import R1, R2, Assembler
from xskit.bpf.attach import XdpMode, attach
from xskit.bpf.program import Program, ProgramSpec
from xskit.errors import XskitError
from xskit.netconf.changes import SetAddress
from xskit.netconf.interfaces import look
from xskit.netconf.journal import Journal
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

__all__ = ["Passage", "passed_and_redirected"]

BURST = 8
FRAMES = 1024
HEADERS_BYTES = 14 + 20 + 8
PATIENCE_S = 10.0


@dataclass(frozen=True)
class Passage:
    """How many packets went in, came out, and were the same."""

    action: str
    sent: int
    arrived: int
    whole: int
    remark: str = ""


def passed_and_redirected(packet_bytes: int, count: int) -> list[Passage]:
    """Send so many packets through either action."""
    case = Case(
        "forward", xdp="native", packet_size=packet_bytes + FCS_BYTES, frame_size=4096, frames=FRAMES, multi_buffer=True
    )
    found = []
    with Bed() as bed, Journal.open() as journal:
        place = bed.place(case)
        journal.apply(SetAddress(place.near[0], f"{DESTINATION}/24", namespace=place.namespace))
        for name, way in (("XDP_PASS", _pass), ("XDP_REDIRECT", _redirect)):
            try:
                with place.inside(), ExitStack() as stack:
                    found.append(way(place, case, count, stack))
            except XskitError as error:
                found.append(Passage(name, count, 0, 0, error.cause))
    return found


def _sender(place: Place, stack: ExitStack) -> Socket:
    umem = stack.enter_context(Umem(FRAMES, 4096))
    return stack.enter_context(Socket(place.far[0], 0, umem=umem, rx=0, program=None, multi_buffer=True))


def _attach(code: Assembler, name: str, interface: str, stack: ExitStack) -> None:
    program = stack.enter_context(Program.load(ProgramSpec(name, code.assemble(), frags=True)))
    stack.enter_context(attach(program, look(interface).index, XdpMode.NATIVE))


def _pass(place: Place, case: Case, count: int, stack: ExitStack) -> Passage:
    packet = bytearray(case.packet.build())
    packet[:6] = bytes.fromhex(look(place.near[0]).mac.replace(":", ""))
    _attach(Assembler().returns(XdpAction.PASS), "xk_pass", place.near[0], stack)
    receiver = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    receiver.bind((DESTINATION, UDP_PORT))
    receiver.settimeout(PATIENCE_S)
    sender = _sender(place, stack)
    arrived = whole = 0
    for burst in _bursts(count):
        sender.send([packet] * burst)
        sender.flush()
        for _ in range(burst):
            try:
                data = receiver.recv(65536)
            except TimeoutError:
                break
            arrived += 1
            whole += data == packet[HEADERS_BYTES:]
    return Passage("XDP_PASS", count, arrived, whole, "to a UDP socket")


def _redirect(place: Place, case: Case, count: int, stack: ExitStack) -> Passage:
    packet = case.packet.build()
    code = Assembler().mov(R1, look(place.near[1]).index).mov(R2, 0)
    _attach(code.call(Helper.REDIRECT).exit(), "xk_redirect_to", place.near[0], stack)
    umem = stack.enter_context(Umem(FRAMES, 4096))
    receiver = stack.enter_context(Socket(place.far[1], 0, umem=umem, tx=0, mode="native"))
    sender = _sender(place, stack)
    arrived = whole = 0
    for burst in _bursts(count):
        sender.send([packet] * burst)
        sender.flush()
        deadline, missing = time.monotonic() + PATIENCE_S, burst
        while missing > 0 and time.monotonic() < deadline:
            for came in receiver.receive(timeout=0.1):
                missing -= 1
                arrived += 1
                whole += bytes(came) == packet
    return Passage("XDP_REDIRECT", count, arrived, whole, "to another veth, read by AF_XDP")


def _bursts(count: int) -> Sequence[int]:
    return [min(BURST, count - first) for first in range(0, count, BURST)]
