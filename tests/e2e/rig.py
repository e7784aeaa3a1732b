"""The command as a user types it, in a throw-away network namespace that stands for "this machine".

    host a [xk0] --- [xka]  the outer namespace, where xskit runs  [xkb] --- [xk0] host b

The command is entered by nsenter, which changes the network namespace and nothing else, and keeps its pid: so it is
known which journals, namespaces and interfaces are its own, and that none of them is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.guards import JOURNALS, NAMESPACES

XSKIT = str(Path(sys.executable).with_name("xskit"))
PATIENCE_SECONDS = 120

UDP_SERVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7000))
print("listening", flush=True)
while True:
    data, where = s.recvfrom(65536)
    s.sendto(data, where)
"""
"""Sends every datagram back."""

UDP_CLIENT = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.2)
wanted, came = int(sys.argv[2]), 0
give_up = time.monotonic() + 60
while came < wanted and time.monotonic() < give_up:
    try:
        s.sendto(b"x" * 64, (sys.argv[1], 7000))
        s.recv(2000)
        came += 1
    except OSError:
        time.sleep(0.01)
print(came)
"""
"""argv: address, how many answers to wait for; prints how many came."""


def wait_until(true: Callable[[], object], what: str) -> None:
    """Wait for something that must come about."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < give_up, f"waited in vain until {what}"
        time.sleep(0.01)


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def code_unless_late(report: dict[str, Any]) -> int:
    """The exit code that goes with a report, in which nothing is wrong but lateness: a busy machine may be late."""
    assert [reason for reason in report["invalid_because"] if "(allowed: " not in reason] == []
    return 0 if report["valid"] else 1


@dataclass
class Result:
    """What a command left."""

    pid: int
    code: int
    out: str
    err: str


@dataclass
class Outer:
    """The namespace in which xskit is started."""

    name: str
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    def start(self, *argv: str, namespace: str | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start a command in the namespace; ended with the test."""
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
        process = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{namespace or self.name}", "--", *argv], **{**settings, **options}
        )
        self.started.append(process)
        return process

    def run(self, *argv: str, input: str | None = None, **options: Any) -> Result:
        """Run a command in the namespace to its end."""
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*argv, **options)
        out, err = process.communicate(input, timeout=PATIENCE_SECONDS)
        return Result(process.pid, process.returncode, out, err)

    def xskit(self, *arguments: str, **options: Any) -> Result:
        """Run xskit to its end; nothing of it is left."""
        result = self.run(XSKIT, *arguments, **options)
        self.nothing_left(result.pid)
        return result

    def xskit_without_privileges(self, *arguments: str) -> Result:
        """Run xskit as a root that has no capability at all: another user might not be let into this checkout."""
        result = self.run("setpriv", "--bounding-set=-all", "--inh-caps=-all", XSKIT, *arguments)
        self.nothing_left(result.pid)
        return result

    def start_python(self, code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-c", code, *arguments, **options)

    def listen(self, code: str = UDP_SERVER, **options: Any) -> None:
        """Start a server that says when it is ready."""
        server = self.start_python(code, **options)
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"

    def interfaces(self) -> list[str]:
        lines = ip("-netns", self.name, "-oneline", "link").splitlines()
        return [line.split(":")[1].strip().partition("@")[0] for line in lines]

    def left(self, pid: int) -> set[str]:
        """What of an xskit process is still there: journals, namespaces, interfaces."""
        found = {str(path) for path in JOURNALS.glob(f"{pid}-*")}
        found |= {str(path) for path in NAMESPACES.glob(f"xk{pid:x}x*")}
        return found | {name for name in self.interfaces() if name.startswith("xkpeer")}

    def nothing_left(self, pid: int) -> None:
        assert self.left(pid) == set()

    def first_line(self, process: subprocess.Popen[str]) -> str:
        """The first line that it prints: a command of `xskit run` runs now."""
        assert process.stdout is not None
        return process.stdout.readline()

    def output(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """What it prints until it ends by itself; unlike communicate, its input stays open."""
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()
        process.wait(PATIENCE_SECONDS)
        return out, err

    def end(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@contextmanager
def namespace(name: str, *, loopback: bool = True) -> Iterator[str]:
    ip("netns", "add", name)
    try:
        if loopback:
            ip("-netns", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "delete", name)


@contextmanager
def outer() -> Iterator[Outer]:
    with namespace(f"xkout{os.getpid():x}") as name:
        made = Outer(name)
        try:
            yield made
        finally:
            made.end()


@dataclass
class Bridge:
    """An outer namespace between two hosts."""

    outer: Outer
    host_a: str
    host_b: str
    address_b: str = "10.73.0.2"

    def serve(self) -> None:
        self.outer.listen(namespace=self.host_b)

    def exchange(self, answers: int) -> int:
        """Send from host a to b until so many answers came; how many did."""
        client = self.outer.start_python(UDP_CLIENT, self.address_b, str(answers), namespace=self.host_a)
        out, _ = client.communicate(timeout=PATIENCE_SECONDS)
        return int(out)

    def start_exchange(self, answers: int) -> subprocess.Popen[str]:
        return self.outer.start_python(UDP_CLIENT, self.address_b, str(answers), namespace=self.host_a)


@contextmanager
def bridge(machine: Outer) -> Iterator[Bridge]:
    """Interfaces xka and xkb, each a veth pair to a host of its own."""
    tag = f"{os.getpid():x}"
    with namespace(f"xkha{tag}") as host_a, namespace(f"xkhb{tag}") as host_b:
        for side, host, number in (("a", host_a, 1), ("b", host_b, 2)):
            ip("-n", host, "link", "add", "xk0", "type", "veth", "peer", "name", f"xk{side}", "netns", machine.name)
            ip("-n", host, "address", "add", f"10.73.0.{number}/24", "dev", "xk0")
            ip("-n", host, "link", "set", "xk0", "up")
            ip("-n", machine.name, "link", "set", f"xk{side}", "up")
        yield Bridge(machine, host_a, host_b)
        machine.end()
