"""Part `owd`: one-way delay between the hosts' own stamps, against the delay that was asked for.

The sender's stamp is written by a program where packets leave its stack (tcx egress), the receiver's by an XDP program
on its interface; both read the clock that the engine reads. In between lie a veth, the emulator, and another veth.
"""

from __future__ import annotations

import socket
import struct
import time

import numpy as np

from clockloop import busy
from measure import Result, other_cpu, pinned
from xskit.bpf.attach import XdpMode, attach, attach_tcx_egress
from xskit.bpf.program import Program
from xskit.bpf.stamps import STAMP_BYTES, arrival_stamp_program, egress_stamp_program
from xskit.lab.lab import Lab
from xskit.netconf.interfaces import look

OWD_NS = 20_000_000
LIMIT_NS = 6_000
PORT = 7474
PAYLOAD_BYTES = 64
INTERVAL_NS = 100_000
SO_NO_CHECK, SO_RCVBUFFORCE = 11, 33
RECEIVE_BYTES = 64 << 20


def measure(cpu: int, packets: int) -> np.ndarray:
    """The owd of each packet that came, in ns."""
    with Lab(ip=4, spin=True, cpus=(cpu,)) as lab:
        a, b = lab.host("a"), lab.host("b")
        lab.link(a, b, owd=f"{OWD_NS}ns")
        with (
            Program.load(egress_stamp_program(PORT, 0)) as leaving,
            Program.load(arrival_stamp_program(PORT, STAMP_BYTES, frags=True)) as coming,
        ):
            with a.inside():
                left = attach_tcx_egress(leaving, look(a.interfaces[0]).index)
                sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with b.inside():
                came = attach(coming, look(b.interfaces[0]).index, XdpMode.NATIVE)
                receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with left, came, sender, receiver, pinned(other_cpu(cpu)):
                sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
                receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
                receiver.bind(("0.0.0.0", PORT))
                receiver.settimeout(2)
                return _exchange(sender, receiver, b.address, packets)


def _exchange(sender: socket.socket, receiver: socket.socket, address: str, packets: int) -> np.ndarray:
    sender.connect((address, PORT))
    sender.send(bytes(PAYLOAD_BYTES))  # resolves the address
    receiver.recv(PAYLOAD_BYTES)
    payload, due_ns = bytes(PAYLOAD_BYTES), time.monotonic_ns()
    for _ in range(packets):
        while time.monotonic_ns() < due_ns:  # a sender that slept would come back to cold caches
            pass
        sender.send(payload)
        due_ns += INTERVAL_NS
    return np.array([_delay(receiver.recv(PAYLOAD_BYTES)) for _ in range(packets)])


def _delay(payload: bytes) -> int:
    left_ns, came_ns = struct.unpack_from("<QQ", payload)
    return int(came_ns - left_ns)


def run(cpu: int, quick: bool) -> list[Result]:
    """The line of the table."""
    disturbed = busy(cpu)
    delays = measure(cpu, 1000 if quick else 10_000)
    disturbed = busy(cpu) or disturbed
    over = {name: float(np.percentile(delays, p)) - OWD_NS for name, p in (("p1", 1), ("p50", 50), ("p99", 99))}
    return [
        Result(
            "owd",
            "host to host, asked 20 ms, p50",
            f"{over['p50'] / 1000:+.2f} us",
            f"p1 {over['p1'] / 1000:+.2f}, p99 {over['p99'] / 1000:+.2f} us",
            "within 6 us",
            None if disturbed and abs(over["p50"]) > LIMIT_NS else abs(over["p50"]) <= LIMIT_NS,
            over | {"packets": len(delays)},
        )
    ]
