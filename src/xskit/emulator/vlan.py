"""VLAN tags stay in the packets: the offloads that take them out are switched off while a link runs.

A tag that lies beside the packet (skb->vlan_tci) is not seen by AF_XDP, and would be lost. It comes to lie there when a
NIC takes it out on receipt, and behind a veth pair when the far end's stack leaves it to its device to put it in.
"""

from __future__ import annotations

from xskit.emulator.ports import PortSpec
from xskit.errors import XskitError
from xskit.netconf.changes import SetOffload
from xskit.netconf.interfaces import LinkState, Watch
from xskit.netconf.journal import Journal
from xskit.netconf.namespaces import inside
from xskit.netconf.peers import far_end
from xskit.xsk.port import CARRIER_SECONDS

__all__ = ["keep_tags"]

_TAKING_OUT = ("rx-vlan-hw-parse", "rx-vlan-stag-hw-parse")
_PUTTING_IN = ("tx-vlan-hw-insert", "tx-vlan-stag-hw-insert")
"""By the kernel's names (net/ethtool/common.c): tags of 802.1Q, and of 802.1ad."""


def keep_tags(journal: Journal, port: PortSpec) -> list[str]:
    """Switch the offloads off, at the port and at the far end of a veth; a sentence for what could not be done."""
    warnings = _switch_off(journal, port, _TAKING_OUT, f"port {port}")
    try:
        far = far_end(port.name, port.namespace)
    except XskitError as error:
        return [*warnings, f"port {port}: VLAN tags may be lost: {error.cause}; there: ethtool -K INTERFACE txvlan off"]
    if far is not None:
        other = PortSpec(far.name, far.namespace)
        warnings += _switch_off(journal, other, _PUTTING_IN, f"port {port}, at its far end")
    return warnings


def _switch_off(journal: Journal, port: PortSpec, offloads: tuple[str, ...], place: str) -> list[str]:
    warnings = []
    with inside(port.namespace), Watch() as watch:
        before = watch.state(port.name)
        for offload in offloads:
            try:
                journal.apply(SetOffload(port.name, {offload: False}, namespace=port.namespace))
            except XskitError as error:
                warnings.append(f"{place}: VLAN tags may be lost: {error.cause}")
        if before is LinkState.UP:  # some drivers reset the NIC
            watch.wait(port.name, timeout_s=CARRIER_SECONDS)
    return warnings
