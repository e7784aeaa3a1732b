"""Receive packets from one queue of an interface through an AF_XDP socket.

What the socket takes does not reach the kernel's own stack any more: use an interface that you can spare.

As root: .venv/bin/python examples/receive.py veth0 10
"""

import sys

import xskit

interface, wanted = sys.argv[1], int(sys.argv[2])

with xskit.Umem(frames=4096) as umem, xskit.Socket(interface, umem=umem) as sock:
    print(f"{sock!r}, {sock.xdp_mode}", flush=True)
    while wanted > 0:
        for packet in sock.receive(timeout=1.0, limit=wanted):  # views of the packet memory
            print(packet.length, bytes(packet[:14]).hex(" "), packet.arrived_ns)
            wanted -= 1
    print(sock.statistics())
