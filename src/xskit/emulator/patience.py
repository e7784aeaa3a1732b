"""How long the hosts at the ends of a link wait for an answer, and what a link slower than that does to them."""

from __future__ import annotations

from xskit.emulator.ports import LinkSpec

__all__ = ["delay_remarks"]

RETRANSMISSION_NS = 1_000_000_000
"""TCP retransmits a SYN that is not answered within this time (RFC 6298 section 2, TCP_TIMEOUT_INIT)."""
RESOLUTION_NS = 3_000_000_000
"""ARP and neighbour discovery (ND) give up after this time: three requests, one per second (arp(7), mcast_solicit)."""


def delay_remarks(spec: LinkSpec, round_trip_ns: int) -> list[str]:
    """What a round trip of at least `round_trip_ns` does to the hosts: sentences that an update seldom changes."""
    found = []
    if round_trip_ns >= RETRANSMISSION_NS:
        found.append(
            f"link {spec.name}: a round trip takes 1s or more, but TCP retransmits a SYN after 1s without an answer "
            "(RFC 6298): a second SYN does not mean loss"
        )
    if round_trip_ns >= RESOLUTION_NS and not spec.neighbours_known:
        ours = all(port.owned for port in spec.ports)
        command = "ip neighbour replace ADDRESS lladdr MAC dev INTERFACE nud permanent"
        remedy = "set neighbours to permanent" if ours else f"on both hosts: {command}"
        found.append(f"link {spec.name}: a round trip takes 3s or more, but ARP and ND give up after 3s: {remedy}")
    return found
