"""Receive packets under asyncio, beside other work, without a thread: the same runs under trio.

What the socket takes does not reach the kernel's own stack any more: use an interface that you can spare.

As root: .venv/bin/python examples/receive_async.py veth0 10
"""

import asyncio
import sys

import xskit

interface, wanted = sys.argv[1], int(sys.argv[2])


async def receive(sock: xskit.Socket) -> None:
    """So many packets."""
    left = wanted
    async for batch in sock.batches():
        for packet in batch[:left]:
            print(packet.length, bytes(packet[:14]).hex(" "))
        left -= len(batch)
        if left <= 0:
            break


async def tick() -> None:
    """The other work."""
    while True:
        print("waiting for packets", flush=True)
        await asyncio.sleep(0.5)


async def main() -> None:
    """Both, until the packets have come."""
    with xskit.Umem(frames=4096) as umem, xskit.Socket(interface, umem=umem) as sock:
        print(repr(sock), flush=True)
        other = asyncio.create_task(tick())
        await receive(sock)
        other.cancel()


asyncio.run(main())
