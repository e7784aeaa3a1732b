"""Packet memory and rings stay mapped for as long as Python can reach them, and nothing outside can be reached."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.pure.support_frames import held_packet
from xskit.errors import KernelError, UsageError
from xskit.xsk import pages
from xskit.xsk.batch import Drafts
from xskit.xsk.pages import Pages, RingPages
from xskit.xsk.umem import Umem

LASTING_VIEWS = """
import ctypes, gc
import numpy as np
from xskit.xsk.batch import Drafts
from xskit.xsk.umem import Umem

umem = Umem(frames=4)
packet = Drafts(umem).make(np.array([64]))[0]
umem.view(256, 64)[:] = bytes(range(64))
views = [umem.view(256, 64), umem.view(0, umem.size)[256:320], packet.segments[0], packet.segments[0][0:64]]
views += [np.frombuffer(views[0], np.uint8), np.asarray(packet.segments[0])[::1]]
views += [(ctypes.c_char * 64).from_buffer(umem.view(256, 64))]
umem.close()
del umem, packet
gc.collect()
assert all(bytes(view) == bytes(range(64)) for view in views)
views[0][0] = 7
assert all(bytes(view)[0] == 7 for view in views)
print("alive")
"""


def mapped(address: int) -> bool:
    ranges = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(first, 16) <= address < int(end, 16) for first, end in ranges)


def flags_at(address: int) -> list[str]:
    """VmFlags of the mapping that begins there, proc(5)."""
    _, _, rest = Path("/proc/self/smaps").read_text().partition(f"{address:x}-")
    return next(line for line in rest.splitlines() if line.startswith("VmFlags:")).split()[1:]


def in_a_child(check: Callable[[], bool]) -> bool:
    """What `check` says in a forked child; False where it ends by an exception or a signal."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_whatever_views_are_left_after_close_reads_and_writes_memory():
    ended = subprocess.run([sys.executable, "-c", LASTING_VIEWS], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")


def test_the_pages_go_with_the_last_view():
    umem = Umem(frames=4)
    address = umem.address
    piece = np.frombuffer(umem.view(0, 4096)[64:128], np.uint8)
    umem.close()
    assert mapped(address)
    del piece
    assert not mapped(address)


def test_without_views_the_pages_go_at_once():
    umem = Umem(frames=4)
    address = umem.address
    assert mapped(address)
    umem.close()
    assert not mapped(address)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("as_error", [False, True])
def test_forgotten_memory_is_told_of_and_its_pages_go(used, as_error):
    umem = Umem(frames=4)
    if used:
        held_packet(umem, 64)
    address = umem.address
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("error" if as_error else "always", ResourceWarning)
        del umem
        assert not mapped(address)
    if not as_error:
        assert [str(warning.message) for warning in told] == ["<Umem of 4 frames of 4096 bytes> was never closed"]


def test_huge_pages_are_asked_for_and_populated():
    with Umem(frames=1024, huge=True) as umem:
        assert {"hg", "wf"} <= set(flags_at(umem.address))
        _, _, rest = Path("/proc/self/smaps").read_text().partition(f"{umem.address:x}-")
        resident = next(line for line in rest.splitlines() if line.startswith("Rss:"))
        assert int(resident.split()[1]) * 1024 >= umem.size


def test_more_than_2_gib():
    with Umem(frames=(1 << 19) + 1, populate=False) as umem:
        umem.view(umem.size - 5, 5)[:] = b"end.."
        assert umem.read(umem.size - 5, 5) == b"end.."


@pytest.mark.parametrize(("hugetlb", "remedy"), [(False, None), (True, "sysctl vm.nr_hugepages=2")])
def test_memory_that_is_not_to_be_had_is_said(hugetlb, remedy, monkeypatch):
    def refuse(*_: object, **__: object) -> mmap.mmap:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(pages.mmap, "mmap", refuse)
    with pytest.raises(KernelError) as caught:
        Umem(frames=1024, hugetlb=hugetlb, huge=not hugetlb)
    assert caught.value.cause == "the kernel has no 4 MiB of packet memory to give: Cannot allocate memory"
    assert caught.value.remedy == remedy


def test_pages_that_cannot_be_populated_are_given_back(monkeypatch):
    begun = []

    def refuse(address: int, _: int) -> None:
        begun.append(address)
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))

    monkeypatch.setattr(pages, "populate_memory", refuse)
    with pytest.raises(KernelError, match="packet memory to give: Bad address") as caught:
        Umem(frames=4)
    assert caught.value.__traceback__ is not None
    assert not mapped(begun[0])


