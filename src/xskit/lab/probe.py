"""Sends and receives test traffic on one host: a program of its own, so that no other work delays its clock.

    probe.py receive-udp ADDRESS PORT                until stdin closes; prints what came, with the kernel's stamps
    probe.py send-udp ADDRESS PORT BYTES COUNT NS    paced, one packet every NS
    probe.py ping ADDRESS COUNT NS                   echoes, one every NS
    probe.py receive-tcp ADDRESS PORT                  one connection; prints what came
    probe.py send-tcp ADDRESS PORT SECONDS           as fast as it goes

ADDRESS is an IPv4 or IPv6 address. The program imports nothing but the standard library and prints one line of JSON. A
payload begins with the packet's number and the sender's CLOCK_REALTIME just before sendto, the clock of SO_TIMESTAMPNS.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import time
from typing import Any

SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
SO_SNDBUFFORCE = 32
HEADER = struct.Struct("!IQ")
TIMESPEC = struct.Struct("@qq")
DRAIN_SECONDS = 0.2
REPLY_SECONDS = 2.0


def _ready() -> None:
    print("ready", flush=True)


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def receive_udp(address: str, port: int) -> dict[str, Any]:
    """Count and time everything that comes to a port of an address."""
    receiver = socket.socket(_family(address), socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    receiver.bind((address, port))
    receiver.setblocking(False)
    _ready()
    numbers: list[int] = []
    owds: list[int] = []
    stamps: list[int] = []
    total = 0
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        readable, _, _ = select.select([receiver, *([] if deadline else [sys.stdin])], [], [], 0.05)
        if sys.stdin in readable and not os.read(0, 1):
            deadline = time.monotonic() + DRAIN_SECONDS
        if receiver not in readable:
            continue
        if deadline is not None:  # as long as packets come, more may
            deadline = time.monotonic() + DRAIN_SECONDS
        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, _ = receiver.recvmsg(65536, 64)
                seconds, nanoseconds = TIMESPEC.unpack(ancillary[0][2][: TIMESPEC.size])
                number, sent = HEADER.unpack_from(data)
                stamp = seconds * 1_000_000_000 + nanoseconds
                numbers.append(number)
                stamps.append(stamp)
                owds.append(stamp - sent)
                total += len(data)
    return {"numbers": numbers, "owd_ns": owds, "stamps_ns": stamps, "payload_bytes": total}


def send_udp(address: str, port: int, size: int, count: int, interval_ns: int) -> dict[str, Any]:
    """Send numbered packets at a steady pace."""
    sender = socket.socket(_family(address), socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16 << 20)
    sender.connect((address, port))
    payload = bytearray(max(size, HEADER.size))
    refused = 0
    begun = due = time.monotonic_ns()
    for number in range(count):
        while (left := due - time.monotonic_ns()) > 0:
            if left > 200_000:
                time.sleep((left - 150_000) / 1e9)
        HEADER.pack_into(payload, 0, number, time.clock_gettime_ns(time.CLOCK_REALTIME))
        try:
            sender.send(payload)
        except OSError:
            refused += 1
        due += interval_ns
    return {"sent": count - refused, "refused": refused, "elapsed_ns": time.monotonic_ns() - begun}


def ping(address: str, count: int, interval_ns: int) -> dict[str, Any]:
    """Round-trip times of echoes: ICMP (RFC 792) or ICMPv6 (RFC 4443), whose checksum the kernel works out."""
    family = _family(address)
    ipv6 = family is socket.AF_INET6
    protocol, request, answer = (socket.IPPROTO_ICMPV6, 128, 129) if ipv6 else (socket.IPPROTO_ICMP, 8, 0)
    sender = socket.socket(family, socket.SOCK_RAW, protocol)
    sender.settimeout(REPLY_SECONDS)
    identity = os.getpid() & 0xFFFF
    times: list[int] = []
    for number in range(count):
        body = struct.pack("!BBHHHQ", request, 0, 0, identity, number, time.monotonic_ns())
        begun = time.monotonic_ns()
        sender.sendto(body if ipv6 else body[:2] + _checksum(body) + body[4:], (address, 0))
        with contextlib.suppress(TimeoutError):
            while True:
                reply = sender.recv(2048)
                echo = reply if ipv6 else reply[(reply[0] & 15) * 4 :]
                kind, _, _, whose, which = struct.unpack_from("!BBHHH", echo)
                if (kind, whose, which) == (answer, identity, number):
                    times.append(time.monotonic_ns() - begun)
                    break
        time.sleep(max(interval_ns - (time.monotonic_ns() - begun), 0) / 1e9)
    return {"sent": count, "rtt_ns": times}


def _checksum(body: bytes) -> bytes:
    words = sum(struct.unpack(f"!{len(body) // 2}H", body))
    words = (words & 0xFFFF) + (words >> 16)
    return struct.pack("!H", ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF)


def receive_tcp(address: str, port: int) -> dict[str, Any]:
    """Take one connection's bytes."""
    listener = socket.create_server((address, port), family=_family(address))
    _ready()
    connection, _ = listener.accept()
    total = 0
    begun = time.monotonic_ns()
    while data := connection.recv(1 << 18):
        total += len(data)
    return {"bytes": total, "elapsed_ns": time.monotonic_ns() - begun}


def send_tcp(address: str, port: int, seconds: float) -> dict[str, Any]:
    """Send zeros over one connection for some time."""
    connection = socket.create_connection((address, port), timeout=10)
    data = bytes(1 << 17)
    end = time.monotonic() + seconds
    total = 0
    while time.monotonic() < end:
        total += connection.send(data)
    connection.close()
    return {"bytes": total}


def main(arguments: list[str]) -> None:
    """Run one role."""
    role, rest = arguments[0], arguments[1:]
    if role == "receive-udp":
        result = receive_udp(rest[0], int(rest[1]))
    elif role == "send-udp":
        result = send_udp(rest[0], *map(int, rest[1:]))
    elif role == "ping":
        result = ping(rest[0], int(rest[1]), int(rest[2]))
    elif role == "receive-tcp":
        result = receive_tcp(rest[0], int(rest[1]))
    else:
        result = send_tcp(rest[0], int(rest[1]), float(rest[2]))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
