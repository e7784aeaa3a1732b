"""The parts of a port that the engine gets: the ring ends and sockets of its queues, and a packet socket.

The packet socket sends with the outer VLAN tag beside the packet, as a VLAN interface over the port would. There the
tag does not count against the MTU of a veth's far end.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

from xskit.bpf.attach import attach_tcx_egress
from xskit.bpf.outertag import OUTER_TAG_MARK, outer_tag_program
from xskit.bpf.probe import BpfFeature, available
from xskit.bpf.program import Program
from xskit.emulator.ports import PortSpec
from xskit.engine.live import ReceiveEnd, TransmitEnd
from xskit.netconf import interfaces
from xskit.netconf.namespaces import inside
from xskit.xsk.port import Port

__all__ = ["receive_end", "tagging_socket", "transmit_end"]


def receive_end(queue: Any, port: Port) -> ReceiveEnd:
    """The rings and the socket of a queue that packets arrive by."""
    socket = queue.receiver
    return ReceiveEnd(rx=socket.rx_ring, fill=socket.fill_ring, fd=socket.fd, zero_copy=port.zero_copy)


def transmit_end(queue: Any, port: Port, tagged_fd: int) -> TransmitEnd:
    """The rings and sockets of a queue that packets leave by; `tagged_fd` comes from `tagging_socket`."""
    return TransmitEnd(
        tx=queue.transmitter.tx_ring,
        completion=queue.receiver.completion_ring,
        fd=queue.transmitter.fd,
        zero_copy=port.zero_copy,
        told_late=queue.transmitter.told_late,
        tagged_fd=tagged_fd,
    )


def tagging_socket(stack: ExitStack, port: PortSpec) -> int:
    """The packet socket's descriptor, open until the stack is closed; -1 before Linux 6.6, which lacks tcx."""
    if not available(BpfFeature.TCX):
        return -1
    with inside(port.namespace):
        sender = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0))
        sender.bind((port.name, 0))
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, OUTER_TAG_MARK)
        program = stack.enter_context(Program.load(outer_tag_program()))
        stack.enter_context(attach_tcx_egress(program, interfaces.index(port.name)))
    return sender.fileno()
