"""Test traffic between hosts of a lab, measured at the hosts: owd, loss, rate, round trips, a TCP transfer."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xskit.errors import XskitError
from xskit.lab.host import Host

UDP_OVERHEAD_BYTES = {4: 42, 6: 62}
"""Ethernet, IP and UDP headers, by IP version."""
PORT = 7373

_PROBE = str(Path(__file__).with_name("probe.py"))


class TrafficError(XskitError):
    """Test traffic could not be sent or received."""


@dataclass(frozen=True)
class UdpResult:
    """A stream of numbered UDP packets from one host to another.

    Attributes:
        sent, received: packets; one that came twice counts once.
        owd_ns: of each packet that came, sorted.
        reordered: packets that came behind one with a higher number (RFC 4737).
        frame_bytes: of one packet, Ethernet header included.
        stamps_ns: when each packet came, by the receiving kernel, in order of coming.
        delays_ns: the owd of each, in the same order.
    """

    sent: int
    received: int
    owd_ns: list[int]
    reordered: int
    frame_bytes: int
    stamps_ns: list[int]
    delays_ns: list[int]

    @property
    def lost(self) -> int:
        """Packets that did not come."""
        return self.sent - self.received

    def saturated(self, least_owd_ns: int) -> tuple[int, int]:
        """(packets, ns) of the longest stretch in which every packet took at least this long: it had to queue.

        Only there does the bottleneck, and not the sender, decide when packets come.
        """
        longest = (0, 0)
        first: int | None = None
        for number, delay_ns in enumerate([*self.delays_ns, -1]):
            if delay_ns >= least_owd_ns:
                first = number if first is None else first
            elif first is not None:
                packets, window_ns = number - 1 - first, self.stamps_ns[number - 1] - self.stamps_ns[first]
                longest = max(longest, (packets, window_ns))
                first = None
        return longest


def udp(
    source: Host,
    target: Host,
    *,
    packets: int,
    interval_ns: int,
    frame_bytes: int,
    port: int = PORT,
    ipv6: bool = False,
) -> UdpResult:
    """Send a paced stream of UDP packets and measure it at both ends.

    Args:
        packets: how many.
        interval_ns: between two.
        frame_bytes: of each, Ethernet header included, FCS not.
        ipv6: over IPv6; else over IPv4, or over IPv6 if the target has only that.
    """
    address = _address(target, ipv6)
    payload = frame_bytes - UDP_OVERHEAD_BYTES[6 if ":" in address else 4]
    receiver = _start(target, "receive-udp", address, port)
    try:
        sent = _finish(_start(source, "send-udp", address, port, payload, packets, interval_ns))
        came = _finish(receiver)
    finally:
        _end(receiver)
    numbers = came["numbers"]
    highest, reordered = -1, 0
    for number in numbers:
        reordered += number < highest
        highest = max(highest, number)
    return UdpResult(
        sent=sent["sent"],
        received=len(set(numbers)),
        owd_ns=sorted(came["owd_ns"]),
        reordered=reordered,
        frame_bytes=frame_bytes,
        stamps_ns=came["stamps_ns"],
        delays_ns=came["owd_ns"],
    )


def ping(
    source: Host, target: Host, *, count: int = 5, interval_ns: int = 100_000_000, ipv6: bool = False
) -> list[int]:
    """Round-trip times in ns of those echoes (ICMP or ICMPv6) that were answered; `ipv6` as in `udp`."""
    result: list[int] = _finish(_start(source, "ping", _address(target, ipv6), count, interval_ns))["rtt_ns"]
    return result


def tcp(source: Host, target: Host, *, seconds: float, port: int = PORT, ipv6: bool = False) -> tuple[float, str]:
    """Transfer over one TCP connection; returns (bit/s at the receiver, what did it): iperf3 where installed."""
    address = _address(target, ipv6)
    if shutil.which("iperf3"):
        return _iperf3(source, target, address, seconds, port), "iperf3"
    receiver = _start(target, "receive-tcp", address, port)
    try:
        _finish(_start(source, "send-tcp", address, port, seconds))
        came = _finish(receiver)
    finally:
        _end(receiver)
    return came["bytes"] * 8e9 / came["elapsed_ns"], "xskit's own sender"


def _address(target: Host, ipv6: bool) -> str:
    return target.address6 if ipv6 else target.address


def _iperf3(source: Host, target: Host, address: str, seconds: float, port: int) -> float:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = target.spawn("iperf3", "--server", "--one-off", "--port", str(port), **quiet)
    try:
        for _ in range(20):
            client = source.run(
                "iperf3", "--client", address, "--port", str(port), "--time", str(math.ceil(seconds)), "--json",
                capture_output=True, text=True, timeout=seconds + 20,
            )  # fmt: skip
            result = _printed(client)
            if "connect" not in result.get("error", ""):
                break
        if "error" in result:
            raise TrafficError(f"iperf3 failed: {result['error']}")
        return float(result["end"]["sum_received"]["bits_per_second"])
    except subprocess.TimeoutExpired as error:
        raise TrafficError(f"iperf3 did not end within {error.timeout:.0f} s") from error
    finally:
        server.terminate()
        server.wait()


def _printed(client: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON of iperf3; where there is none, its last words as the error."""
    try:
        result: dict[str, Any] = json.loads(client.stdout)
    except ValueError:
        return {"error": _last_line(client.stderr)}
    return result


def _start(host: Host, role: str, *arguments: object) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = host.spawn(
        sys.executable, "-P", _PROBE, role, *map(str, arguments),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if role.startswith("receive"):
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            _, errors = process.communicate()
            raise TrafficError(f"test traffic cannot be received on {host.name}: {_last_line(errors)}")
    return process


def _finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Close its stdin, which ends a receiver, and read what it measured."""
    output, errors = process.communicate()
    if process.returncode != 0:
        raise TrafficError(f"test traffic failed: {_last_line(errors)}")
    result: dict[str, Any] = json.loads(output)
    return result


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason given"])[-1]
