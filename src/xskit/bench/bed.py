"""Where a benchmark runs: the interfaces that the user names, or veth pairs made for it, in a namespace of their own.

far end                  near end: under test
[xkfar0] ---- veth ---- [xknear0]        BPF or AF_XDP at the far ends sends, drops or sends back
[xkfar1] ---- veth ---- [xknear1]        only for forward
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from xskit.bench.settings import Case
from xskit.closing import Closing
from xskit.errors import UsageError
from xskit.lab.wiring import prepare
from xskit.netconf.changes import (
    CreateNamespace,
    CreateVeth,
    SetLinkUp,
    SetNapi,
    SetOffload,
    SetPromiscuous,
    VethEnd,
)
from xskit.netconf.interfaces import LinkState, Watch, look
from xskit.netconf.journal import Journal, restore_dead
from xskit.netconf.namespaces import MissingError, inside

__all__ = ["Bed", "Place"]

CARRIER_S = 10.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """The interfaces of a case: those under test and, where they are ours, their other ends."""

    near: tuple[str, ...]
    far: tuple[str, ...]
    namespace: str | None
    had_carrier: tuple[str, ...] = ()
    """Of interfaces that are not ours: those that could send and receive before anything was opened."""

    @property
    def wired(self) -> bool:
        """The far ends are NICs."""
        return self.namespace is None and bool(self.far)

    def wait_for_carrier(self) -> None:
        """Some drivers reset the link when a program or a socket comes: wait until it is back, or for some seconds."""
        with Watch() as watch:
            for name in self.had_carrier:
                watch.wait(name, timeout_s=CARRIER_S)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is in their namespace."""
        with inside(self.namespace):
            yield


class Bed(Closing):
    """Makes places, and takes all of them back.

    Args:
        far: interfaces of this machine that those of the cases are wired to; none: who drives them is elsewhere.
    """

    def __init__(self, far: tuple[str, ...] = ()) -> None:
        self._far = far
        self._places: dict[tuple[int, int, int, bool], Place] = {}
        self._given: dict[tuple[str, ...], Place] = {}
        self._stack = ExitStack()
        restore_dead()
        self._journal = self._stack.enter_context(Journal.open())

    def place(self, case: Case) -> Place:
        """The place for a case; veth pairs of the same kind are made once.

        Raises:
            MissingError: there is no such interface.
            UsageError: its MTU is too small for the packets, or a veth cannot have them in these queues.
        """
        if case.interfaces:
            if case.interfaces not in self._given:
                with Watch() as watch:
                    every = [look(name).name for name in (*case.interfaces, *self._far)]
                    up = tuple(name for name in every if watch.state(name) is LinkState.UP)
                self._given[case.interfaces] = Place(case.interfaces, self._far, None, up)
            self._check(case)
            return self._given[case.interfaces]
        gro = case.xdp == "generic"
        if gro and max(case.queues) > 0 and case.mode != "txonly":
            raise UsageError(
                "in generic mode what is sent over a veth does not come to the queue that it was sent to",
                remedy="--queue 0, or --mode native",
            )
        key = (case.ports, max(1500, case.packet.mtu), max(case.queues) + 1, gro)
        if key not in self._places:
            self._places[key] = self._make(*key)
        return self._places[key]

    def _check(self, case: Case) -> None:
        for name in case.interfaces:
            facts = look(name)
            if case.mode not in ("rxdrop", "l2fwd", "forward") and facts.mtu < case.packet.mtu:
                raise UsageError(
                    f"a packet of {case.packet_size} bytes is too long for {name}, whose MTU is {facts.mtu}",
                    remedy=f"ip link set dev {name} mtu {case.packet.mtu}",
                )
            if case.mode != "txonly":
                self._journal.apply(SetPromiscuous(name))
            if case.busy_poll:
                self._defer_interrupts(name)
        for name in self._far:
            self._journal.apply(SetPromiscuous(name))

    def _defer_interrupts(self, name: str) -> None:
        """What busy polling needs to keep the interrupt away (Documentation/networking/napi.rst, "Busy polling")."""
        for change in (SetNapi(name, "napi_defer_hard_irqs", 2), SetNapi(name, "gro_flush_timeout", 200_000)):
            with suppress(MissingError):  # another namespace than that of /sys
                self._journal.apply(change)

    def _make(self, ports: int, mtu: int, queues: int, gro: bool) -> Place:
        namespace = f"xk{os.getpid():x}x{next(_numbers)}-bench"
        apply = self._journal.apply
        apply(CreateNamespace(namespace))
        prepare(self._journal, namespace, ipv6=False)
        near = tuple(f"xknear{number}" for number in range(ports))
        far = tuple(f"xkfar{number}" for number in range(ports))
        for ends in zip(far, near, strict=True):
            first, second = (VethEnd(name, namespace, mtu=mtu, queues=queues) for name in ends)
            apply(CreateVeth(first, second))
            for name in ends:
                apply(SetLinkUp(name, True, namespace=namespace))
        if gro:  # gives a veth without native XDP program the ring that live frames go into
            for name in near:
                apply(SetOffload(name, {"gro": True}, namespace=namespace))
        return Place(near, far, namespace)

    def close(self) -> None:
        """Take everything back; twice is fine."""
        self._stack.close()
