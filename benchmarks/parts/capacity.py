"""Part `memory`: much packet memory registered, many packets in flight at once, and what the memory plan had said.

Measured is what this process has resident more than before (/proc/self/smaps_rollup) and what the kernel has taken
by vmalloc more than before (/proc/meminfo: its 128 bytes for each frame and registration lie there).
"""

from __future__ import annotations

import gc
import time
from pathlib import Path

from bed import EGRESS, INGRESS, Bed
from measure import Result, on_cpu, other_cpu
from xskit.emulator.emulator import Emulator, LinkSpec, PortSpec, compile_data_plane
from xskit.emulator.settings import EngineSettings, link_settings
from xskit.units import format_size

TOLERANCE = 0.10
GROUP, INTERVAL_NS = 128, 250_000
RING = 1 << 16


def kibibytes(path: str, field: str) -> int:
    """A field of a file such as /proc/meminfo, in bytes."""
    for line in Path(path).read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) << 10
    raise SystemExit(f"{path} has no {field}")


def memory_in_use() -> int:
    """What this process and the kernel's vmalloc hold, in bytes."""
    gc.collect()
    return kibibytes("/proc/self/smaps_rollup", "Rss") + kibibytes("/proc/meminfo", "VmallocUsed")


def measure(cpu: int, memory_bytes: int, packets: int, owd_s: int) -> list[Result]:
    """Register, fill, drain."""
    settings = link_settings({"forward": {"owd": f"{owd_s}s"}})
    engine = EngineSettings.model_validate(
        {"memory": f"{memory_bytes}B", "frame_size": 2048, "ring_size": RING, "cpus": (cpu,)}
    )
    with Bed() as bed:
        ports = (PortSpec(INGRESS, bed.namespace, owned=True), PortSpec(EGRESS, bed.namespace, owned=True))
        emulator = Emulator([LinkSpec("bench", ports, settings)], engine)
        compile_data_plane([settings.forward, settings.reverse])
        before = memory_in_use()
        with emulator:
            assert emulator.plan is not None
            planned, found = emulator.plan.total_bytes, memory_in_use() - before
            counters = emulator.links["bench"].forward.live.pipeline.counters
            on_cpu(other_cpu(cpu), lambda: bed.generator.pace(packets, INTERVAL_NS, GROUP))
            time.sleep(0.1)
            at_once = counters.in_flight
            deadline = time.monotonic() + 3 * owd_s
            while counters.in_flight and time.monotonic() < deadline:
                time.sleep(0.1)
            report = emulator.report().as_dict()
    forward = report["links"][0]["directions"][0]["packets"]
    kernel = {name: value for port in report["ports"] for name, value in port["kernel"].items() if value}
    none_lost = forward["received"] == forward["sent"] == packets
    too_slow = none_lost and at_once < packets  # the sender took longer than the owd: others had its CPU
    sizes = f"{format_size(memory_bytes)} of packet memory"
    return [
        Result(
            "memory",
            f"{sizes}: measured / planned",
            f"{found / planned:.3f}",
            f"{found / 2**30:.2f} of {planned / 2**30:.2f} GiB",
            f"within {TOLERANCE:.0%}",
            abs(found / planned - 1) <= TOLERANCE,
            {"measured_bytes": found, "planned_bytes": planned},
        ),
        Result(
            "memory",
            f"{sizes}: {packets:,} packets at once",
            f"{at_once:,} in flight",
            f"{forward['received']:,} came, {forward['sent']:,} left",
            "all, none lost",
            None if too_slow else none_lost,
            {"packets": forward, "kernel": kernel},
        ),
    ]


def run(cpu: int, quick: bool) -> list[Result]:
    """The lines of the table."""
    memory_bytes, packets, owd_s = (1 << 30, 100_000, 4) if quick else (10 << 30, 1_000_000, 20)
    needed = memory_bytes * 5 // 4 + (1 << 30)
    available = kibibytes("/proc/meminfo", "MemAvailable")
    if available < needed:
        what = f"{format_size(memory_bytes)} of packet memory"
        return [Result("memory", what, "not run", f"{available / 2**30:.1f} GiB free, {needed / 2**30:.1f} needed")]
    return measure(cpu, memory_bytes, packets, owd_s)
