"""Packet memory from the hugetlb pool, where this machine lets the test set one aside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real.lab_rig import pair
from xskit.emulator.plan import plan
from xskit.errors import KernelError
from xskit.lab import Lab
from xskit.xsk.umem import Umem

pytestmark = pytest.mark.root

POOL = Path("/proc/sys/vm/nr_hugepages")
PAGE_BYTES = 2 << 20


def facts() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}


@contextmanager
def pages(count: int) -> Iterator[None]:
    """So many free huge pages, or the test is skipped."""
    if facts().get("Hugepagesize") != PAGE_BYTES >> 10:
        pytest.skip("needs huge pages of 2 MiB")
    before = POOL.read_text()
    free = facts()["HugePages_Free"] - facts()["HugePages_Rsvd"]
    try:
        try:
            POOL.write_text(str(int(before) - free + count))
        except OSError:
            pytest.skip("this machine does not let vm.nr_hugepages be set")
        if facts()["HugePages_Free"] - facts()["HugePages_Rsvd"] != count:
            pytest.skip("this machine has no huge pages to give")
        yield
    finally:
        POOL.write_text(before)


def test_packets_cross_in_huge_pages():
    engine = {"hugetlb": True, "memory": "8MiB", "ring_size": 64}
    planned = plan({"owd": "1ms"}, engine).hugepages
    with pages(planned):
        with pair(engine=engine, owd="1ms") as made:
            assert facts()["HugePages_Free"] == 0
            flow = made.flow()
            flow.send(200)
            assert len(flow.take(200)) == 200
        assert facts()["HugePages_Free"] == planned


def test_views_keep_the_pages_and_forked_children_read_zeros():
    with pages(1):
        umem = Umem(frames=16, hugetlb=True)
        view = umem.view(0, umem.size)
        view[:4] = b"\xaa" * 4
        if (child := os.fork()) == 0:
            blank = bytes(view) == bytes(len(view))
            view[:4] = b"\xbb" * 4
            os._exit(not blank)
        assert os.waitpid(child, 0)[1] == 0
        umem.close()
        assert bytes(view[:4]) == b"\xaa" * 4
        assert facts()["HugePages_Free"] == 0
        del view
        assert facts()["HugePages_Free"] == 1


def test_a_pool_that_is_too_small_is_said_and_leaves_nothing():
    with pages(1), Lab(hugetlb=True, memory="8MiB", ring_size=64) as lab:
        a, b = lab.host("a"), lab.host("b")
        with pytest.raises(KernelError) as caught:
            lab.link(a, b)
        assert caught.value.cause == "the kernel has no 8 MiB of packet memory to give: Cannot allocate memory"
        assert caught.value.remedy == "sysctl vm.nr_hugepages=4"
        assert a.interfaces == []
