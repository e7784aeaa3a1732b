"""Send packets through an AF_XDP socket: Ethernet frames made here, to everybody behind the interface.

As root: .venv/bin/python examples/send.py veth1 10
"""

import sys

import xskit

interface, wanted = sys.argv[1], int(sys.argv[2])

BROADCAST, FROM = bytes.fromhex("ffffffffffff"), bytes.fromhex("020000000001")
EXPERIMENTAL = bytes.fromhex("88b5")  # IEEE 802 local experimental EtherType

packets = [BROADCAST + FROM + EXPERIMENTAL + f"packet {number}".encode().ljust(46) for number in range(wanted)]

with xskit.Umem(frames=4096) as umem, xskit.Socket(interface, umem=umem, rx=0) as sock:
    while packets:
        del packets[: sock.send(packets)]  # as many as there is room for
    sock.flush()  # everything is sent now, or was refused
    print(f"{wanted - sock.refused} packets sent, {sock.refused} refused by the kernel")
