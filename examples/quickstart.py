"""Two hosts, an emulated link between them, and what it did: asked against achieved.

As root: .venv/bin/python examples/quickstart.py
"""

import socket
import time

import xskit

with xskit.Lab() as lab:
    a, b = lab.host("a"), lab.host("b")
    link = lab.link(a, b, owd="20ms", rate="100Mbit", loss="0.1%")

    with b.inside():  # sockets made in the block are b's
        server = socket.create_server((b.address, 8000))
    for _ in range(3):
        with a.inside():
            client = socket.socket()
        began = time.monotonic()
        client.connect((b.address, 8000))
        print(f"connected after {(time.monotonic() - began) * 1000:.1f} ms")
        client.close()
    server.close()

    a.run("getent", "hosts", "b")  # commands run on a host; hosts know each other by name
    link.forward.update(loss="1%")  # live, and only loss changes
    print(link.report())
