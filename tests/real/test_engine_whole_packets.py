"""What a sender leaves to its device comes out whole, behind tunnels, extension headers and taps, or is reported."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from tests.pure import support_layers as layers
from tests.pure.support_checksums import UDP, Spec
from tests.real import tags
from tests.real.foreign_hosts import ADDRESSES, Foreign, foreign_hosts, ip, told
from tests.real.lab_rig import wait_until
from xskit.emulator.ports import PortSpec
from xskit.emulator.report import Report
from xskit.engine.packets import DropCause
from xskit.lab import Lab
from xskit.netconf import interfaces
from xskit.netconf.ethtool import features
from xskit.netconf.namespaces import inside

pytestmark = pytest.mark.root

IPV6_DSTOPTS = 59
OVERLAY = ("198.18.254.1", "198.18.254.2")
SIXES = ("fd00:255::1", "fd00:255::2")
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x2, 0x1000, 0x4000
NEEDS_CSUM = 1
UDP_SEGMENT = 103


def transfer(hosts: Foreign, address: str, prepare=None) -> None:
    """Send 50 kB over TCP from the first host to the second, and compare them."""
    data = bytes(n * 31 % 253 for n in range(50_000))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with inside(hosts.namespaces[1]):
        listener = socket.create_server((address, 7001), family=family)
    with inside(hosts.namespaces[0]):
        sender = socket.socket(family)
    with listener, sender:
        listener.settimeout(30)
        sender.settimeout(30)
        if prepare is not None:
            prepare(sender)
        sender.connect((address, 7001))
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(30)
            sender.sendall(data)
            sender.shutdown(socket.SHUT_WR)
            came = bytearray()
            while part := connection.recv(1 << 16):
                came.extend(part)
    assert came == data


def vxlan(hosts: Foreign, *options: str) -> None:
    for namespace, here, there, address in zip(hosts.namespaces, ADDRESSES, ADDRESSES[::-1], OVERLAY, strict=True):
        words = ["type", "vxlan", "id", "1", "local", here, "remote", there, "dstport", "4789", *options]
        ip("-n", str(namespace), "link", "add", "xkvx", *words)
        ip("-n", str(namespace), "address", "add", f"{address}/24", "dev", "xkvx")
        ip("-n", str(namespace), "link", "set", "xkvx", "up")


def sixes(hosts: Foreign) -> None:
    for namespace, address in zip(hosts.namespaces, SIXES, strict=True):
        ip("netns", "exec", str(namespace), "sysctl", "-qw", "net.ipv6.conf.xk0.disable_ipv6=0")
        ip("-n", str(namespace), "address", "add", f"{address}/64", "dev", "xk0", "nodad")


def finished(emulator) -> int:
    return sum(direction.live.pipeline.counters.checksums for direction in emulator.links["wan"].directions)


def active(hosts: Foreign) -> list[dict[str, bool]]:
    """What is on at both hosts."""
    found = []
    for namespace in hosts.namespaces:
        with inside(namespace), interfaces.control_socket() as control:
            found.append({name: one.active for name, one in features(control, "xk0").items()})
    return found


@pytest.mark.parametrize("mode", ["native", "generic"])
@pytest.mark.parametrize("options", [("noudpcsum",), ("udpcsum",)])
def test_tcp_through_a_tunnel_is_finished_at_the_far_end(mode, options):
    with foreign_hosts() as hosts:
        vxlan(hosts, *options)
        before = active(hosts)
        assert all(one["tx-checksum-ip-generic"] and one["tx-checksum-sctp"] for one in before)
        with hosts.emulator({"mode": mode}) as emulator:
            transfer(hosts, OVERLAY[1])
            assert finished(emulator) == 0
            report = emulator.report()
            assert told(emulator) == []
            assert [one.packets["dropped"] for one in report.links[0].directions] == [{}, {}]
        assert active(hosts) == before


@pytest.mark.parametrize("options", [("noudpcsum",), ("udpcsum",)])
def test_tcp_through_a_tunnel_is_finished_here_where_the_far_end_is_out_of_reach(options):
    with foreign_hosts() as hosts:
        vxlan(hosts, *options)
        hosts.forget_names()
        with hosts.emulator() as emulator:
            transfer(hosts, OVERLAY[1])
            assert finished(emulator) > 0
            assert [one.checksums["unfinished_checksum"] for one in emulator.report().links[0].directions] == [0, 0]


@pytest.mark.parametrize("reachable", [True, False])
def test_tcp_behind_ipv6_destination_options(reachable):
    def options(sender: socket.socket) -> None:
        sender.setsockopt(socket.IPPROTO_IPV6, IPV6_DSTOPTS, bytes([0, 0, 1, 4, 0, 0, 0, 0]))

    with foreign_hosts() as hosts:
        sixes(hosts)
        if not reachable:
            hosts.forget_names()
        with hosts.emulator() as emulator:
            transfer(hosts, SIXES[1], options)
            assert (finished(emulator) > 0) is not reachable


# -- where nobody can switch it off --------------------------------------------------------------------------------


@contextmanager
def tap(hosts: Foreign) -> Iterator[int]:
    """A tap device `xktap` beside the ports, opened as a hypervisor does: each packet has a vnet header."""
    with inside(hosts.room):
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"xktap", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
            ip("-n", hosts.room, "link", "set", "xktap", "up")
            yield fd
        finally:
            os.close(fd)


@contextmanager
def received(hosts: Foreign) -> Iterator[socket.socket]:
    """All that comes to the second host."""
    with inside(hosts.namespaces[1]):
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    with end:
        end.bind(("xk0", 3))
        end.settimeout(20)
        yield end


PARTIAL = Spec(4, UDP, source=bytes([10, 1, 0, 1] * 4), target=bytes([10, 1, 0, 2] * 4), payload=bytes(100))


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_a_tap_with_a_vnet_header(mode):
    """Nothing to switch off: the checksum is the reader's wish. What is behind an unknown header is reported."""
    unknown = layers.ethernet(0x894F, bytes(8) + layers.ipv4(6, layers.segment(4, bytes(80), finished=False)))
    vnet = struct.pack("=BBHHHH", NEEDS_CSUM, 0, 0, 0, len(PARTIAL.headers), 6)
    with foreign_hosts() as hosts, tap(hosts) as fd, received(hosts) as end:
        hosts.ports = (PortSpec("xktap", hosts.room), hosts.ports[1])
        with hosts.emulator({"mode": mode}) as emulator:
            os.write(fd, vnet + PARTIAL.packet(PARTIAL.pseudo))
            assert end.recv(2000) == PARTIAL.packet(PARTIAL.right)
            assert not any("checksum" in reason for reason in emulator.report().invalid_because)
            os.write(fd, bytes(len(vnet)) + unknown)
            assert end.recv(2000) == unknown
            report = emulator.close()
        assert report.links[0].directions[0].checksums == {"finished_checksum": 1, "unfinished_checksum": 1}
        assert (
            "wan forward: 1 packets left with an unfinished checksum: the sender leaves it to its device, and xskit "
            "cannot finish it (unfinished_checksum); on the sender: ethtool -K INTERFACE tx off"
        ) in report.invalid_because


