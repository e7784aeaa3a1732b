"""Two hosts joined by a plain veth pair, without xskit in between. They know each other's MAC addresses.

host a [xka] ---- veth ---- [xkb] host b
"""

from __future__ import annotations

import itertools
import os
import time
from contextlib import ExitStack

from xskit.closing import Closing
from xskit.lab.host import Host
from xskit.lab.traffic import ping
from xskit.lab.wiring import prepare
from xskit.netconf.changes import (
    CreateNamespace,
    CreateVeth,
    SetAddress,
    SetLinkUp,
    SetNeighbour,
    VethEnd,
)
from xskit.netconf.journal import Journal, restore_dead

__all__ = ["Pair"]

PATIENCE_S = 30.0

_numbers = itertools.count(1)


class Pair(Closing):
    """Taken back by `close`.

    Attributes:
        hosts: a and b.
        interfaces: theirs.
    """

    ADDRESSES = ("10.211.55.1", "10.211.55.2")
    interfaces = ("xka", "xkb")

    def __init__(self, mtu: int = 1500) -> None:
        with ExitStack() as undo:
            restore_dead()
            journal = undo.enter_context(Journal.open())
            tag = f"xk{os.getpid():x}x{next(_numbers)}-pair-"
            names = {name: [address] for name, address in zip("ab", self.ADDRESSES, strict=True)}
            self.hosts = tuple(Host(name, f"{tag}{name}", journal, names) for name in "ab")
            for host in self.hosts:
                journal.apply(CreateNamespace(str(host.namespace)))
                prepare(journal, str(host.namespace), ipv6=False)
            ends = (
                VethEnd(name, host.namespace, mtu=mtu) for host, name in zip(self.hosts, self.interfaces, strict=True)
            )
            veth = CreateVeth(*ends)
            journal.apply(veth)
            for host, name, address in zip(self.hosts, self.interfaces, self.ADDRESSES, strict=True):
                journal.apply(SetAddress(name, f"{address}/24", namespace=host.namespace))
                journal.apply(SetLinkUp(name, True, namespace=host.namespace))
                host.interfaces.append(name)
                host.addresses.append(address)
            for host, address, mac in zip(self.hosts, self.ADDRESSES[::-1], veth.macs[::-1], strict=True):
                journal.apply(SetNeighbour(host.interfaces[0], address, mac, namespace=host.namespace))
            _await_way(*self.hosts)
            self._stack = undo.pop_all()

    def close(self) -> None:
        """Take both hosts back; twice is fine."""
        self._stack.close()


def _await_way(a: Host, b: Host) -> None:
    """Wait for the answer to an echo: an end that was up before its peer drops packets until linkwatch notices."""
    give_up = time.monotonic() + PATIENCE_S
    while not ping(a, b, count=1) and time.monotonic() < give_up:
        pass