@pytest.mark.parametrize("hugetlb", [False, True])
def test_a_forked_child_reads_zeros_and_changes_nothing_of_its_parent(hugetlb, monkeypatch):
    monkeypatch.setattr(pages, "MAP_HUGETLB", 0)  # the pool is empty on most machines: shared pages of the usual size
    memory = Pages(1 << 21, populate=True, huge=False, hugetlb=hugetlb)
    view = memory.view[4096:8192]
    view[:] = b"\xaa" * 4096

    def check() -> bool:
        blank = bytes(view) == bytes(4096)
        view[:] = b"\xbb" * 4096
        return blank and bytes(view) == b"\xbb" * 4096 and in_a_child(lambda: len(bytes(view)) == 4096)

    assert in_a_child(check)
    assert bytes(view) == b"\xaa" * 4096
    memory.close()
    assert in_a_child(check)
    assert bytes(view) == b"\xaa" * 4096


def test_in_a_forked_child_the_memory_is_closed_and_its_views_read_zeros():
    with Umem(frames=4) as umem:
        packet = held_packet(umem, 8)
        segment = packet.segments[0]
        segment[:] = b"\xaa" * 8

        def check() -> bool:
            with pytest.raises(UsageError, match="^the packet memory is closed$"):
                umem.view(256, 8)
            with pytest.raises(UsageError, match="^this packet is gone: its packet memory is closed"):
                _ = packet.segments
            umem.close()
            return umem.address == 0 and bytes(segment) == bytes(8)

        assert in_a_child(check)
        assert bytes(packet) == b"\xaa" * 8


RING_BYTES = 6000


@pytest.fixture
def ring_file() -> Iterator[int]:
    """What a ring is mapped from: two pages full of 7."""
    fd = os.memfd_create("xk-ring")
    os.write(fd, b"\x07" * 2 * mmap.PAGESIZE)
    yield fd
    os.close(fd)


def is_mapped(fd: int) -> bool:
    inode = os.fstat(fd).st_ino
    return any(line.split()[4] == str(inode) for line in Path("/proc/self/maps").read_text().splitlines())


def test_a_ring_is_unmapped_at_once_and_its_views_go_on(ring_file):
    ring = RingPages(ring_file, 0, RING_BYTES)
    views = [ring.view[:64], np.frombuffer(ring.view, np.uint8)[64:128]]
    assert len(ring.view) == RING_BYTES
    assert all(bytes(view) == b"\x07" * 64 for view in views)
    views[0][0] = 8
    assert os.pread(ring_file, 2, 0) == b"\x08\x07"
    assert is_mapped(ring_file)
    for _ in range(2):
        ring.close()
        assert not is_mapped(ring_file)
    assert all(bytes(view) == bytes(64) for view in views)
    views[1][0] = 9
    assert ring.view[64] == 9
    ring.close()
    assert ring.view[64] == 9
    assert os.pread(ring_file, 1, 64) == b"\x07"


def test_the_address_space_of_a_ring_goes_with_the_last_view(ring_file):
    ring = RingPages(ring_file, 0, RING_BYTES)
    address, view = ring.address, np.frombuffer(ring.view, np.uint8)
    ring.close()
    del ring
    assert mapped(address)
    del view
    assert not mapped(address)


def test_a_forgotten_ring_is_unmapped(ring_file):
    ring = RingPages(ring_file, 0, RING_BYTES)
    assert is_mapped(ring_file)
    del ring
    assert not is_mapped(ring_file)


def test_a_forked_child_has_zeros_in_the_place_of_a_ring(ring_file):
    ring = RingPages(ring_file, 0, RING_BYTES)
    view = ring.view[:64]

    def check() -> bool:
        blank = bytes(view) == bytes(64) and not is_mapped(ring_file)
        view[:] = b"\x05" * 64
        return blank and in_a_child(lambda: bytes(view) == bytes(64))

    assert in_a_child(check)
    assert bytes(view) == os.pread(ring_file, 64, 0) == b"\x07" * 64
    ring.close()
    assert in_a_child(check)
    ring = RingPages(ring_file, 0, RING_BYTES)
    view = ring.view[:64]
    del ring  # the view alone has it
    assert in_a_child(check)


def test_a_ring_that_cannot_be_mapped_leaves_no_hole(ring_file, monkeypatch):
    blanked = []
    blank = pages._blank
    monkeypatch.setattr(pages, "_blank", lambda address, size: (blanked.append((address, size)), blank(address, size)))
    reading = os.open(f"/proc/self/fd/{ring_file}", os.O_RDONLY)
    with pytest.raises(PermissionError):
        RingPages(reading, 0, RING_BYTES)
    os.close(reading)
    assert [size for _, size in blanked] == [2 * mmap.PAGESIZE]