def test_sctp_as_a_stack_leaves_it_to_its_device():
    """Its checksum is zero then. This kernel may have no SCTP, so the bytes are written by hand."""
    with foreign_hosts() as hosts, received(hosts) as end, hosts.emulator():
        with inside(hosts.namespaces[0]):
            sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with sender:
            sender.bind(("xk0", 0))
            sender.send(layers.ethernet(0x0800, layers.ipv4(132, layers.sctp(bytes(40), finished=False))))
        assert end.recv(2000) == layers.ethernet(0x0800, layers.ipv4(132, layers.sctp(bytes(40), finished=True)))


# -- lengths -------------------------------------------------------------------------------------------------------


def test_udp_segments_are_cut_before_a_port_in_generic_mode():
    """UDP_SEGMENT hands 20 datagrams over as one packet."""
    with foreign_hosts() as hosts, hosts.emulator({"mode": "generic"}) as emulator:
        with inside(hosts.namespaces[0]):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with inside(hosts.namespaces[1]):
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sender, receiver:
            receiver.bind((ADDRESSES[1], 7002))
            receiver.settimeout(20)
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
            sender.sendto(bytes(20_000), (ADDRESSES[1], 7002))
            assert [len(receiver.recv(3000)) for _ in range(20)] == [1000] * 20
        assert emulator.report().links[0].directions[0].packets["dropped"] == {}


