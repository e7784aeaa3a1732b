"""What is counted at a port: by the kernel, and by the XDP program."""

from __future__ import annotations

from collections.abc import Mapping

from xskit.bpf.redirect import Outcome
from xskit.emulator.ports import PortSpec
from xskit.emulator.report_data import PortReport
from xskit.emulator.settings import EngineSettings
from xskit.xsk.port import Port

__all__ = ["counters", "kept_chatter", "port_report"]

_KERNEL_NAMES = {
    "rx_dropped": "rx_dropped",
    "rx_invalid_descriptors": "rx_invalid_descs",
    "tx_invalid_descriptors": "tx_invalid_descs",
    "rx_ring_full": "rx_ring_full",
    "rx_fill_ring_empty": "rx_fill_ring_empty_descs",
    "tx_ring_empty": "tx_ring_empty_descs",
}
"""Our names of the six XDP_STATISTICS, and the kernel's (struct xdp_statistics)."""


def counters(port: Port) -> dict[str, int]:
    """XDP_STATISTICS and what our program dropped."""
    counted = port.statistics()
    kernel = {name: getattr(counted, ours) for ours, name in _KERNEL_NAMES.items()}
    return kernel | {"chatter": port.outcomes()[Outcome.CHATTER]}


def port_report(spec: PortSpec, port: Port, before: Mapping[str, int]) -> PortReport:
    """What was counted since the workers started: before that nobody was there to take packets."""
    counted = {name: value - before[name] for name, value in counters(port).items()}
    return PortReport(
        name=str(spec),
        xdp_mode=port.xdp_mode,
        zero_copy=port.zero_copy,
        queues=len(port.queues),
        chatter=counted.pop("chatter"),
        kernel=counted,
        why=list(port.why),
    )


def kept_chatter(engine: EngineSettings, port: PortSpec) -> list[str]:
    """A warning where somebody has asked to drop the chatter of an interface that xskit did not make."""
    if engine.chatter == "drop" and "chatter" in engine.model_fields_set:
        return [f"{port}: chatter = drop has no effect: only packets of hosts that xskit made are dropped"]
    return []
