"""Two ports bridged, packet by packet in Python: what comes in on one goes out on the other, in the same frame.

Both ports use the same packet memory, so nothing is copied between them. `xskit emulate` does the same in compiled
code, with stages in between. Where the sender is behind a veth, its checksums must not be left to an offload that is
never reached: ethtool -K wan0 tx off.

As root: .venv/bin/python examples/bridge.py veth0 veth1
"""

import select
import sys

import xskit

names = sys.argv[1:3]

with (
    xskit.Umem(frames=8192) as umem,
    xskit.Port.open(names[0], umem) as first,
    xskit.Port.open(names[1], umem) as second,
):
    poll = select.poll()
    ways = {}
    for here, there in ((first, second), (second, first)):
        outs = [queue.transmitter for queue in there.queues if queue.transmitter]
        for queue in here.queues:
            ways[queue.receiver.fileno()] = (queue.receiver, outs[queue.number % len(outs)])
            queue.receiver.receive(timeout=0)  # gives the kernel frames to receive into
            poll.register(queue.receiver, select.POLLIN)
    print(f"{first!r} - {second!r}", flush=True)
    forwarded = 0
    try:
        while True:
            for fd, _ in poll.poll(100):
                receiver, out = ways[fd]
                forwarded += out.send(receiver.receive(timeout=0))
    except KeyboardInterrupt:
        print(f"{forwarded} packets forwarded")
