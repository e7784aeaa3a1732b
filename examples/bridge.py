"""Two ports bridged in Python: what comes in on one goes out on the other, in the same frame.

Both ports use the same packet memory, so nothing is copied between them. `xskit emulate` does the same in compiled
code, with stages in between. Where the sender is behind a veth, its checksums must not be left to an offload that is
never reached: ethtool -K wan0 tx off.

As root: .venv/bin/python examples/bridge.py veth0 veth1
"""

import asyncio
import sys

import xskit

names = sys.argv[1:3]
forwarded = 0


async def carry(here: xskit.Port, there: xskit.Port) -> None:
    """One direction. What finds no room in TX is dropped with the next batch."""
    global forwarded
    async for batch in here.batches():
        forwarded += here.forward(batch, there)


async def bridge(first: xskit.Port, second: xskit.Port) -> None:
    """Both directions, in turns."""
    await asyncio.gather(carry(first, second), carry(second, first))


with (
    xskit.Umem(frames=8192) as umem,
    xskit.Port.open(names[0], umem) as first,
    xskit.Port.open(names[1], umem) as second,
):
    print(f"{first!r} - {second!r}", flush=True)
    try:
        asyncio.run(bridge(first, second))
    except KeyboardInterrupt:
        print(f"{forwarded} packets forwarded")
