"""Whether the machine has the memory of a plan; and refusals in the words of the engine's settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xskit import units
from xskit.emulator.mistakes import CapacityError
from xskit.emulator.settings import EngineSettings
from xskit.emulator.sizing import MemoryPlan
from xskit.errors import Setting, XskitError
from xskit.units import apart

__all__ = ["available_bytes", "check_room", "engine_words", "memory_remedy"]

SHARE = 0.8
"""Of what is to spare: more than this is not recommended."""

_ENGINE_WORDS = dict.fromkeys(("rx", "tx", "fill", "completion"), ("ring_size", 2048)) | {
    "multi_buffer": ("mode", "native")
}
"""Settings of a single socket, and those of the engine that mend the same."""


def available_bytes() -> int:
    """What the kernel says can be had without swapping (proc_meminfo(5), MemAvailable)."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    found = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    return int(found["MemAvailable"][0]) * 1024


def check_room(plan: MemoryPlan, engine: EngineSettings) -> None:
    """Refuse a plan that this machine has no memory for, before the kernel ends processes for want of it.

    Raises:
        CapacityError: with both numbers.
    """
    spare = available_bytes()
    needed = plan.total_bytes - (plan.umem_bytes if engine.hugetlb else 0)  # the pool was set aside before
    if needed <= spare:
        return
    most = _rounded_down(int(spare * SHARE * plan.umem_bytes / plan.total_bytes))
    takes, left = apart((needed, spare), _about, 1)
    has = f"{takes} of memory in all, but this machine has {left} to spare"
    if engine.memory is not None:
        raise CapacityError(f"so much packet memory takes {has}", remedy=Setting("memory", most, "{} or less"))
    raise CapacityError(
        f"holding what is in flight at this rate, owd and queue takes {has}",
        remedy=Setting("memory", most, "a smaller rate, owd or queue; or {}, and what does not fit is dropped"),
    )


def memory_remedy(plan: MemoryPlan, engine: EngineSettings, needed: int) -> str:
    """What to do about packet memory that ran out, while it is still in use.

    Args:
        plan: of the memory that ran out.
        engine: its settings.
        needed: bytes of packet memory that the traffic needs, as far as that can be counted. If there was as much,
            packets were held for longer than asked: then the remedy names twice as much.
    """
    if needed <= plan.umem_bytes:
        needed = math.ceil(2 * plan.umem_bytes / (1 << 20)) << 20
    rest = (plan.total_bytes - plan.umem_bytes) * needed // plan.umem_bytes
    spare = available_bytes() + plan.total_bytes - (plan.umem_bytes if engine.hugetlb else 0)
    total = rest if engine.hugetlb else needed + rest
    if total > spare:
        takes, left = apart((total, spare), _about, 1)
        return (
            f"holding what came takes {takes} of memory in all, but this machine has {left} to spare: "
            "set a shorter owd, or send fewer packets"
        )
    return f"set memory to {units.format_size(needed)}"


@contextmanager
def engine_words() -> Iterator[None]:
    """What sockets raise in the block gets remedies that the engine has, too."""
    try:
        yield
    except XskitError as error:
        if isinstance(error.remedy, Setting) and error.remedy.name in _ENGINE_WORDS:
            error.remedy = Setting(*_ENGINE_WORDS[error.remedy.name])
        raise


def _about(size: float, digits: int) -> str:
    return f"{size / (1 << 30):.{digits}f}GiB" if size >= 1 << 30 else f"{size / (1 << 20):.{digits - 1}f}MiB"


def _rounded_down(size: int) -> str:
    return f"{size >> 30}GiB" if size >= 1 << 30 else f"{max(size >> 20, 1)}MiB"
