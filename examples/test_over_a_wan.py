"""Tests of a network program over an emulated WAN: a fixture that gives every test its own two hosts and link.

As root: .venv/bin/python -m pytest examples/test_over_a_wan.py
"""

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest

import xskit


@pytest.fixture
def wan() -> Iterator[xskit.LabLink]:
    with xskit.Lab(seed=7) as lab:
        link = lab.link(lab.host("client"), lab.host("server"), owd="30ms", rate="20Mbit", loss="1%")
        yield link
        print(link.report())  # pytest shows it when the test has failed


def test_all_of_it_arrives_despite_loss(wan: xskit.LabLink) -> None:
    client, server = wan.hosts
    with server.inside():
        listener = socket.create_server((server.address, 8000))
    with client.inside():
        sender = socket.create_connection((server.address, 8000))
    receiver, _ = listener.accept()
    with listener, sender, receiver:
        sender.sendall(bytes(range(256)) * 100)
        sender.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: receiver.recv(65536), b"")) == bytes(range(256)) * 100


def test_connecting_takes_a_round_trip(wan: xskit.LabLink) -> None:
    async def connect() -> float:
        client, server = wan.hosts
        with server.inside():
            listener = socket.create_server((server.address, 8000))
        with client.inside():
            connection = socket.socket()  # the host is chosen when the socket is made, not when it is used
        connection.setblocking(False)
        began = time.monotonic()
        await asyncio.get_running_loop().sock_connect(connection, (server.address, 8000))
        connection.close()
        listener.close()
        return time.monotonic() - began

    assert asyncio.run(connect()) >= 0.060
