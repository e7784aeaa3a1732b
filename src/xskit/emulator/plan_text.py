"""The plan of links as text: what is in flight, what memory that takes, what the machine must allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xskit import units
from xskit.emulator.plan_data import PlanRecord, SizeRow

__all__ = ["size_text", "text"]


def text(plan: PlanRecord) -> str:
    """The whole plan, ready to print."""
    return "\n".join([*_asked(plan), "", *_sizes(plan), "", *_memory(plan), "", *_machine(plan)])


def size_text(value: float) -> str:
    """Bytes with three digits: 1.25 GiB. Not for reading back."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor:
            number = value / factor
            digits = 2 if number < 10 else 1 if number < 100 else 0
            return f"{number:.{digits}f}".rstrip("0").rstrip(".") + f" {unit}" if digits else f"{number:.0f} {unit}"
    return f"{value:.0f} B"


def _asked(plan: PlanRecord) -> list[str]:
    links = "1 link" if plan.links == 1 else f"{plan.links} links"
    queues = "1 queue" if plan.queues == 1 else f"{plan.queues} queues"
    lines = [f"{links}: {plan.ports} ports of {queues}, MTU {plan.mtu}"]
    forward, reverse = plan.asked["forward"], plan.asked["reverse"]
    if forward == reverse:
        return [*lines, f"each direction: {_direction(forward)}"]
    return [*lines, f"forward: {_direction(forward)}", f"reverse: {_direction(reverse)}"]


def _direction(asked: Mapping[str, Any]) -> str:
    rate = "no rate" if asked["rate_bps"] is None else units.format_rate(asked["rate_bps"])
    jitter = f", jitter {units.format_duration(asked['jitter_ns'])}" if asked["jitter_ns"] else ""
    return f"{rate}, owd {units.format_duration(asked['owd_ns'])}{jitter}, queue {asked['queue']['limit']}"


def _sizes(plan: PlanRecord) -> list[str]:
    if any(row.packets is None for row in plan.sizes):
        share = plan.memory.directions[0]
        return [
            "Without a rate nobody knows what will be in flight: "
            f"{share.packets} packets of one frame have room in each direction."
        ]
    lines = [f"{'in flight, of':>16} {'packets':>11} {'frames each':>11} {'held in frames':>14} {'packed':>9}"]
    lines += [_size_line(row) for row in plan.sizes]
    if any(not row.covered for row in plan.sizes):
        lines.append("  * more than this memory holds: --packet-size says what will come, --memory how much to spend")
    return lines


def _size_line(row: SizeRow) -> str:
    frames = f"{row.frames_per_packet:.2f}".rstrip("0").rstrip(".")
    size = (
        f"{row.packet_bytes:.0f} B" if row.packet_bytes == int(row.packet_bytes) else f"mean {row.packet_bytes:.0f} B"
    )
    assert row.packets is not None
    assert row.held_bytes is not None
    assert row.packed_bytes is not None
    held, packed = size_text(row.held_bytes), size_text(row.packed_bytes)
    return f"{size:>16} {row.packets:>11} {frames:>11} {held:>14} {packed:>9}{'' if row.covered else ' *'}"


def _memory(plan: PlanRecord) -> list[str]:
    memory, kernel, rings = plan.memory, plan.kernel, plan.rings
    pairs = plan.ports * plan.queues
    rows = [
        ("packet memory", memory.umem_bytes, f"{memory.frames} frames of {memory.frame_size} bytes (UMEM)"),
        ("packet table", memory.table_bytes, "64 bytes a frame"),
        ("stores", memory.stores_bytes, "what stages hold, and the lists of free frames"),
        ("kernel: frames", kernel.heads_allocated, f"128 bytes a frame for each of {pairs} (port, queue): "
         f"{size_text(kernel.heads)}, rounded up as it allocates"),
        ("kernel: pages", kernel.page_lists, "two pointers a page for each port"),
        ("kernel: rings", kernel.rings, f"RX {rings.rx}, TX {rings.tx}, FILL {rings.fill}, "
         f"COMPLETION {rings.completion} entries, each queue"),
        ("in all", plan.total_bytes, ""),
    ]  # fmt: skip
    lines = [f"{name:<15} {size_text(size):>9}  {note}".rstrip() for name, size, note in rows]
    fill = sum(share.fill_reserve for share in memory.directions)
    lines.append(f"{fill} of the frames are kept for FILL; {_fill_rule(plan)}")
    return lines


def _fill_rule(plan: PlanRecord) -> str:
    rings = plan.rings
    if rings.hardware:
        return f"it has room for the hardware's {rings.hardware} entries and RX's {rings.rx}"
    return "for zero copy say --hardware-ring, as in `ethtool -g`"


def _machine(plan: PlanRecord) -> list[str]:
    lines = [
        f"huge pages      {plan.hugepages} of 2 MiB, for --hugetlb: sysctl vm.nr_hugepages={plan.hugepages}",
        f"locked memory   {size_text(plan.memlock_bytes)}, once for each port; no limit with CAP_IPC_LOCK: "
        f"ulimit -l {-(-plan.memlock_bytes // 1024)}",
    ]
    for limit in plan.limits:
        word = "take it" if limit.fits else "refuse it"
        largest, needed = size_text(limit.largest_bytes), plan.memory.umem_bytes
        if largest == size_text(needed) and limit.largest_bytes != needed:
            largest = units.format_size(limit.largest_bytes)
        lines.append(f"kernels {limit.kernels:<7} {word}: {largest} at most, because {limit.why}")
    pool = plan.page_pool
    lines.append(
        f"veth page pool  {size_text(pool.bytes_per_port)} for each port in native mode (Linux 6.3), whatever is in "
        f"flight: {pool.pages_per_queue} pages a queue"
    )
    lines.append(f"as the emulator takes it: --memory {units.format_size(plan.memory.umem_bytes)}")
    return lines