@pytest.mark.parametrize("method", [Umem.view, Umem.read])
@pytest.mark.parametrize(
    ("offset", "length", "said"),
    [
        (-64, 32, "offset must be between 0 and 16384, not -64\n  try: offset=0"),
        (16385, 0, "offset must be between 0 and 16384, not 16385\n  try: offset=16384"),
        (1 << 40, 16, "offset must be between 0 and 16384, not 1099511627776\n  try: offset=16384"),
        (1 << 64, 16, "offset must be between 0 and 16384, not 18446744073709551616\n  try: offset=16384"),
        (0, -1, "length must be between 0 and 16384, not -1\n  try: length=0"),
        (16300, 100, "length must be between 0 and 84, not 100\n  try: length=84"),
        (16384, 1 << 63, "length must be between 0 and 0, not 9223372036854775808\n  try: length=0"),
        (0.0, 16, "offset must be a whole number, not 0.0\n  try: offset=0"),
        (0, None, "length must be a whole number, not None\n  try: length=0"),
        ("0", 1, "offset must be a whole number, not '0'\n  try: offset=0"),
        (True, 1, "offset must be a whole number, not True\n  try: offset=0"),
    ],
)
def test_bytes_out_of_the_memory_are_refused(method, offset, length, said):
    with Umem(frames=4) as umem, pytest.raises(UsageError) as caught:
        method(umem, offset, length)
    assert str(caught.value) == said


def test_all_bytes_of_the_memory_can_be_had():
    with Umem(frames=3, frame_size=2048) as umem:  # ends in the middle of a page
        umem.view(0, 6144)[-1] = 9
        assert umem.read(6143, 1) == b"\x09"
        assert umem.read(6144, 0) == b""
        assert umem.read(np.int64(6143), np.uint16(1)) == b"\x09"
        with pytest.raises(UsageError, match="^length must be between 0 and 1, not 2"):
            umem.view(6143, 2)


@pytest.mark.parametrize("use", [Umem.view, Umem.read])
def test_closed_memory_says_so(use):
    umem = Umem(frames=16)
    umem.close()
    for offset, length in ((0, 24), (4096, 16), (0, 0)):
        with pytest.raises(UsageError, match="^the packet memory is closed$"):
            use(umem, offset, length)


@pytest.mark.parametrize("ask", [Umem.frame_of, Umem.offset_of])
@pytest.mark.parametrize(
    ("address", "said"),
    [
        (-1, "address must be between 0 and 16383, not -1\n  try: address=0"),
        (16384, "address must be between 0 and 16383, not 16384\n  try: address=16383"),
        (1 << 70, "address must be between 0 and 16383, not 1180591620717411303424\n  try: address=16383"),
        (1.5, "address must be a whole number, not 1.5\n  try: address=0"),
        ("0", "address must be a whole number, not '0'\n  try: address=0"),
    ],
)
def test_an_address_out_of_the_memory_is_refused(ask, address, said):
    with Umem(frames=4) as umem, pytest.raises(UsageError) as caught:
        ask(umem, address)
    assert str(caught.value) == said


def test_an_unaligned_address_is_refused_where_its_offset_leaves_the_memory():
    with Umem(frames=4, frame_size=3000, unaligned=True, populate=False) as umem:
        assert umem.offset_of(9000 | 2999 << 48) == 11999
        for address in (-1, 1 << 64):
            with pytest.raises(UsageError, match=f"^address must be between 0 and 18446744073709551615, not {address}"):
                umem.frame_of(address)
        with pytest.raises(UsageError, match=r"^address \d+ means offset 12000, and offsets end at 11999$"):
            umem.offset_of(9000 | 3000 << 48)


def test_a_packet_of_parts_out_of_the_memory_reads_nothing():
    with Umem(frames=4) as umem:
        batch = Drafts(umem).make(np.array([64]))
        batch.rows["address"] = 1 << 40
        packet = batch[0]
        for use in (bytes, lambda packet: packet[0], lambda packet: packet[:4], lambda packet: packet.segments):
            with pytest.raises(UsageError, match="^offset must be between 0 and 16384"):
                use(packet)


def test_a_byte_of_a_packet_has_a_whole_number():
    with Umem(frames=4) as umem:
        packet = held_packet(umem, 64)
        with pytest.raises(TypeError):
            packet[1.5]
        assert packet[np.int32(-1)] == 63
