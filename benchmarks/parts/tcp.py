"""Part `tcp`: a TCP connection through a link that does nothing, in turns with one through a Linux bridge.

host a [xk0] -- veth -- [xk1a] xskit, one worker [xk1b] -- veth -- [xk0] host b
host c [xka] -- veth -- [xkc]     Linux bridge     [xkd] -- veth -- [xkb] host d

At both ends of both, checksums, segments and merging are the stacks' own work: what passes are the packets of a wire.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np

from measure import Paired, Result, interleave
from xskit.lab.host import Host
from xskit.lab.lab import Lab
from xskit.lab.traffic import tcp
from xskit.lab.wiring import prepare
from xskit.netconf.changes import (
    CreateNamespace,
    CreateVeth,
    SetAddress,
    SetLinkUp,
    SetNeighbour,
    SetOffload,
    VethEnd,
)
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import inside

LIMITS = {1500: 0.85, 9000: 0.65}
"""By MTU: the share of the bridge's rate that a link must carry at least."""
OFF = dict.fromkeys(("tx", "rx", "tso", "gso", "gro"), False)
BRIDGE, PORTS = "xkbr", ("xkc", "xkd")
ADDRESSES = ("10.211.57.1", "10.211.57.2")


class Bridged:
    """Two hosts joined by a Linux bridge in a network namespace of its own; they know each other's MAC addresses."""

    def __init__(self, mtu: int) -> None:
        with ExitStack() as undo:
            journal = undo.enter_context(Journal.open())
            tag = f"xk{os.getpid():x}-bridge"
            room = f"{tag}-room"
            names = {name: [address] for name, address in zip("cd", ADDRESSES, strict=True)}
            self.hosts = tuple(Host(name, f"{tag}-{name}", journal, names) for name in "cd")
            for namespace in (room, *(str(host.namespace) for host in self.hosts)):
                journal.apply(CreateNamespace(namespace))
                prepare(journal, namespace, ipv6=False)
            with inside(room):
                subprocess.run(["ip", "link", "add", BRIDGE, "mtu", str(mtu), "type", "bridge"], check=True)
            macs = []
            for host, port, address in zip(self.hosts, PORTS, ADDRESSES, strict=True):
                interface = f"xk{host.name}"
                veth = CreateVeth(VethEnd(interface, host.namespace, mtu=mtu), VethEnd(port, room, mtu=mtu))
                journal.apply(veth)
                macs.append(veth.macs[0])
                journal.apply(SetOffload(interface, OFF, namespace=host.namespace))
                journal.apply(SetOffload(port, OFF, namespace=room))
                journal.apply(SetAddress(interface, f"{address}/24", namespace=host.namespace))
                with inside(room):
                    subprocess.run(["ip", "link", "set", port, "master", BRIDGE], check=True)
                journal.apply(SetLinkUp(port, True, namespace=room))
                journal.apply(SetLinkUp(interface, True, namespace=host.namespace))
                host.interfaces.append(interface)
                host.addresses.append(address)
            with inside(room):
                subprocess.run(["ip", "link", "set", BRIDGE, "up"], check=True)
            for host, address, mac in zip(self.hosts, ADDRESSES[::-1], macs[::-1], strict=True):
                journal.apply(SetNeighbour(host.interfaces[0], address, mac, namespace=host.namespace))
            self._stack = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def measure(mtu: int, rounds: int, seconds: int) -> Paired:
    """Gbit/s that come out at the receiver, of xskit and of the bridge, in turns."""
    with Lab(ip=4) as lab, Bridged(mtu) as bridged:
        a, b = lab.host("a"), lab.host("b")
        lab.link(a, b, mtu=mtu)
        ends = ((a, b), bridged.hosts)
        for source, target in ends:
            tcp(source, target, seconds=1)
        ours, theirs = (lambda pair=pair: tcp(*pair, seconds=seconds)[0] / 1e9 for pair in ends)
        return interleave(ours, theirs, rounds)


def run(cpu: int, quick: bool) -> list[Result]:
    """The lines of the table."""
    results = []
    for mtu, limit in LIMITS.items():
        paired = measure(mtu, 8 if quick else 24, 1 if quick else 2)
        middle, low, high = paired.ratio
        ours, bridge = float(np.median(paired.ours)), float(np.median(paired.twin))
        results.append(
            Result(
                "tcp",
                f"TCP at MTU {mtu} / through a Linux bridge",
                f"ratio {middle:.3f} [{low:.3f}, {high:.3f}]",
                f"{ours:.2f} against {bridge:.2f} Gbit/s",
                f"lower bound >= {limit}",
                low >= limit,
                {"ratio": middle, "low": low, "high": high, "ours": ours, "bridge": bridge, "rounds": len(paired.ours)},
            )
        )
    return results
