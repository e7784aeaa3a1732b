"""What is counted at a port since the workers started: by AF_XDP, by the XDP program, and by the interface.

A driver may drop a packet after AF_XDP has counted it as sent. The veth of older kernels does so if the far end refuses
the packet. The counters of the interface show that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from xskit.bpf.redirect import Outcome
from xskit.emulator.ports import LinkSpec, PortSpec
from xskit.emulator.report_data import LinkReport, PortReport
from xskit.emulator.settings import EngineSettings
from xskit.netconf.counters import InterfaceCounters, Sent
from xskit.netconf.namespaces import inside
from xskit.xsk.port import Port

__all__ = ["PortCounts", "kept_chatter", "port_reports"]

_KERNEL_NAMES = {
    "rx_dropped": "rx_dropped",
    "rx_invalid_descriptors": "rx_invalid_descs",
    "tx_invalid_descriptors": "tx_invalid_descs",
    "rx_ring_full": "rx_ring_full",
    "rx_fill_ring_empty": "rx_fill_ring_empty_descs",
    "tx_ring_empty": "tx_ring_empty_descs",
}
"""Our names of the six XDP_STATISTICS, and the kernel's (struct xdp_statistics)."""

_SETTLE_S = 1.5
"""How long a driver's counters may lack the last packets: some drivers read them from the NIC once a second."""
_LOOK_EVERY_S = 0.02


class PortCounts:
    """The counters of one port; counts from when it is made, and again from `begin` on."""

    def __init__(self, spec: PortSpec, port: Port) -> None:
        self._spec = spec
        self._port = port
        with inside(spec.namespace):
            self._interface = InterfaceCounters(port.ifindex)
        self.begin()

    def begin(self) -> None:
        """Count from now on: before the workers start, nobody takes packets."""
        self._before = _counters(self._port)
        self._first = self._interface.read() or Sent(0, 0, 0)

    def report(self, given: int, tx_refused: int, *, settle: bool) -> PortReport:
        """What was counted.

        Args:
            given: packets that the kernel took for this port, including those that it refused (`tx_refused`).
            tx_refused: those of them that are already counted as dropped.
            settle: wait a little for a driver that counts late.
        """
        sent = self._sent(given if settle else 0)
        counted = sent is not None and (given == 0 or sent.all > 0)
        sent = sent or Sent(0, 0, 0)
        kernel = {name: value - self._before[name] for name, value in _counters(self._port).items()}
        return PortReport(
            name=str(self._spec),
            xdp_mode=self._port.xdp_mode,
            zero_copy=self._port.zero_copy,
            queues=len(self._port.queues),
            chatter=kernel.pop("chatter"),
            kernel=kernel,
            interface={"tx_packets": sent.packets, "tx_errors": sent.errors, "tx_dropped": sent.dropped},
            egress_refused=max(0, sent.errors + sent.dropped - tx_refused) if counted else None,
            egress_uncounted=max(0, given - sent.all),
            why=list(self._port.why),
        )

    def _sent(self, expected: int) -> Sent | None:
        """Since `begin`; None when the interface is gone."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            now = self._interface.read()
            if now is None:
                return None
            sent = now - self._first
            if sent.all >= expected or time.monotonic() > deadline:
                return sent
            time.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """Give the socket back."""
        self._interface.close()


def port_reports(
    counts: Mapping[PortSpec, PortCounts], specs: Sequence[LinkSpec], links: Sequence[LinkReport], *, over: bool
) -> list[PortReport]:
    """The reports of all ports. A port sends what the direction to it brings. `over`: no worker runs any more."""
    given = {}
    for spec, link in zip(specs, links, strict=True):
        for port, direction in zip(spec.ports[::-1], link.directions, strict=True):
            refused = direction.packets["dropped"].get("tx_refused", 0)
            given[port] = (direction.packets["sent"] + refused, refused)
    return [counted.report(*given[port], settle=over) for port, counted in counts.items()]


def _counters(port: Port) -> dict[str, int]:
    """XDP_STATISTICS and what our program dropped."""
    counted = port.statistics()
    kernel = {name: getattr(counted, ours) for ours, name in _KERNEL_NAMES.items()}
    return kernel | {"chatter": port.outcomes()[Outcome.CHATTER]}


def kept_chatter(engine: EngineSettings, port: PortSpec) -> list[str]:
    """A warning if the user asked to drop the chatter of an interface that xskit did not make."""
    if engine.chatter == "drop" and "chatter" in engine.model_fields_set:
        return [f"{port}: chatter = drop has no effect: xskit drops only the chatter of hosts that it made"]
    return []
