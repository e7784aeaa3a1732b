"""One server, reached over IPv4 and over IPv6: every link of a lab has both.

As root: .venv/bin/python examples/both_versions.py
"""

import socket
import time

import xskit

with xskit.Lab() as lab:  # xskit.Lab(ip=6) has IPv6 only
    client, server = lab.host("client"), lab.host("server")
    lab.link(client, server, owd="20ms")
    with server.inside():
        listener = socket.create_server(("::", 8000), family=socket.AF_INET6, dualstack_ipv6=True)
    with listener:
        for address in (server.address, server.address6):
            began = time.monotonic()
            with client.inside(), socket.create_connection((address, 8000)):
                print(f"{address}: connected after {(time.monotonic() - began) * 1000:.1f} ms")
