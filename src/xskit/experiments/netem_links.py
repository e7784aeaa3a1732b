"""Two hosts joined in two ways that were asked for the same: by sch_netem, and by xskit.

host a [xka] --- veth, netem on xka's way out --- [xkb] host b          host a --- xskit's link --- host b

They know each other's MAC addresses from the start and have no IPv6, so the links carry only the packets of a
measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from xskit.emulator.report import Report
from xskit.errors import KernelError
from xskit.experiments.rooms import Pair
from xskit.lab import Lab
from xskit.lab.host import Host

__all__ = ["WAYS", "Impairments", "Joined", "joined", "require_netem"]

WAYS = ("sch_netem", "xskit")


@dataclass(frozen=True)
class Impairments:
    """One question: netem's words, xskit's settings."""

    title: str
    netem: str
    xskit: dict[str, object]


@dataclass
class Joined:
    """The hosts, and where packets from the first to the second got lost; empty: nobody says."""

    ends: tuple[Host, Host]
    _lost: Callable[[], dict[str, int]] = field(default=dict)

    def lost(self) -> dict[str, int]:
        """Packets by where they got lost."""
        return self._lost()


def require_netem() -> None:
    """Raises KernelError: this kernel has no sch_netem."""
    with Pair() as pair:
        tried = pair.hosts[0].run(
            "tc", "qdisc", "add", "dev", pair.interfaces[0], "root", "netem", capture_output=True, text=True
        )
    if tried.returncode != 0:
        words = (tried.stderr.strip() or "tc failed").splitlines()[0]
        raise KernelError(
            f"this kernel has no sch_netem ({words})", remedy="xskit experiment run netem --kernel 6.12 --short"
        )


@contextmanager
def joined(way: str, asked: Impairments) -> Iterator[Joined]:
    """Two hosts; what goes from the first to the second meets what was asked for."""
    if way == "sch_netem":
        with Pair() as pair:
            a, b = pair.hosts
            a.run("tc", "qdisc", "add", "dev", a.interfaces[0], "root", "netem", *asked.netem.split(), check=True)
            yield Joined((a, b))
        return
    with Lab(ip=4) as lab:
        a, b = lab.host("a"), lab.host("b")
        link = lab.link(a, b, forward=asked.xskit)
        before = _losses(link.report())

        def lost() -> dict[str, int]:
            now = _losses(link.report())
            return {where: count - before.get(where, 0) for where, count in now.items() if count > before.get(where, 0)}

        yield Joined((a, b), lost)


def _losses(report: Report) -> dict[str, int]:
    """Of the link's first direction, by drop cause; and of the port that it begins at, by the kernel's counters."""
    causes = report.links[0].directions[0].packets["dropped"]
    kernel = report.ports[0].kernel
    return {
        **{name.replace("_", " "): count for name, count in causes.items()},
        "RX full": kernel["rx_ring_full"],
        "dropped by the kernel": kernel["rx_dropped"],
    }
