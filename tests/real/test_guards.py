"""The guard of the test session sees what xskit leaves on the host: each kind is made here, seen, and removed."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from tests import guards
from xskit.abi.bpf import AttachType, BpfCommand, XdpAction
from xskit.bpf.asm import Assembler
from xskit.bpf.program import Program, ProgramSpec

pytestmark = pytest.mark.root

NAME = f"xkg{os.getpid()}"


@pytest.fixture
def interface() -> Iterator[str]:
    with IPRoute() as netlink:
        netlink.link("add", ifname=NAME, kind="veth", peer={"ifname": f"{NAME}p"})
        yield NAME
        netlink.link("del", index=socket.if_nametoindex(NAME))


def test_an_interface(interface):
    assert f"interface {interface}" in guards.interfaces()


def test_a_program_and_its_link(interface):
    pass_all = Assembler().returns(XdpAction.PASS).assemble()
    with Program.load(ProgramSpec(NAME, pass_all)) as program:
        name = f"BPF program {NAME} (id {program.id})"
        assert name in guards.programs()
        request = struct.pack("=IIII", program.fd, socket.if_nametoindex(interface), AttachType.XDP, 0)
        link = guards._bpf(BpfCommand.LINK_CREATE, bytearray(request))
        try:
            assert [found for found in guards.programs() if found.startswith("BPF link") and found.endswith(name)]
        finally:
            os.close(link)


def test_a_namespace():
    path = guards.NAMESPACES / NAME
    path.parent.mkdir(exist_ok=True)
    path.touch()
    try:
        assert f"network namespace {NAME}" in guards.namespaces()
    finally:
        path.unlink()


def test_journals_of_this_process_and_of_dead_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(guards, "JOURNALS", tmp_path)
    dead = int(Path("/proc/sys/kernel/pid_max").read_text()) + 1
    for pid in (os.getpid(), os.getppid(), dead):
        (tmp_path / f"{pid}-1-0.jsonl").touch()
    assert guards.journals() == {f"journal {tmp_path}/{pid}-1-0.jsonl" for pid in (os.getpid(), dead)}
