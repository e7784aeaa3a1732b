"""Network namespaces with a veth pair for the tests of bpf/, made by iproute2, and a way to step into them."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_CLONE_NEWNET = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@contextmanager
def namespace(name: str) -> Iterator[str]:
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "dev", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)


@contextmanager
def entered(name: str) -> Iterator[None]:
    """The calling thread is in the namespace; sockets made meanwhile stay there."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    there = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(there)
        yield
    finally:
        _setns(home)
        os.close(there)
        os.close(home)


def _setns(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def one_namespace(mtu: int = 1500) -> Iterator[str]:
    """Both ends, `va` and `vb`, in one namespace, and the calling thread in it."""
    name = f"xkbpf{os.getpid()}"
    with namespace(name):
        ip("-n", name, "link", "add", "va", "mtu", str(mtu), "type", "veth", "peer", "name", "vb", "mtu", str(mtu))
        for end in ("va", "vb"):
            ip("-n", name, "link", "set", "dev", end, "up")
        with entered(name):
            yield name


@contextmanager
def two_hosts(mtu: int = 1500) -> Iterator[tuple[str, str]]:
    """`va` (10.99.0.1) in the first namespace, `vb` (10.99.0.2) in the second, each with the other's address known."""
    with ExitStack() as stack:
        a, b = (stack.enter_context(namespace(f"xkbpf{os.getpid()}{end}")) for end in "ab")
        large = ("mtu", str(mtu))
        ip("-n", a, "link", "add", "va", *large, "type", "veth", "peer", "name", "vb", *large, "netns", b)
        for end in (a, b):  # no packets but those of the tests
            ip("netns", "exec", end, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        ip("-n", a, "link", "set", "dev", "va", "address", "02:00:00:00:00:01", "up")
        ip("-n", b, "link", "set", "dev", "vb", "address", "02:00:00:00:00:02", "up")
        ip("-n", a, "addr", "add", "10.99.0.1/24", "dev", "va")
        ip("-n", b, "addr", "add", "10.99.0.2/24", "dev", "vb")
        ip("-n", a, "neigh", "add", "10.99.0.2", "lladdr", "02:00:00:00:00:02", "dev", "va")
        ip("-n", b, "neigh", "add", "10.99.0.1", "lladdr", "02:00:00:00:00:01", "dev", "vb")
        yield a, b
