"""The plan against what a running link takes: user memory by smaps, the kernel's by its list of vmalloc areas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.real.lab_rig import pair
from xskit.emulator import emulator as module
from xskit.emulator.plan import plan
from xskit.emulator.settings import EngineSettings, link_settings, read
from xskit.lab import Lab

pytestmark = pytest.mark.root

LINK = {"rate": "1Gbit", "owd": "700ms", "queue": "100ms"}
WITHIN = 0.05


def anonymous_bytes() -> int:
    """What this process has in memory that is no file's (proc(5), smaps_rollup)."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous: +(\d+) kB", rollup, re.MULTILINE)[1]) * 1024


def buffer_heads() -> dict[str, int]:
    """Bytes of each area that the kernel made for a pool of frames, by its place."""
    lines = Path("/proc/vmallocinfo").read_text().splitlines()
    found = (re.match(r"(\S+) +\d+ xp_create_and_assign_umem\S* pages=(\d+)", line) for line in lines)
    return {match[1]: int(match[2]) * 4096 for match in found if match}


@pytest.fixture
def measured(monkeypatch):
    """What making each part of an emulator has added to this process's memory."""
    taken: dict[str, int] = {}

    def measure(name):
        made = getattr(module, name)

        def wrapped(*arguments, **options):
            before = anonymous_bytes()
            result = made(*arguments, **options)
            taken[name] = taken.get(name, 0) + anonymous_bytes() - before
            return result

        monkeypatch.setattr(module, name, wrapped)

    for name in ("Umem", "PacketTable", "LiveDirection"):
        measure(name)
    return taken


def test_user_memory_is_as_planned(measured):
    with pair(engine={"debug": False}, **LINK) as made:
        emulator = made.link.emulator
        found = plan(link_settings(LINK))
        assert emulator.plan == found.memory
        assert measured["Umem"] == pytest.approx(found.memory.umem_bytes, rel=WITHIN)
        assert measured["PacketTable"] == pytest.approx(found.memory.table_bytes, rel=WITHIN)
        assert measured["LiveDirection"] == pytest.approx(found.memory.stores_bytes, rel=WITHIN)


def test_kernel_memory_is_as_planned():
    """Other packet memories may come and go meanwhile: an area counts if it is as large as none but ours would be."""
    found = plan(link_settings(LINK))
    each = found.kernel.heads / (found.ports * found.queues)
    assert each > 4 << 20  # so that the kernel takes vmalloc, whose areas can be seen
    before = buffer_heads()
    with pair(engine={"debug": False}, **LINK):
        new = {place: size for place, size in buffer_heads().items() if place not in before}
        ours = [size for size in new.values() if each <= size <= 2 * each]
        assert sum(ours) == pytest.approx(found.kernel.heads_allocated, rel=WITHIN)
        assert sum(ours) >= found.kernel.heads


def test_an_emulator_given_the_planned_memory_has_as_many_frames():
    found = plan(link_settings(LINK))
    engine = {"memory": f"{found.memory.umem_bytes}B"}
    with Lab(**engine) as lab:
        link = lab.link(lab.host("a"), lab.host("b"), **LINK)
        assert link.emulator.plan.frames == found.memory.frames
        assert read(EngineSettings, engine).memory == found.memory.umem_bytes
