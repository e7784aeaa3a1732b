"""How long packets may be on a link: the MTUs of its ports and of the far ends behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xskit.emulator.offloads import Surroundings
from xskit.emulator.ports import LinkSpec, PortSpec
from xskit.emulator.sizing import FRAMING_BYTES, HEADROOM_BYTES, MOST_MTU, PortFacts

__all__ = ["differing_mtus", "longest_sent", "spare_bytes"]


def spare_bytes(facts: PortFacts, frame_size: int) -> int:
    """How much longer a port's packets may become without taking more frames, or passing the largest MTU."""
    usable = frame_size - HEADROOM_BYTES
    return min(math.ceil(facts.longest / usable) * usable - facts.longest, MOST_MTU - facts.mtu)


def longest_sent(facts: Mapping[PortSpec, PortFacts], around: Mapping[PortSpec, Surroundings]) -> dict[PortSpec, int]:
    """The longest packet that each port may send, in bytes with Ethernet header.

    The far end of a veth refuses what is longer than its own MTU allows (__is_skb_forwardable), so that counts too.
    """
    return {port: min(_mtus(port, facts, around).values()) + FRAMING_BYTES for port in facts}


def differing_mtus(
    links: Sequence[LinkSpec], facts: Mapping[PortSpec, PortFacts], around: Mapping[PortSpec, Surroundings]
) -> list[str]:
    """A sentence for each link along which the MTUs differ, with the commands that make them equal."""
    sentences = []
    for link in links:
        first, second = link.ports
        mtus = {**dict(reversed(_mtus(first, facts, around).items())), **_mtus(second, facts, around)}
        largest = max(mtus.values())
        smaller = [interface for interface, size in mtus.items() if size < largest]
        if smaller:
            sizes = ", ".join(f"{interface} {size}" for interface, size in mtus.items())
            commands = "; ".join(_command(interface, largest) for interface in smaller)
            sentences.append(f"link {link.name}: MTUs differ ({sizes}), so longer packets are dropped; try: {commands}")
    return sentences


def _mtus(
    port: PortSpec, facts: Mapping[PortSpec, PortFacts], around: Mapping[PortSpec, Surroundings]
) -> dict[PortSpec, int]:
    """The MTU of a port, and that of its far end where it is known."""
    found = {port: facts[port].mtu}
    behind = around.get(port)
    if behind is not None and behind.far is not None and behind.far_mtu is not None:
        found[behind.far] = behind.far_mtu
    return found


def _command(interface: PortSpec, mtu: int) -> str:
    ip = "ip" if interface.namespace is None else f"ip -n {interface.namespace}"
    return f"{ip} link set {interface.name} mtu {mtu}"
