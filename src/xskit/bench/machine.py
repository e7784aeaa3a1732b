"""The machine and the interfaces, as far as they decide what a benchmark says."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from xskit.bench.results import BindModeInUse
from xskit.errors import XskitError
from xskit.netconf import ethtool
from xskit.netconf.interfaces import control_socket, look
from xskit.netconf.netdev import device_features

__all__ = ["PASSING", "describe_interface", "describe_machine", "differences", "flat"]

PASSING = ("load", "free_bytes", "hostname")
"""Facts that change from minute to minute, or do not matter, and are not compared."""

_VULNERABILITIES = Path("/sys/devices/system/cpu/vulnerabilities")
_SYSCTLS = (
    "net/core/bpf_jit_enable",
    "net/core/bpf_jit_harden",
    "net/core/busy_poll",
    "net/core/busy_read",
    "net/core/dev_weight",
    "net/core/netdev_budget",
    "net/core/netdev_budget_usecs",
    "kernel/sched_rt_runtime_us",
    "kernel/numa_balancing",
    "vm/nr_hugepages",
)
_PACKAGES = ("xskit", "numba", "llvmlite", "numpy", "scipy")


def describe_machine() -> dict[str, Any]:
    """Kernel, CPU, mitigations, memory, settings, versions. What this machine does not tell is missing."""
    facts: dict[str, Any] = {
        "hostname": platform.node(),
        "kernel": {
            "release": platform.release(),
            "version": platform.version(),
            "command_line": _read("/proc/cmdline"),
            "preemption": _chosen(_read("/sys/kernel/debug/sched/preempt", "()")) or _preemption(),
            "sysctl": {name: value for name in _SYSCTLS if (value := _read(f"/proc/sys/{name}"))},
        },
        "cpu": _cpu(),
        "mitigations": _mitigations(),
        "memory": _memory(),
        "versions": {"python": platform.python_version(), **dict(_versions())},
        "load": [round(value, 2) for value in os.getloadavg()],
    }
    return facts


def describe_interface(name: str, mode: BindModeInUse) -> dict[str, Any]:
    """Driver, firmware, MTU, queues, rings, offloads, XDP features, and the CPUs of its interrupts."""
    facts = look(name)
    with control_socket() as control:
        driver = ethtool.driver_info(control, name)
        rings = ethtool.rings(control, name)
        offloads: list[str] = []
        with suppress(OSError):
            offloads = sorted(one.name for one in ethtool.features(control, name).values() if one.active)
    with suppress(XskitError):
        features = device_features(name)
    return {
        "name": name,
        "kind": facts.kind or "hardware",
        "driver": driver.name,
        "driver_version": driver.version,
        "firmware": driver.firmware,
        "bus": driver.bus,
        "mtu": facts.mtu,
        "rx_queues": facts.rx_queues,
        "tx_queues": facts.tx_queues,
        "hardware_rings": {"rx": rings[0], "tx": rings[1]} if rings else None,
        "offloads": offloads,
        "xdp_features": _flags(features.xdp) if features else None,
        "xsk_features": _flags(features.xsk) if features else None,
        "zero_copy_segments": features.zero_copy_segments if features else None,
        "napi": _napi(name, facts.kind),
        "mode": str(mode),
    }


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Facts that differ, (name, first, second); what passes is left out. A fact that one side lacks is None there."""
    one, other = dict(flat(first)), dict(flat(second))
    names = [name for name in dict.fromkeys([*one, *other]) if name.split(".")[0] not in PASSING]
    return [
        (name, one.get(name), other.get(name))
        for name in names
        if name.rsplit(".", 1)[-1] not in PASSING and one.get(name) != other.get(name)
    ]


def flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Facts in facts get names with a dot."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read(path: str, without: str = "") -> str:
    """A file's text in one line, "" where there is none."""
    try:
        text = Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
    return " ".join(text.split()) if not without else text


def _chosen(text: str) -> str:
    """The word in brackets: how sysfs shows a choice."""
    found = re.search(r"[\[(]([^\])]+)[\])]", text)
    return found[1] if found else ""


def _preemption() -> str:
    found = re.search(r"PREEMPT\w*", platform.version())
    return found[0] if found else "none"


def _cpu() -> dict[str, Any]:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", "").split()
    return {
        "model": fields.get("model name") or fields.get("CPU implementer", platform.machine()),
        "architecture": platform.machine(),
        "microcode": fields.get("microcode", ""),
        "online": os.cpu_count(),
        "allowed": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in flags,
        "smt": _read("/sys/devices/system/cpu/smt/control"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "turbo_off": _read("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        "isolated": _read("/sys/devices/system/cpu/isolated"),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
    }


def _mitigations() -> dict[str, str]:
    if not _VULNERABILITIES.is_dir():
        return {}
    return {path.name: _read(str(path)) for path in sorted(_VULNERABILITIES.iterdir())}


def _memory() -> dict[str, Any]:
    sizes = dict(re.findall(r"(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text()))
    return {
        "total_bytes": int(sizes.get("MemTotal", 0)) * 1024,
        "free_bytes": int(sizes.get("MemAvailable", 0)) * 1024,
        "transparent_hugepages": _chosen(_read("/sys/kernel/mm/transparent_hugepage/enabled")),
    }


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            yield name, version(name)


def _flags(value: Any) -> list[str]:
    return [str(flag.name).lower() for flag in type(value) if flag in value and flag.value]


def _napi(name: str, kind: str) -> dict[str, Any]:
    """Where the interface's packets are received: the CPUs of its interrupts, or who does it instead."""
    if kind:
        return {"cpus": None, "by": "the CPU that sends" if kind == "veth" else "the device below"}
    found = {}
    with suppress(OSError):
        for entry in sorted(Path(f"/sys/class/net/{name}/device/msi_irqs").iterdir(), key=lambda one: int(one.name)):
            found[entry.name] = _read(f"/proc/irq/{entry.name}/effective_affinity_list")
    return {"cpus": sorted(set(found.values())), "by": f"{len(found)} interrupts"}
