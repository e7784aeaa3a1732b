"""Figures and cases as a person reads them; never by locale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xskit.bench.inference import Spread
from xskit.bench.metrics import Metric
from xskit.units import format_duration

__all__ = ["case_words", "figure", "interval", "option_word"]

_NAMES = {
    "xdp": "mode",
    "cycle_ns": "tx-cycle",
    "destination_mac": "tx-dmac",
    "source_mac": "tx-smac",
    "multi_buffer": "frags",
    "queues": "queue",
    "sharers": "sockets",
    "interfaces": "interface",
    "vlan": "tx-vlan-id",
    "vlan_priority": "tx-vlan-pri",
    "stamped": "tstamp",
}


_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


def figure(metric: Metric, value: float) -> str:
    """`3.340 Mpps`, `1.600 Gbit/s`, `12.30 ns`, `0.50 %`, `5135 instr`."""
    factor, unit = _scale(metric, value)
    return f"{_digits(value / factor)} {unit}"


def interval(metric: Metric, spread: Spread) -> str:
    """The 95 % interval of the median in the median's unit; with too few runs for one, the range, and said so."""
    few = spread.low is None or spread.high is None
    if few and spread.n < 2:
        return ""
    low, high = (spread.least, spread.most) if few else (spread.low or 0.0, spread.high or 0.0)
    factor, unit = _scale(metric, spread.median)
    return f"{'range ' if few else ''}{_digits(low / factor)} .. {_digits(high / factor)} {unit}"


def _scale(metric: Metric, value: float) -> tuple[float, str]:
    """What to divide by, and the unit of the result."""
    if metric.unit == "1":
        return 0.01, "%"
    if metric.unit in ("instructions", "bytes"):
        return 1.0, {"instructions": "instr"}.get(metric.unit, metric.unit)
    steps = _TIMES if metric.unit == "ns" else _PREFIXES
    factor, prefix = next(((factor, prefix) for factor, prefix in steps if abs(value) >= factor), steps[-1])
    return factor, prefix if metric.unit == "ns" else f"{prefix}{metric.unit}"


def _digits(value: float) -> str:
    """Four digits that matter."""
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, 4 - whole)}f}"


def option_word(name: str) -> str:
    """What the option for a field of a case is called."""
    return _NAMES.get(name, name.replace("_", "-"))


def case_words(label: Mapping[str, Any], separator: str = ", ") -> str:
    """`rxdrop, packet-size 64, mode native`."""
    parts = []
    for name, value in label.items():
        if name == "mode":
            parts.append(str(value))
            continue
        word = option_word(name)
        if value is True or value is False:
            parts.append(word if value else f"no {word}")
        elif name == "cycle_ns":
            parts.append(f"{word} {format_duration(value)}")
        elif isinstance(value, tuple):
            parts.append(f"{word} {'+'.join(map(str, value)) or 'veth'}")
        else:
            parts.append(f"{word} {value}")
    return separator.join(parts)
