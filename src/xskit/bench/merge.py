"""Sessions of several guests, each a Session of its own, as one: its cases differ by kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xskit.bench.machine import describe_machine
from xskit.bench.results import Session

__all__ = ["GuestSession", "merged"]


@dataclass(frozen=True)
class GuestSession:
    """What one guest measured, and what it was.

    Attributes:
        kernel: as it was asked for: a version, or a name.
        session: its own.
        accelerator: "KVM" or "TCG (emulation)".
        counted: its clock counted instructions.
        nic: the model it was measured on; "": veth pairs.
        cpus: how many it had.
    """

    kernel: str
    session: Session
    accelerator: str
    counted: bool
    nic: str
    cpus: int

    def facts(self) -> dict[str, Any]:
        """For Session.guests."""
        return {
            "accelerator": self.accelerator,
            "counted": self.counted,
            "nic": self.nic,
            "cpus": self.cpus,
            "machine": self.session.machine,
        }


def merged(found: Sequence[GuestSession], command: Sequence[str], machine: Mapping[str, Any] | None = None) -> Session:
    """One session of all guests' cases, in the guests' order; `machine` is this one, described when left out."""
    whole = Session(
        machine=dict(machine) if machine is not None else describe_machine(),
        command=list(command),
        conditions=found[0].session.conditions,
        started=found[0].session.started,
    )
    for guest in found:
        whole.guests[guest.kernel] = guest.facts()
        whole.seconds += guest.session.seconds
        whole.interrupted |= guest.session.interrupted
        for outcome in guest.session.outcomes:
            whole.outcomes.append(replace(outcome, case=replace(outcome.case, kernel=guest.kernel, nic=guest.nic)))
    return whole
