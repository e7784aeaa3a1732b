"""What experiments are made of, on this kernel: page pools counted, packets passed and redirected, memory filled."""

from __future__ import annotations

import fcntl
import platform
import re
import socket
import struct
import termios
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real.lab_rig import SO_RCVBUFFORCE, wait_until
from xskit.abi.bpf import AttachType, ProgramType
from xskit.bench.copies import CopyCount
from xskit.bpf.asm import Assembler
from xskit.bpf.attach import XdpMode, attach
from xskit.bpf.errors import BpfError
from xskit.bpf.program import Program, ProgramSpec
from xskit.bpf.tracepoint import attach_tracepoint
from xskit.experiments.actions import passed_and_redirected
from xskit.experiments.bursts import segmented
from xskit.experiments.large_memory import fill_and_drain
from xskit.experiments.pagepool import PagePoolWatch
from xskit.experiments.rooms import Pair
from xskit.experiments.view_cost import ViewCost, view_costs
from xskit.netconf.interfaces import index
from xskit.netconf.netdev import page_pools
from xskit.xsk.probe import why_no_frames_of

pytestmark = pytest.mark.root

KERNEL = tuple(int(part) for part in platform.release().split(".")[:2])


def test_what_a_receiver_does_not_read_are_pages_of_a_pool():
    length = 600_000
    with PagePoolWatch() as watch, Pair() as made, ExitStack() as stack:
        if watch.source.startswith("not to be had"):
            pytest.skip(watch.source)
        spec = ProgramSpec("xk_pass", Assembler().returns(2).assemble())
        with Program.load(spec) as program, made.hosts[1].inside():
            stack.enter_context(attach(program, index("xkb"), XdpMode.NATIVE))
            listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        listener.bind((made.hosts[1].address, 7001))
        listener.listen()
        with made.hosts[0].inside():
            sender = stack.enter_context(socket.create_connection((made.hosts[1].address, 7001)))
        receiver = stack.enter_context(listener.accept()[0])
        sender.sendall(bytes(length))
        wait_until(lambda: unread_bytes(receiver) == length, "everything has arrived")
        assert watch.pages() >= length // 4096
        wait_until(lambda: watch.peak_pages >= length // 4096, "the watch has seen it")


def unread_bytes(receiver) -> int:
    return struct.unpack("i", fcntl.ioctl(receiver, termios.FIONREAD, bytes(4)))[0]


def test_no_tracepoint_of_that_name():
    code = Assembler().returns(0).assemble()
    spec = ProgramSpec("xk_none", code, ProgramType.RAW_TRACEPOINT, AttachType.NONE)
    with Program.load(spec) as program, pytest.raises(BpfError, match="no such tracepoint"):
        attach_tracepoint(program, "xk_no_such_thing")


def test_page_pools_of_devices_are_listed_or_the_kernel_is_too_old():
    found = page_pools()
    assert (found is None) == (KERNEL < (6, 8))


def test_chunks_larger_than_a_page_are_refused_and_others_are_not():
    assert why_no_frames_of(4096) is None
    assert why_no_frames_of(3000, unaligned=True) is None
    assert why_no_frames_of(8192) == "Invalid argument"
    assert why_no_frames_of(8192, unaligned=True) == "Invalid argument"


def test_of_frames_from_the_hugetlb_pool_too_the_kernel_says_whether_it_takes_them():
    free = int(re.search(r"HugePages_Free: +(\d+)", Path("/proc/meminfo").read_text())[1])
    answer = why_no_frames_of(8192, hugetlb=True)
    assert answer == "Invalid argument" if free else "Cannot allocate memory" in answer


def test_long_packets_are_passed_and_redirected_whole():
    for one in passed_and_redirected(7936, 20):
        assert (one.sent, one.arrived, one.whole) == (20, 20, 20), one


def test_a_packet_memory_is_filled_and_drained_without_loss():
    said = []
    found = fill_and_drain(8192, 2048, said.append)
    assert found.refused == ""
    assert found.in_flight == found.sent == found.arrived
    assert found.in_flight >= 8192 - 4096 - 512  # FILL of both ports, and the share of the other direction
    assert found.kernel_bytes == 8192 * 128 * 2


def test_reading_a_packet_costs_something_in_every_way():
    found = view_costs(0.05, 1, 7936)
    assert len(found) == 12
    assert {(cost.frame_size, cost.frames_each) for cost in found} == {(4096, 3), (2048, 5), (4096, 1)}
    assert all(cost.cpu_ns > 0 for cost in found)
    assert {ViewCost.BY_HAND, ViewCost.VIEWED} <= {cost.how for cost in found}


def test_without_loss_all_segments_of_a_packet_arrive():
    with Pair() as made:
        found = segmented(*made.hosts, packets=5, segments=10, segment_bytes=500)
    assert (found.sent, found.arrived, found.lost, found.mean_run) == (50, 50, 0, 0.0)


def test_copies_are_counted_or_it_is_said_why_not():
    with CopyCount() as count:
        pass
    assert (count.calls is None) == bool(count.why)
