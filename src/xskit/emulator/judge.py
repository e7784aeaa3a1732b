"""Whether a run counts, and a sentence for each reason why not.

A run is invalid when more packets left late than chance explains, when packets were lost that the settings did not ask
for, when a frame was not where it should have been, or when the books do not balance. Stalls of the host itself are
counted apart, and excuse nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xskit import units
from xskit.emulator.report_data import DirectionReport, PortReport, RunRecord
from xskit.emulator.significance import LATE_LIMIT, LATE_SHARE, improbable_loss, punctuality

__all__ = ["judge"]

_NOT_ASKED_FOR = {
    "memory_full": "were dropped because packet memory ran out; {remedy}",
    "tx_refused": "were refused by the kernel on sending",
    "port_down": "were due while the port was down",
    "super_packet": "were longer than the MTU of the port where they arrived: an offload merged them, or left them "
    "uncut; on the sender: ethtool -K INTERFACE tso off gso off; on the port: ethtool -K INTERFACE gro off lro off",
    "egress_mtu": "were longer than the MTU of the port where they leave, or of its far end; "
    "there: ip link set INTERFACE mtu BYTES",
    "too_many_fragments": "had more fragments than a sent packet may have",
}
"""Drop causes that no setting asks for, and what became of such packets."""

_KERNEL = {
    "rx_dropped": "the kernel dropped {} packets before xskit saw them",
    "rx_ring_full": "the kernel dropped {} packets before xskit saw them",
    "rx_invalid_descs": "the kernel rejected {} frames that xskit put into FILL",
    "tx_invalid_descs": "the kernel dropped {} descriptors that xskit put into TX",
}
"""Counters of XDP_STATISTICS that count lost packets or frames."""

_FRAMES = {
    "misplaced": "{} frames were not where they should have been",
    "stray_received": "{} entries in RX named no frame that the kernel had from FILL, or more bytes than it holds",
    "stray_completed": "{} entries in COMPLETION named no frame that the kernel had from TX",
}
"""Frames that the engine found elsewhere than it should have: an error in xskit or in a driver."""


def judge(
    report: RunRecord,
    *,
    imbalances: int,
    broken: Sequence[str],
    remedy: str,
    whole: bool = True,
) -> None:
    """Decide whether the run counts, and say why not; what cannot be decided becomes a warning.

    Args:
        report: gets `valid`, `invalid_because` and more `warnings`.
        imbalances: how often the packet counts did not balance.
        broken: sentences about what ended the run, or should have.
        remedy: what helps when packet memory ran out.
        whole: the numbers of each worker are of one moment.
    """
    reasons = list(broken)
    for link in report.links:
        for direction in link.directions:
            place = f"{link.name} {direction.name}"
            reasons += _late(place, direction)
            reasons += _lost(place, direction, remedy)
            report.warnings += _undecided(place, direction)
            reasons += _unfinished(place, direction)
            reasons += _astray(place, direction)
    for port in report.ports:
        reasons += _kernel(port)
        report.warnings += _uncounted(port)
    if imbalances:
        reasons.append(f"the packet counts did not balance {imbalances} times")
    if not whole:
        report.warnings.append("a worker did not answer in time, so the counts were not all read at the same moment")
    report.invalid_because = reasons
    report.valid = not reasons


def _late(place: str, direction: DirectionReport) -> Iterator[str]:
    """The engine counts late packets exactly, so the sentences give counts: no rounding can contradict them."""
    late = direction.lateness_ns
    if late["judgement"] == "late":
        yield f"{place}: {late['late']} of {late['packets']} packets left {_above(direction)} late {_ALLOWED}"
    received = direction.packets["received"]
    if punctuality(late["clamped_late"], received) == "late":
        yield (
            f"{place}: {late['clamped_late']} of {received} packets waited {_above(direction)} in the kernel before "
            f"xskit saw them {_ALLOWED}"
        )


def _undecided(place: str, direction: DirectionReport) -> Iterator[str]:
    late = direction.lateness_ns
    if late["late"] and late["judgement"] == "too few packets":
        yield (
            f"{place}: too few packets to judge lateness ({late['packets']}): {late['late']} of them left "
            f"{_above(direction)} late {_ALLOWED}"
        )
    received = direction.packets["received"]
    if late["clamped_late"] and punctuality(late["clamped_late"], received) == "too few packets":
        yield (
            f"{place}: too few packets to judge their time in the kernel ({received}): {late['clamped_late']} of them "
            f"waited {_above(direction)} there {_ALLOWED}"
        )
    if late["unstamped"]:
        yield (
            f"{place}: {late['unstamped']} of {received} packets have no arrival stamp, so "
            "their time in the kernel is unknown"
        )


_ALLOWED = f"(allowed: {LATE_SHARE:.0%})"


def _above(direction: DirectionReport) -> str:
    """The limit of lateness in words; after an update several may have held."""
    if direction.since_update_ns is not None:
        return f"more than {LATE_LIMIT}"
    return f"more than {_rounded_down(direction.lateness_ns['limit'])}"


def _rounded_down(value_ns: int) -> str:
    """Three digits, rounded down: whatever is more than the value is also more than this."""
    step: int = 10 ** max(len(str(value_ns)) - 3, 0)
    return units.format_duration(value_ns // step * step)


def _lost(place: str, direction: DirectionReport, remedy: str) -> Iterator[str]:
    dropped = direction.packets["dropped"]
    for cause, became in _NOT_ASKED_FOR.items():
        if dropped.get(cause):
            yield f"{place}: {dropped[cause]} packets {became.format(remedy=remedy)}"
    asked: Any = direction.asked["loss"]
    lost, offered = direction.achieved["loss_packets"]
    if improbable_loss(lost, offered, asked):
        yield (
            f"{place}: the loss stage dropped {lost} of {offered} packets, although the loss asked for is "
            f"{units.format_probability(asked)}"
        )


def _unfinished(place: str, direction: DirectionReport) -> Iterator[str]:
    if unfinished := direction.checksums.get("unfinished_checksum"):
        yield (
            f"{place}: {unfinished} packets left with an unfinished checksum: the sender leaves it to its device, and "
            "xskit cannot finish it (unfinished_checksum); on the sender: ethtool -K INTERFACE tx off"
        )


def _astray(place: str, direction: DirectionReport) -> Iterator[str]:
    for counter, became in _FRAMES.items():
        if count := direction.frames.get(counter):
            yield f"{place}: {became.format(count)} ({counter})"


def _uncounted(port: PortReport) -> Iterator[str]:
    """What is not known of the packets that a port sent."""
    if port.egress_refused is None:
        yield (
            f"port {port.name}: the interface does not count what AF_XDP sends, so it is unknown how many packets its "
            "driver dropped"
        )
    elif port.egress_uncounted:
        yield (
            f"port {port.name}: {port.egress_uncounted} sent packets are in none of its counters "
            "(tx_packets, tx_errors, tx_dropped): its driver may have dropped them"
        )


def _kernel(port: PortReport) -> Iterator[str]:
    if port.egress_refused:
        yield (
            f"port {port.name}: its driver or its far end dropped {port.egress_refused} packets that are counted as "
            "sent (egress_refused)"
        )
    for counter, became in _KERNEL.items():
        if port.kernel.get(counter):
            yield f"port {port.name}: {became.format(port.kernel[counter])} ({counter})"
