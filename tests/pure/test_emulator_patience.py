"""What a slow link does to the hosts at its ends, said in the report."""

from __future__ import annotations

import pytest

from xskit.emulator.patience import delay_remarks
from xskit.emulator.ports import LinkSpec, PortSpec
from xskit.emulator.settings import LinkSettings

SYN = (
    "link l: a round trip takes 1s or more, but TCP retransmits a SYN after 1s without an answer (RFC 6298): "
    "a second SYN does not mean loss"
)
ARP = "link l: a round trip takes 3s or more, but ARP and ND give up after 3s: "
OURS = ARP + "set neighbours to permanent"
FOREIGN = ARP + "on both hosts: ip neighbour replace ADDRESS lladdr MAC dev INTERFACE nud permanent"
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("round_trip_ns", "known", "owned", "said"),
    [
        (SECOND - 1, False, True, []),
        (SECOND, False, True, [SYN]),
        (3 * SECOND - 1, False, False, [SYN]),
        (3 * SECOND, False, True, [SYN, OURS]),
        (3 * SECOND, False, False, [SYN, FOREIGN]),
        (60 * SECOND, True, True, [SYN]),
    ],
)
def test_what_is_said(round_trip_ns, known, owned, said):
    ports = (PortSpec("xka", owned=owned), PortSpec("xkb", owned=owned))
    spec = LinkSpec("l", ports, LinkSettings(), neighbours_known=known)
    assert delay_remarks(spec, round_trip_ns) == said
