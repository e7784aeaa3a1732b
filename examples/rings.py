"""Packets received by the rings themselves: entries as NumPy arrays, frames in the program's own hands.

As root: .venv/bin/python examples/rings.py veth0 [COUNT]
"""

import sys

import xskit

interface, wanted = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10

with xskit.Umem(frames=4096) as umem, xskit.Socket(interface, umem=umem) as sock:
    print(f"{sock!r}, {sock.xdp_mode}", flush=True)
    while wanted > 0:
        entries = sock.rx.peek(min(wanted, 64))  # an array over the ring: address, length, options
        if not len(entries):
            sock.wait(timeout=1.0)
            continue
        addresses = entries["address"].copy()
        print(f"{len(entries)} packets, {entries['length'].sum()} bytes", flush=True)
        wanted -= sock.rx.release(len(entries))  # their frames are ours now
        while len(addresses):  # an array ends where the ring's memory ends
            places = sock.fill.reserve(len(addresses))
            places[:] = addresses[: len(places)]
            sock.fill.submit(len(places))  # and the kernel's again
            addresses = addresses[len(places) :]
