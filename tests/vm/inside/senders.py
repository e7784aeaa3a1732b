"""What stacks leave to their devices behind a veth, where this machine's kernel may lack the driver: QinQ, and SCTP."""

from __future__ import annotations

import socket

from tests.real.foreign_hosts import ADDRESSES, Foreign, foreign_hosts, ip
from xskit.netconf.namespaces import inside

INNER = ("198.18.253.1", "198.18.253.2")
PATIENCE_S = 20.0


def check_full_size_qinq() -> None:
    """Two VLAN interfaces on one another, with the MTU of the interface below: full-size datagrams cross both ways."""
    with foreign_hosts() as hosts:
        for namespace, address in zip(hosts.namespaces, INNER, strict=True):
            outer = ["link", "xk0", "name", "xkouter", "type", "vlan", "proto", "802.1ad", "id", "10"]
            ip("-n", str(namespace), "link", "add", *outer)
            ip("-n", str(namespace), "link", "add", "link", "xkouter", "name", "xkinner", "type", "vlan", "id", "20")
            ip("-n", str(namespace), "address", "add", f"{address}/24", "dev", "xkinner")
            for name in ("xkouter", "xkinner"):
                ip("-n", str(namespace), "link", "set", name, "up")
        with hosts.emulator() as emulator:
            ends = []
            for namespace, address in zip(hosts.namespaces, INNER, strict=True):
                with inside(namespace):
                    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                end.bind((address, 7004))
                end.settimeout(PATIENCE_S)
                ends.append(end)
            with ends[0], ends[1]:
                for sender, receiver, target in ((*ends, INNER[1]), (*ends[::-1], INNER[0])):
                    for number, size in enumerate((56, 1472, 1000, 1472, 1472)):
                        data = bytes([number]) * size
                        sender.sendto(data, (target, 7004))
                        assert receiver.recv(2000) == data
            report = emulator.close()
        assert report is not None
        assert [direction.packets["dropped"] for direction in report.links[0].directions] == [{}, {}]


def _transfer(hosts: Foreign) -> None:
    data = bytes(n * 31 % 253 for n in range(20_000))
    with inside(hosts.namespaces[1]):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    with inside(hosts.namespaces[0]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
    with listener, sender:
        listener.bind((ADDRESSES[1], 7005))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        sender.settimeout(PATIENCE_S)
        sender.connect((ADDRESSES[1], 7005))
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            came = bytearray()
            for at in range(0, len(data), 1000):
                sender.send(data[at : at + 1000])
                came += connection.recv(4000)
            while len(came) < len(data):
                came += connection.recv(4000)
    assert came == data


def check_sctp() -> None:
    """Its checksum is finished by the far end's stack, where that can be reached, and by xskit otherwise."""
    for reachable in (True, False):
        with foreign_hosts() as hosts:
            if not reachable:
                hosts.forget_names()
            with hosts.emulator() as emulator:
                _transfer(hosts)
                counted = [direction.live.pipeline.counters.checksums for direction in emulator.links["wan"].directions]
            assert (min(counted) > 0) is not reachable, counted


CHECKS = (check_full_size_qinq, check_sctp)
