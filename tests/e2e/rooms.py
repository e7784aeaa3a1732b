"""Three hosts: a router with two interfaces that nothing joins yet, and one host behind each.

    left [wan0] ---- [xkleft] router [xkright] ---- [wan0] right

As somebody else would have made them: the kernel's own chatter is there, and offloads are on if not told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from xskit.lab import Host, Lab
from xskit.netconf.changes import CreateVeth, SetAddress, SetLinkUp, SetOffload, VethEnd
from xskit.netconf.journal import Journal

LEFT, RIGHT = "10.99.0.1", "10.99.0.2"


@dataclass
class Rooms:
    router: Host
    left: Host
    right: Host


@contextmanager
def two_rooms(*, offloads: bool = True) -> Iterator[Rooms]:
    """The three, removed at the end. Without offloads packets leave with whole checksums."""
    with Lab() as lab, Journal.open() as journal:
        rooms = Rooms(lab.host("router"), lab.host("left"), lab.host("right"))
        for host, address in ((rooms.left, LEFT), (rooms.right, RIGHT)):
            near, far = f"xk{host.name}", host.namespace
            journal.apply(CreateVeth(VethEnd(near, rooms.router.namespace), VethEnd("wan0", far)))
            journal.apply(SetAddress("wan0", f"{address}/24", namespace=far))
            if not offloads:
                journal.apply(SetOffload("wan0", {"tx": False}, namespace=far))
            journal.apply(SetLinkUp("wan0", True, namespace=far))
            journal.apply(SetLinkUp(near, True, namespace=rooms.router.namespace))
        yield rooms
