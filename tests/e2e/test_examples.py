"""The examples do what their first sentence says, as a user starts them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.rooms import LEFT, RIGHT, Rooms, two_rooms
from xskit.lab import Host

pytestmark = [pytest.mark.root, pytest.mark.e2e]

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_SECONDS = 120
MOST_LINES = 60


def run(*command: str) -> str:
    """What an example prints; it must end well."""
    ended = subprocess.run(
        [sys.executable, *command], cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@contextmanager
def started(host: Host, *command: str, first_line: str) -> Iterator[subprocess.Popen[str]]:
    """An example that runs until stopped, from when it has printed its first line."""
    process = host.spawn(
        sys.executable, *command, cwd=EXAMPLES.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert first_line in line, line + process.communicate()[1]
        yield process
    finally:
        process.kill()
        process.communicate()


def milliseconds(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"([0-9.]+) ms", output)]


def exchange(rooms: Rooms) -> None:
    """Datagrams from the left host to the right one and back, again until one has come."""
    with rooms.left.inside():
        left = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with rooms.right.inside():
        right = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with left, right:
        for sock, address in ((left, LEFT), (right, RIGHT)):
            sock.bind((address, 7000))
            sock.settimeout(1)
        for sender, receiver, address in ((left, right, RIGHT), (right, left, LEFT)):
            for _ in range(PATIENCE_SECONDS // 4):
                sender.sendto(b"hello", (address, 7000))
                try:
                    assert receiver.recv(100) == b"hello"
                    break
                except TimeoutError:
                    continue
            else:
                pytest.fail(f"nothing came to {address}")


def test_every_example_is_tested_and_short():
    files = sorted(EXAMPLES.iterdir())
    tests = Path(__file__).read_text()
    for file in files:
        if file.suffix in (".py", ".toml"):
            assert f'"examples/{file.name}"' in tests, f"{file.name} is not run here"
            assert len(file.read_text().splitlines()) < MOST_LINES


def test_quickstart():
    output = run("examples/quickstart.py")
    times = milliseconds(output)[:3]
    assert min(times) >= 40
    assert "asked against achieved" in output


def test_both_versions():
    output = run("examples/both_versions.py")
    assert min(milliseconds(output)) >= 40
    assert [line.split(": ")[0] for line in output.splitlines()] == ["198.18.1.2", "fd78:736b:6974:1::2"]


def test_live_update():
    output = run("examples/live_update.py")
    wifi, mobile = milliseconds(output)[:2]
    assert wifi >= 10
    assert mobile >= 60  # two owds of 40 ms with jitter
    assert "no answer" in output
    assert "start with memory=" in output
    assert "1 loss" in output


def test_pytest():
    assert "2 passed" in run("-m", "pytest", "--quiet", "--config-file=/dev/null", "-p", "no:cacheprovider",
                             "--rootdir=examples", "examples/test_over_a_wan.py")  # fmt: skip


@contextmanager
def receiving(example: str) -> Iterator[list[str]]:
    """An example that receives ten packets while the left host sends twenty; gives what it prints after the first
    line."""
    with two_rooms() as rooms, started(rooms.router, example, "xkleft", "10", first_line="of xkleft") as receiver:
        sender = [sys.executable, "examples/send.py", "wan0", "20"]
        sent = rooms.left.run(*sender, cwd=EXAMPLES.parent, stdout=subprocess.PIPE, text=True)
        assert "20 packets sent, 0 refused" in sent.stdout
        output, errors = receiver.communicate(timeout=PATIENCE_SECONDS)
        assert receiver.returncode == 0, errors
        yield output.splitlines()


def test_send_and_receive():
    with receiving("examples/receive.py") as lines:
        assert len(lines) == 11
        assert any(line.startswith("60 ff ff ff ff ff ff 02 00 00 00 00 01 88 b5 ") for line in lines)
        assert lines[-1].startswith("Statistics(")


def test_batches():
    with receiving("examples/batches.py") as lines:
        counted = [re.fullmatch(r"EtherType ([0-9a-f]{4}): (\d+) packets of (\d+) bytes", line) for line in lines]
        found = {match[1]: (int(match[2]), int(match[3])) for match in counted if match}
        assert len(found) == len(lines)
        assert sum(count for count, _ in found.values()) == 10
        assert found["88b5"][1] == 60


def test_rings():
    with receiving("examples/rings.py") as lines:
        counted = [re.fullmatch(r"(\d+) packets, (\d+) bytes", line) for line in lines]
        assert sum(int(match[1]) for match in counted if match) == 10


def test_receive_async():
    with receiving("examples/receive_async.py") as lines:
        assert "waiting for packets" in lines
        packets = [line for line in lines if line != "waiting for packets"]
        assert len(packets) == 10
        assert "60 ff ff ff ff ff ff 02 00 00 00 00 01 88 b5" in packets


def test_bridge():
    with (
        two_rooms(offloads=False) as rooms,
        started(rooms.router, "examples/bridge.py", "xkleft", "xkright", first_line="<Port xkleft") as bridge,
    ):
        exchange(rooms)
        bridge.send_signal(signal.SIGINT)
        output, errors = bridge.communicate(timeout=PATIENCE_SECONDS)
    assert bridge.returncode == 0, errors
    assert int(output.split()[0]) >= 3  # ARP request, its answer, a datagram; the last may not be counted yet


def test_round_trip():
    listener = socket.create_server(("", 0))
    with listener:
        port = str(listener.getsockname()[1])
        program = [sys.executable, "examples/round_trip.py", "peer", port, "3"]
        output = run("-m", "xskit", "run", "--owd", "20ms", "--", *program)
    assert len(milliseconds(output)) == 3
    assert min(milliseconds(output)) >= 40


def test_emulate(tmp_path):
    report = tmp_path / "report.json"
    command = ["-m", "xskit", "emulate", "examples/wan.toml", "--report", os.fspath(report)]
    with two_rooms() as rooms:
        process = rooms.router.spawn(sys.executable, *command, cwd=EXAMPLES.parent, stderr=subprocess.PIPE, text=True)
        try:
            exchange(rooms)
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
            process.communicate()
    assert '"wan"' in report.read_text(), errors
