"""Count what comes by one queue, batch by batch: an array has the facts of each packet, and none becomes an object.

What the socket takes does not reach the kernel's own stack any more: use an interface that you can spare.

As root: .venv/bin/python examples/batches.py veth0 10
"""

import sys
from collections import Counter

import xskit

interface, wanted = sys.argv[1], int(sys.argv[2])
packets: Counter[int] = Counter()
octets: Counter[int] = Counter()

with xskit.Umem(frames=4096) as umem, xskit.Socket(interface, umem=umem) as sock:
    print(f"{sock!r}, {sock.xdp_mode}", flush=True)
    while wanted > 0:
        batch = sock.receive_batch(limit=min(wanted, 256), timeout=1.0)
        types = batch.column(12, ">u2")  # the EtherType of every packet
        for kind in set(types.tolist()):
            some = batch[types == kind]
            packets[kind] += len(some)
            octets[kind] += int(some.rows["length"].sum())
        wanted -= len(batch)

for kind, count in packets.most_common():
    print(f"EtherType {kind:04x}: {count} packets of {octets[kind] / count:.0f} bytes")
