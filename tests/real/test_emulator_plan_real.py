"""The plan against what a running link takes: user memory by smaps, the kernel's by its list of vmalloc areas.

Other packet memories may come and go on this machine meanwhile: an area counts if it is new and has a size that none
but ours would have.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real.lab_rig import pair
from xskit.bench.bed import Bed
from xskit.bench.settings import Case
from xskit.emulator import emulator as module
from xskit.emulator.emulator import Emulator, LinkSpec, PortSpec
from xskit.emulator.plan import plan
from xskit.emulator.settings import EngineSettings, link_settings, read
from xskit.lab import Lab

pytestmark = pytest.mark.root

LINK = {"rate": "1Gbit", "owd": "700ms", "queue": "100ms"}
WITHIN = 0.05
PAGE_BYTES = 4096


def anonymous_bytes() -> int:
    """What this process has in memory that is no file's (proc(5), smaps_rollup)."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous: +(\d+) kB", rollup, re.MULTILINE)[1]) * 1024


def areas() -> dict[str, tuple[str, int, int]]:
    """Areas of the kernel's own address space that belong to AF_XDP, by place: (who made it, bytes, pages of it)."""
    lines = Path("/proc/vmallocinfo").read_text().splitlines()
    found = (re.match(r"(\S+) +(\d+) (x[a-z_]+)\S*(?: pages=(\d+))?", line) for line in lines)
    # one page of each area guards its end (VM_NO_GUARD apart)
    return {one[1]: (one[3], int(one[2]) - PAGE_BYTES, int(one[4] or 0)) for one in found if one}


class New:
    """Areas that came since it was made."""

    def __init__(self) -> None:
        self._before = areas()

    def sizes(self, maker: str) -> list[int]:
        return [size for place, (who, size, _) in areas().items() if who == maker and place not in self._before]

    def backed(self, maker: str) -> list[int]:
        """Bytes of the pages behind each."""
        found = areas().items()
        return [pages * PAGE_BYTES for at, (who, _, pages) in found if who == maker and at not in self._before]


@contextmanager
def two_queues(settings, engine) -> Iterator[Emulator]:
    """An emulator between two veths of two queues each."""
    with Bed() as bed:
        place = bed.place(Case("forward", queues=(0, 1)))
        ports = tuple(PortSpec(name, place.namespace, owned=True) for name in place.near)
        with Emulator([LinkSpec("two", ports, link_settings(settings))], read(EngineSettings, engine)) as emulator:
            yield emulator


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
    with pair(**LINK) as made:
        emulator = made.link.emulator
        found = plan(LINK)
        assert emulator.plan == found.memory
        assert measured["Umem"] == pytest.approx(found.memory.umem_bytes, rel=WITHIN)
        assert measured["PacketTable"] == pytest.approx(found.memory.table_bytes, rel=WITHIN)
        assert measured["LiveDirection"] == pytest.approx(found.memory.stores_bytes, rel=WITHIN)


def test_each_port_registers_the_planned_bytes():
    """The kernel's own view of a packet memory is as large as the memory (xdp_umem_addr_map)."""
    found = plan(LINK)
    new = New()
    with pair(**LINK):
        ours = [size for size in new.sizes("xdp_umem_create") if size == found.memory.umem_bytes]
        assert len(ours) == found.ports


def test_kernel_memory_is_as_planned():
    found = plan(LINK)
    each = found.kernel.heads / (found.ports * found.queues)
    assert each > 4 << 20  # so that the kernel takes vmalloc, whose areas can be seen
    new = New()
    with pair(**LINK):
        ours = [size for size in new.backed("xp_create_and_assign_umem") if each <= size <= 2 * each]
        assert sum(ours) == pytest.approx(found.kernel.heads_allocated, rel=WITHIN)
        assert sum(ours) >= found.kernel.heads


def test_kernel_memory_counts_for_each_queue():
    found = plan(LINK, queues=2)
    each = found.kernel.heads / 4
    new = New()
    with two_queues(LINK, {}) as emulator:
        assert emulator.plan == found.memory
        ours = [size for size in new.backed("xp_create_and_assign_umem") if each <= size <= 2 * each]
        assert len(ours) == 4
        assert sum(ours) == pytest.approx(found.kernel.heads_allocated, rel=WITHIN)


def test_rings_have_the_planned_entries():
    """Entries of 16 bytes in RX and TX, of 8 in FILL and COMPLETION, behind what every ring begins with."""
    engine = {"ring_size": 1 << 15}
    found = plan(LINK, engine, queues=2)
    rings = found.rings
    assert (rings.rx, rings.tx, rings.fill, rings.completion) == (1 << 15,) * 4
    new = New()
    with two_queues(LINK, engine):
        ours = Counter(size for size in new.sizes("xskq_create") if size >= 8 << 15)
    assert sorted(size // (8 << 15) for size in ours) == [1, 2]
    assert sorted(ours.values()) == [8, 8]  # for two ports of two queues each
    assert sum(size * count for size, count in ours.items()) == pytest.approx(rings.bytes, rel=WITHIN)


def test_an_emulator_given_the_planned_memory_has_as_many_frames():
    found = plan(LINK)
    engine = {"memory": f"{found.memory.umem_bytes}B"}
    with Lab(**engine) as lab:
        link = lab.link(lab.host("a"), lab.host("b"), **LINK)
        assert link.emulator.plan.frames == found.memory.frames
        assert read(EngineSettings, engine).memory == found.memory.umem_bytes


UNPRIVILEGED = """
import ctypes, json, resource, struct, sys
from xskit.errors import XskitError
from xskit.lab import Lab

limit, engine = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
libc = ctypes.CDLL(None, use_errno=True)
header, data = struct.pack("Ii", 0x20080522, 0), bytearray(24)
assert libc.capget(header, (ctypes.c_char * 24).from_buffer(data)) == 0
words = list(struct.unpack("6I", data))
words[0] &= ~(1 << 14)  # CAP_IPC_LOCK, of the effective ones
assert libc.capset(header, struct.pack("6I", *words)) == 0
try:
    with Lab(**engine) as lab:
        lab.link(lab.host("a"), lab.host("b"))
        print("enough")
except XskitError as error:
    print(error.cause)
"""


def test_locked_memory_is_as_planned():
    """Without CAP_IPC_LOCK a limit of what was planned is enough, and one 5 % lower is not."""
    engine = {"memory": "3MiB", "ring_size": 64}
    found = plan({}, engine)
    _, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if most != resource.RLIM_INFINITY and most < found.memlock_bytes:
        pytest.skip(f"this process may lock {most} bytes at most")

    def try_with(limit: int) -> str:
        command = [sys.executable, "-c", UNPRIVILEGED, json.dumps([limit, engine])]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert try_with(found.memlock_bytes) == "enough"
    assert "may lock" in try_with(int(found.memlock_bytes * (1 - WITHIN)))
