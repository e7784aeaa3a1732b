"""What a kernel sends by itself, and what only looks like it: the program on single packets, and on a lab's host."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.real.lab_rig import pair, wait_until
from xskit.abi.bpf import XdpAction
from xskit.abi.xdp import AF_XDP
from xskit.bpf.chatter import MOST_RECORDS
from xskit.bpf.redirect import Outcome, RedirectProgram

pytestmark = pytest.mark.root

MACS = bytes.fromhex("333300000016 020000000001")
ALERT = bytes.fromhex("3a00 05020000 0100")
EXCLUDE, TO_INCLUDE, TO_EXCLUDE, ALLOW = 2, 3, 4, 5
HOST, NOBODY = "fe80::5", "::"
OWN_GROUPS = ("ff02::1:ff00:1", "ff02::1:ffab:cdef", "ff02::2", "ff05::2", "ff02::6a")
JOINED_GROUPS = ("ff02::fb", "ff05::1:ff00:1", "ff05::6a", "ff02::1:fe00:1", "ff02::2:ff00:1", "ff02::1:0:1:ff00:1",
                 "ff0e::2", "ff12::2", "ff02::1:2", "ff02::1", "ff02:8000::2")  # fmt: skip


def in6(text: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, text)


def ipv6(payload: bytes, *, source: str = HOST, alert: bytes | None = None, tags: str = "", upper: int = 58) -> bytes:
    extension = b"" if alert is None else alert
    header = struct.pack("!IHBB", 6 << 28, len(extension + payload), upper if alert is None else 0, 255)
    addresses = in6(source) + in6("ff02::16")
    return MACS + bytes.fromhex(tags) + b"\x86\xdd" + header + addresses + extension + payload


def record(group: str, kind: int = EXCLUDE, sources: int = 0, auxiliary: int = 0) -> bytes:
    return struct.pack("!BBH", kind, auxiliary, sources) + in6(group) + bytes(16 * sources + 4 * auxiliary)


def mld2(*records: bytes, count: int | None = None, alert: bytes = ALERT, **how: str) -> bytes:
    head = struct.pack("!BBHHH", 143, 0, 0, 0, len(records) if count is None else count)
    return ipv6(head + b"".join(records), alert=alert, **how)


def mld1(kind: int, group: str) -> bytes:
    return ipv6(struct.pack("!BBHHH", kind, 0, 0, 0, 0) + in6(group), alert=ALERT)


def solicit(kind: int, source: str, length: int = 24, **how: str) -> bytes:
    return ipv6(bytes([kind]) + bytes(length - 1), source=source, **how)


CHATTER = {
    **{f"report of {group}": mld2(record(group)) for group in OWN_GROUPS},
    **{f"version 1 report of {group}": mld1(131, group) for group in OWN_GROUPS},
    "done": mld1(132, "ff02::1:ff00:1"),
    "a report from nobody": mld2(record("ff02::1:ff00:1", TO_EXCLUDE), source=NOBODY),
    "a report of all": mld2(*(record(group, TO_INCLUDE) for group in OWN_GROUPS)),
    "as many records as are looked at": mld2(*[record("ff02::2")] * MOST_RECORDS),
    "router solicitation": solicit(133, HOST, 16),
    "the shortest router solicitation, from nobody": solicit(133, NOBODY, 8),
    "duplicate address detection": solicit(135, NOBODY),
    "behind a tag": mld2(record("ff02::2"), tags="8100 0005"),
    "behind a service tag": solicit(135, NOBODY, tags="88a8 0005"),
    "behind two tags": solicit(133, HOST, tags="88a8 0005 8100 0006"),
}
TESTS = {
    **{f"report of {group}": mld2(record(group)) for group in JOINED_GROUPS},
    **{f"version 1 report of {group}": mld1(131, group) for group in JOINED_GROUPS},
    "a joined group behind the kernel's own": mld2(record("ff02::2"), record("ff02::fb"), record("ff02::2")),
    "sources": mld2(record("ff02::2", ALLOW, sources=1)),
    "auxiliary data": mld2(record("ff02::2", auxiliary=1)),
    "more records than are looked at": mld2(*[record("ff02::2")] * (MOST_RECORDS + 1)),
    "fewer records than it says": mld2(record("ff02::2"), count=2),
    "no record": mld2(),
    "no router alert": ipv6(struct.pack("!BBHHH", 131, 0, 0, 0, 0) + in6("ff02::2")),
    "another option": mld2(record("ff02::2"), alert=bytes.fromhex("3a00 01040000 0000")),
    "router alert of something else": mld2(record("ff02::2"), alert=bytes.fromhex("3a00 05020001 0100")),
    "hop by hop before UDP": mld2(record("ff02::2"), alert=bytes.fromhex("1100 05020000 0100")),
    "query": mld1(130, "::"),
    "neighbour solicitation": solicit(135, HOST),
    "neighbour solicitation from ::1:0:0:0": solicit(135, "0:0:0:0:1::"),
    "neighbour advertisement": solicit(136, HOST),
    "router advertisement": solicit(134, HOST),
    "redirect": solicit(137, HOST),
    "echo": solicit(128, HOST),
    "TCP": solicit(133, HOST, upper=6),
    "too short": solicit(133, HOST, 8)[:-1],
    "cut off in the second record": mld2(record("ff02::2"), record("ff02::2"))[:-1],
    "behind three tags": solicit(133, HOST, tags="88a8 0005 8100 0006 8100 0007"),
    "cut off in a tag": MACS + bytes.fromhex("8100 00"),
    "IGMP report": MACS + bytes.fromhex("0800 46c00028 00004000 01020000 0a090001 e0000016 94040000") + bytes(16),
    "ARP": MACS + bytes.fromhex("0806") + bytes(46),
    "Ethernet alone": MACS + bytes.fromhex("86dd"),
}


@pytest.fixture(scope="module")
def dropping():
    with RedirectProgram.load(drop_chatter=True) as program, socket.socket(AF_XDP, socket.SOCK_RAW, 0) as xsk:
        program.register(0, xsk.fileno())
        yield program


@pytest.mark.parametrize("packet", CHATTER.values(), ids=CHATTER.keys())
def test_chatter_is_dropped_and_counted(dropping, packet):
    before = dropping.outcomes()
    assert dropping.program.test_run(packet).action == XdpAction.DROP
    assert dropping.outcomes() == before | {Outcome.CHATTER: before[Outcome.CHATTER] + 1}


@pytest.mark.parametrize("packet", TESTS.values(), ids=TESTS.keys())
def test_what_somebody_has_sent_is_kept(dropping, packet):
    before = dropping.outcomes()
    result = dropping.program.test_run(packet)
    assert (result.action, result.packet) == (XdpAction.REDIRECT, packet)
    assert dropping.outcomes() == before | {Outcome.REDIRECTED: before[Outcome.REDIRECTED] + 1}


def test_chatter_is_kept_unless_it_is_to_be_dropped():
    with RedirectProgram.load() as program, socket.socket(AF_XDP, socket.SOCK_RAW, 0) as xsk:
        assert {program.program.test_run(packet).action for packet in CHATTER.values()} == {XdpAction.PASS}
        program.register(0, xsk.fileno())
        assert {program.program.test_run(packet).action for packet in CHATTER.values()} == {XdpAction.REDIRECT}
        assert program.outcomes()[Outcome.CHATTER] == 0


def test_a_queue_without_a_socket_passes_chatter_on():
    with RedirectProgram.load(drop_chatter=True) as program:
        assert {program.program.test_run(packet).action for packet in CHATTER.values()} == {XdpAction.PASS}


@pytest.mark.parametrize("chatter", ["drop", "keep"])
def test_a_hosts_kernel_is_not_heard_in_its_lab(chatter):
    """Its reports come within a second of the interface's first IPv6 address, and go on for a while."""
    with pair(engine={"chatter": chatter, "ip": 4}) as made:
        port = next(iter(made.link.emulator.ports.values()))
        made.a.run("sysctl", "-qw", "net.ipv6.conf.xk0.disable_ipv6=0", check=True)
        if chatter == "keep":
            wait_until(lambda: made.link.forward.live.pipeline.counters.received, "the link receives chatter")
            assert port.outcomes()[Outcome.CHATTER] == 0
            return
        wait_until(lambda: port.outcomes()[Outcome.CHATTER], "chatter is dropped")
        flow = made.flow()
        flow.send(3)
        flow.empty()
        report = made.link.report()
        assert report.links[0].directions[0].packets["received"] == 3
        assert report.ports[0].chatter > 0
        assert f"chatter: {report.ports[0].chatter} dropped" in str(report)
        assert report.ports[1].chatter == 0