def ping(hosts: Foreign, size: int) -> None:
    with inside(hosts.namespaces[0]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(bytes(size), (ADDRESSES[1], 7003))


def test_mtus_that_differ_are_named_at_the_start_and_in_the_end():
    with foreign_hosts(9000) as hosts:
        ip("-n", str(hosts.room), "link", "set", "xkp1", "mtu", "1500")
        with hosts.emulator() as emulator:
            a, b, room = *hosts.namespaces, hosts.room
            assert told(emulator) == [
                f"link wan: MTUs differ ({a}/xk0 9000, {room}/xkp0 9000, {room}/xkp1 1500, {b}/xk0 9000), so longer "
                f"packets are dropped; try: ip -n {room} link set xkp1 mtu 9000"
            ]
            ping(hosts, 3000)
            direction = emulator.links["wan"].forward.live
            wait_until(lambda: direction.reading().dropped()[DropCause.EGRESS_MTU][0] == 1, "it was dropped")
            report = emulator.close()
        assert report.links[0].directions[0].packets["dropped"] == {"egress_mtu": 1}
        assert (
            "wan forward: 1 packets were longer than the MTU of the port where they leave, or of its far end; "
            "there: ip link set INTERFACE mtu BYTES"
        ) in report.invalid_because


def test_what_a_far_end_would_refuse_is_not_given_to_it():
    with foreign_hosts(9000) as hosts:
        ip("-n", str(hosts.namespaces[1]), "link", "set", "xk0", "mtu", "1500")
        with hosts.emulator() as emulator:
            ping(hosts, 3000)
            direction = emulator.links["wan"].forward.live
            wait_until(lambda: direction.reading().dropped()[DropCause.EGRESS_MTU][0] == 1, "it was dropped")


def refused(report: Report) -> int:
    """Packets that the second port's far end did not take: counted when sendto fails, or by the driver."""
    return report.links[0].directions[0].packets["dropped"].get("tx_refused", 0) + (report.ports[1].egress_refused or 0)


def test_what_a_far_end_refuses_is_counted():
    """Its MTU shrinks while the link runs. The question for its address comes first, and passes."""
    with foreign_hosts(9000) as hosts, hosts.emulator() as emulator:
        ip("-n", str(hosts.namespaces[1]), "link", "set", "xk0", "mtu", "1500")
        ping(hosts, 3000)
        wait_until(lambda: refused(emulator.report()), "it was refused")
        report = emulator.close()
        assert refused(report) == 1
        assert not report.valid


def tagging_ends(namespaces: Sequence[str | int], kind: int, stack: ExitStack) -> list[socket.socket]:
    """A packet socket at each host's xk0, where a VLAN interface's work is done besides."""
    ends = []
    for namespace in namespaces:
        with inside(namespace):
            ends.append(tags.packet_socket(stack, "xk0"))
            tags.tagging(stack, "xk0", 10, kind)
    return ends


def exchange_tagged(ends: list[socket.socket], size: int) -> None:
    """Six packets each way, of which three are of full size behind the inner tag; all arrive whole and in order."""
    inner = b"\xff" * 6 + b"\x02" + bytes(5) + struct.pack(">HHH", 0x8100, 20, tags.TESTING)
    for sender, receiver in (ends, ends[::-1]):
        for length in (100, size, 200, size, size, 300):
            sent = inner + bytes(n % 251 for n in range(length))
            sender.send(sent)
            data, ancillary, _, _ = receiver.recvmsg(size + 100, 100)
            assert data == sent
            assert struct.unpack_from("=I12xH", ancillary[0][2])[1] == 10


@pytest.mark.parametrize(("size", "kind"), [(1500, 0x8100), (1500, 0x88A8), (9000, 0x88A8)])
def test_full_size_packets_with_two_vlan_tags_cross(size, kind):
    """As without xskit: the outer tag lies beside the packet, where it does not count against an MTU."""
    with foreign_hosts(size) as hosts, ExitStack() as stack:
        ends = tagging_ends(hosts.namespaces, kind, stack)
        with hosts.emulator() as emulator:
            exchange_tagged(ends, size)
            report = emulator.close()
        for direction in report.links[0].directions:
            assert (direction.packets["sent"], direction.packets["dropped"]) == (6, {})
        with inside(hosts.room):
            assert {interfaces.mtu(port.name) for port in hosts.ports} == {size}


def test_full_size_packets_with_two_vlan_tags_cross_a_lab():
    with Lab(memory="16MiB", ip=4) as lab, ExitStack() as stack:
        hosts = lab.host("a"), lab.host("b")
        link = lab.link(*hosts)
        ends = tagging_ends([host.namespace for host in hosts], 0x88A8, stack)
        exchange_tagged(ends, 1500)
        lab.close()
        for direction in link.report().links[0].directions:
            assert (direction.packets["sent"], direction.packets["dropped"]) == (6, {})
