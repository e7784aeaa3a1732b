"""Packets arrive whole, as from a wire: offloads that prevent this are off while a link runs.

At the port, and at the far end of a veth:

    VLAN tags   AF_XDP does not see a tag that lies beside the packet (skb->vlan_tci), so the tag would be lost. A NIC
                strips tags on receipt; behind a veth, the far end's stack leaves them to its device.
    checksums   Behind a veth, the far end's stack leaves the checksum of TCP, UDP or SCTP to its device, whatever
                encloses it. Without that offload the stack finishes the checksums of all packets that leave by the far
                end, including those of interfaces above it and forwarded ones (validate_xmit_skb).
    segments    In generic mode the port gets what the far end's stack leaves to its device to cut, and what receive
                offload has merged.

A tag inside the packet makes it 4 bytes longer, which counts against the MTU of the port (__is_skb_forwardable). So the
port's MTU grows, and packets that fitted before still fit. (The socket in `portends.py` brings them to the far end.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xskit.emulator.ports import PortSpec
from xskit.errors import XskitError
from xskit.netconf import ethtool
from xskit.netconf.changes import SetMtu, SetOffload
from xskit.netconf.interfaces import LinkState, Watch, control_socket, mtu
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import inside
from xskit.netconf.peers import FarEnd, far_end
from xskit.xsk.port import CARRIER_SECONDS

__all__ = [
    "CUTTING",
    "GROWTH_BYTES",
    "PUTTING_IN",
    "SUMMING",
    "Surroundings",
    "expect_tags",
    "merge_nothing",
    "take_whole_packets",
]

GROWTH_BYTES = 8
"""A port's MTU grows by two VLAN tags. For a packet that comes, veth counts the outer tag against the MTU. For one that
leaves, a packet socket counts both tags if the outer one is of 802.1ad (packet_extra_vlan_len_allowed)."""

_TAKING_OUT = ("rx-vlan-hw-parse", "rx-vlan-stag-hw-parse")
PUTTING_IN = ("tx-vlan-hw-insert", "tx-vlan-stag-hw-insert")
"""By the kernel's names (net/ethtool/common.c): tags of 802.1Q, and of 802.1ad."""
SUMMING = ("tx-checksum-*",)
CUTTING = ("tx-tcp*-segmentation", "tx-udp-segmentation", "tx-sctp-segmentation", "tx-gso-list")
_MERGING = ("rx-gro", "rx-gro-hw", "rx-lro")

_TAGS_LOST = "VLAN tags may be lost"
_SUMS_LEFT = "xskit finishes the checksums of packets that it can parse"
_UNCUT = "packets longer than the MTU may come (super_packet)"


@dataclass
class Surroundings:
    """What lies around a port.

    Attributes:
        far: the far end of a veth, where it can be reached.
        far_mtu: its MTU in bytes.
        grown: the port's MTU was raised for the tags that the far end's stack now inserts into packets.
        warnings: a sentence for each thing that could not be done.
    """

    far: PortSpec | None = None
    far_mtu: int | None = None
    grown: bool = False
    warnings: list[str] = field(default_factory=list)


def take_whole_packets(journal: Journal, port: PortSpec, *, room_bytes: int) -> Surroundings:
    """Switch offloads off, at the port and at the far end of a veth.

    `room_bytes` is how much larger the port's MTU may become.
    """
    found = Surroundings()
    place = f"port {port}"
    found.warnings += _switch_off(journal, port, _TAKING_OUT, f"{place}: {_TAGS_LOST}")
    try:
        far = far_end(port.name, port.namespace)
    except XskitError as error:
        found.warnings.append(
            f"{place}: {error.cause}, so offloads stay on there: {_TAGS_LOST}, and {_SUMS_LEFT}; "
            "at the far end: ethtool -K INTERFACE tx off txvlan off"
        )
        return found
    if far is None:
        return found
    _look_beyond(found, far)
    assert found.far is not None
    beyond = f"{place}, at its far end"
    if _is_on(found.far, PUTTING_IN):
        _make_room(found, journal, port, room_bytes)
        found.warnings += _switch_off(journal, found.far, PUTTING_IN, f"{beyond}: {_TAGS_LOST}")
    found.warnings += _switch_off(journal, found.far, SUMMING, f"{beyond}: {_SUMS_LEFT}")
    found.warnings += _switch_off(journal, found.far, CUTTING, f"{beyond}: {_UNCUT}")
    return found


def expect_tags(journal: Journal, port: PortSpec, *, room_bytes: int) -> Surroundings:
    """Make room for VLAN tags at an owned port, whose far end has had its offloads off from the start."""
    found = Surroundings()
    far = far_end(port.name, port.namespace)
    if far is not None:
        _look_beyond(found, far)
        _make_room(found, journal, port, room_bytes)
    return found


def merge_nothing(journal: Journal, port: PortSpec) -> list[str]:
    """Switch receive offload off at a port in generic mode, which comes behind it."""
    return _switch_off(journal, port, _MERGING, f"port {port}: {_UNCUT}")


def _look_beyond(found: Surroundings, far: FarEnd) -> None:
    found.far = PortSpec(far.name, far.namespace)
    with inside(far.namespace):
        found.far_mtu = mtu(far.name)


def _make_room(found: Surroundings, journal: Journal, port: PortSpec, room_bytes: int) -> None:
    if room_bytes < GROWTH_BYTES:
        return
    with inside(port.namespace):
        size_bytes = mtu(port.name) + GROWTH_BYTES
    try:
        journal.apply(SetMtu(port.name, size_bytes, namespace=port.namespace))
    except XskitError as error:
        found.warnings.append(f"port {port}: full-size packets with two VLAN tags do not fit: {error.cause}")
    else:
        found.grown = True


def _is_on(port: PortSpec, offloads: Sequence[str]) -> bool:
    with inside(port.namespace), control_socket() as control:
        known = ethtool.features(control, port.name)
    return any(known[name].active for name in offloads if name in known)


def _switch_off(journal: Journal, port: PortSpec, offloads: Sequence[str], meaning: str) -> list[str]:
    warnings = []
    with inside(port.namespace), Watch() as watch:
        before = watch.state(port.name)
        for offload in offloads:
            try:
                journal.apply(SetOffload(port.name, {offload: False}, namespace=port.namespace))
            except XskitError as error:
                warnings.append(f"{meaning}: {error.cause}")
        if before is LinkState.UP:  # some drivers reset the NIC
            watch.wait(port.name, timeout_s=CARRIER_SECONDS)
    return warnings
