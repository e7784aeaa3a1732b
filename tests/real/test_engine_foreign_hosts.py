"""Hosts that xskit does not own, with their offloads on: TCP through a link between them, byte by byte."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import ExitStack

import pytest

from tests.real import tags
from tests.real.foreign_hosts import ADDRESSES, foreign_hosts, told
from tests.real.lab_rig import wait_until
from xskit.engine.live import NO_FAULTS
from xskit.netconf import interfaces
from xskit.netconf.changes import SetOffload
from xskit.netconf.ethtool import features
from xskit.netconf.namespaces import inside

pytestmark = pytest.mark.root


def transfer(hosts, size: int) -> None:
    """Send so many bytes over TCP from the first host to the second; they are compared one by one."""
    data = bytes(n * 31 % 253 for n in range(size))
    came = bytearray()
    with inside(hosts.namespaces[1]):
        listener = socket.create_server((ADDRESSES[1], 7001))
    with inside(hosts.namespaces[0]):
        sender = socket.socket()
    with listener, sender:
        listener.settimeout(60)

        def receive() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60)
                while part := connection.recv(1 << 16):
                    came.extend(part)

        receiver = threading.Thread(target=receive)
        receiver.start()
        sender.settimeout(60)
        sender.connect((ADDRESSES[1], 7001))
        sender.sendall(data)
        sender.shutdown(socket.SHUT_WR)
        receiver.join()
    assert came == data


def forward_of(emulator):
    return emulator.links["wan"].forward.live


@pytest.mark.parametrize(("mtu", "frame_size"), [(1500, None), (9000, 4096), (9000, 2048)])
def test_tcp_with_partial_checksums(mtu, frame_size):
    """In native mode Linux segments before the port; checksums are left to a device that never comes.

    The far ends are out of reach, or their offloads would be off.
    """
    with foreign_hosts(mtu) as hosts:
        hosts.forget_names()
        engine = {} if frame_size is None else {"frame_size": frame_size}
        with hosts.emulator(engine, owd="500us") as emulator:
            transfer(hosts, 200_000)
            for direction in emulator.links["wan"].directions:
                assert direction.live.pipeline.counters.checksums > 0
                assert not {"super_packet", "too_many_fragments"} & set(emulator_drops(emulator, direction.name))
            assert {port.xdp_mode for port in emulator.report().ports} == {"native"}
            assert forward_of(emulator).faults() == NO_FAULTS


def emulator_drops(emulator, name: str) -> dict[str, int]:
    (link,) = emulator.report().links
    return next(one.packets["dropped"] for one in link.directions if one.name == name)


def test_super_packets_in_generic_mode_are_counted_and_named():
    """Segmentation offload hands up to 64 KB to the port. TCP gets through all the same: it sends again, shorter."""
    with foreign_hosts() as hosts:
        hosts.forget_names()
        with hosts.emulator({"mode": "generic"}) as emulator:
            transfer(hosts, 20_000)
            report = emulator.report()
            dropped = report.links[0].directions[0].packets["dropped"]["super_packet"]
            assert dropped > 0
            assert any(
                reason.startswith(
                    f"wan forward: {dropped} packets were longer than the MTU of the port where they arrived"
                )
                for reason in report.invalid_because
            )
            assert forward_of(emulator).pipeline.counters.checksums > 0


def test_tcp_in_generic_mode_once_segmentation_is_off():
    with foreign_hosts() as hosts:
        for namespace in hosts.namespaces:
            change = SetOffload("xk0", {"tso": False, "gso": False}, namespace=namespace)
            change.remember()
            change.apply()
        hosts.forget_names()
        with hosts.emulator({"mode": "generic"}) as emulator:
            transfer(hosts, 100_000)
            assert emulator_drops(emulator, "forward") == {}
            assert forward_of(emulator).pipeline.counters.checksums > 0


# -- VLAN tags -----------------------------------------------------------------------------------------------------


def vlan_offloads(hosts) -> dict[str, bool]:
    """What of them is on, at ports and hosts."""
    found = {}
    for namespace, name in [(hosts.room, port.name) for port in hosts.ports] + [(n, "xk0") for n in hosts.namespaces]:
        with inside(namespace), interfaces.control_socket() as control:
            known = features(control, name)
        found |= {f"{namespace} {name} {one}": known[one].active for one in known if one.endswith(("insert", "parse"))}
    return found


def cross(hosts, vlan: int) -> list[tuple[int, int]]:
    """Send a packet each way, with a tag as a VLAN interface gives it; what came."""
    with ExitStack() as stack:
        ends = []
        for namespace in hosts.namespaces:
            with inside(namespace):
                ends.append(tags.packet_socket(stack, "xk0"))
                tags.tagging(stack, "xk0", vlan)
        tags.send(ends[0], 1)
        tags.send(ends[1], 2)
        return [tags.tag_of_next(ends[1]), tags.tag_of_next(ends[0])]


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_vlan_tags_cross_and_the_offloads_are_put_back(mode):
    with foreign_hosts() as hosts:
        before = vlan_offloads(hosts)
        assert all(before.values())
        with hosts.emulator({"mode": mode}) as emulator:
            assert cross(hosts, 5) == [(1, 5), (2, 5)]
            assert told(emulator) == []
        assert vlan_offloads(hosts) == before


def holds(pid: int, name: str) -> bool:
    return os.path.samefile(f"/proc/{pid}/ns/net", f"/run/netns/{name}")


def test_a_far_end_in_a_namespace_without_a_name():
    """As that of a container: a process holds it, and nothing else."""
    with foreign_hosts() as hosts, ExitStack() as stack:
        for name in hosts.namespaces:
            holder = subprocess.Popen(["nsenter", f"--net=/run/netns/{name}", "sleep", "600"])
            stack.callback(holder.wait)
            stack.callback(holder.kill)
            wait_until(lambda name=name, pid=holder.pid: holds(pid, name), "it is in there")
        hosts.forget_names()
        with hosts.emulator() as emulator:
            assert cross(hosts, 5) == [(1, 5), (2, 5)]
            assert told(emulator) == []


def test_a_far_end_that_cannot_be_found_is_told(caplog):
    with foreign_hosts() as hosts:
        hosts.forget_names()
        with hosts.emulator() as emulator:
            warnings = told(emulator)
        assert warnings == [
            f"port {port}: the far end of {port.name} is in a network namespace that no process and no name holds, so "
            "offloads stay on there: VLAN tags may be lost, and xskit finishes the checksums of packets that it can "
            "parse; at the far end: ethtool -K INTERFACE tx off txvlan off"
            for port in hosts.ports
        ]
        assert [message for message in caplog.messages if "late" not in message] == warnings
