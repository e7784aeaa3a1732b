"""Settings of a running link change while packets are inside: a phone that goes from wifi into a tunnel.

Nothing in flight is lost or reordered by an update. One that the planned memory cannot hold is refused, with the
number to set.

As root: .venv/bin/python examples/live_update.py
"""

import socket
import time

import xskit


def ask() -> None:
    """One datagram to the cloud and back."""
    began = time.monotonic()
    client.sendto(b"?", (cloud.address, 7000))
    try:
        server.sendto(*server.recvfrom(100))
        client.recv(100)
    except TimeoutError:
        print("no answer")
    else:
        print(f"answered after {(time.monotonic() - began) * 1000:.1f} ms")


with xskit.Lab() as lab:
    phone, cloud = lab.host("phone"), lab.host("cloud")
    link = lab.link(phone, cloud, owd="5ms", rate="50Mbit")
    with phone.inside():
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with cloud.inside():
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((cloud.address, 7000))
    with client, server:
        client.settimeout(1)
        server.settimeout(1)
        ask()
        link.update(owd="40ms", jitter="2ms", rate="10Mbit")  # both directions, at the same moment
        ask()
        link.forward.update(loss="100%")  # one direction
        ask()
    try:
        link.update(owd="10s", rate="10Gbit")
    except xskit.XskitError as refused:
        print(refused)
    print(link.report())
