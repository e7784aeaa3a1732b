"""Labs of several hosts and links, their processes, TCP, and the traffic that the lab itself can make."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import socket
import subprocess
import threading
import warnings
from contextlib import ExitStack

import pytest

from tests.guards import descriptors, namespaces
from tests.real import tags
from tests.real.lab_rig import Pair, pair, wait_until
from xskit.emulator.mistakes import SettingsError
from xskit.errors import UsageError
from xskit.lab import Lab, traffic
from xskit.lab.traffic import TrafficError

pytestmark = pytest.mark.root


def flow_over(lab, link, stack, **options):
    return Pair(lab, *link.hosts, link, stack).flow(**options)


def test_two_links_at_once():
    with pair(owd="1ms") as made:
        c, d = made.lab.host("c"), made.lab.host("d")
        second = made.lab.link(c, d, name="other", owd="3ms", loss="100%", reverse={"loss": 0})
        flows = [
            made.flow(),
            flow_over(made.lab, second, made.stack),
            flow_over(made.lab, second, made.stack, reverse=True, port=7002),
        ]
        senders = [threading.Thread(target=flow.send, args=(200,)) for flow in flows]
        for sender in senders:
            sender.start()
        for sender, flow in zip(senders, flows, strict=True):
            sender.join()
            flow.empty()
        assert [len(flow.take()) for flow in flows] == [200, 0, 200]
        assert min(one.owd_ns for one in flows[2].came) >= 3_000_000
        reports = made.lab.report()
        assert [report.name for report in reports] == ["a-b", "other"]
        assert reports[1].directions[0].packets["dropped"] == {"loss": 200}


def test_three_hosts_in_a_row():
    with Lab() as lab:
        a, router, b = (lab.host(name) for name in ("a", "router", "b"))
        first = lab.link(a, router, owd="2ms")
        second = lab.link(router, b, owd="3ms")
        router.run("sysctl", "-qw", "net.ipv4.ip_forward=1", check=True)
        a.run("ip", "route", "add", "default", "via", first.addresses[1], check=True)
        b.run("ip", "route", "add", "default", "via", second.addresses[0], check=True)
        result = traffic.udp(a, b, packets=100, interval_ns=100_000, frame_bytes=200)
        assert (result.sent, result.received, result.reordered) == (100, 100, 0)
        assert result.owd_ns[0] >= 5_000_000
        assert min(traffic.ping(a, b, count=2, interval_ns=1_000_000)) >= 10_000_000
        assert first.report().links[0].directions[0].packets["sent"] >= 100
        assert second.report().links[0].directions[0].packets["received"] >= 100


def test_tcp_crosses_a_lossy_link_whole():
    with pair(owd="1ms", rate="50Mbit", loss="1%") as made:
        data = os.urandom(400_000)
        came = bytearray()
        with made.b.inside():
            listener = socket.create_server(("0.0.0.0", 7001))
        with listener:

            def receive() -> None:
                connection, _ = listener.accept()
                with connection:
                    while part := connection.recv(1 << 16):
                        came.extend(part)

            receiver = threading.Thread(target=receive)
            receiver.start()
            sender = made.socket(made.a, socket.SOCK_STREAM)
            sender.connect((made.link.addresses[1], 7001))
            sender.sendall(data)
            sender.shutdown(socket.SHUT_WR)
            while receiver.is_alive():
                made.assert_books_balance()
                receiver.join(0.01)
        assert came == data
        for direction in made.link.report().links[0].directions:
            assert "super_packet" not in direction.packets["dropped"]
            assert direction.packets["received"] > 50


def test_the_labs_own_traffic():
    with pair(owd="2ms", rate="1Gbit") as made:
        result = traffic.udp(made.a, made.b, packets=200, interval_ns=50_000, frame_bytes=1000)
        assert (result.sent, result.received, result.lost, result.reordered) == (200, 200, 0, 0)
        assert result.owd_ns[0] >= 2_000_000
        assert result.owd_ns == sorted(result.delays_ns)
        assert min(traffic.ping(made.a, made.b, count=3, interval_ns=1_000_000)) >= 4_000_000


@pytest.mark.parametrize("sender", ["iperf3", "xskit's own sender"])
def test_the_labs_own_tcp(sender, monkeypatch):
    if sender != "iperf3":
        monkeypatch.setattr(shutil, "which", lambda _name: None)
    elif not shutil.which("iperf3"):
        pytest.skip("needs iperf3")
    with pair(owd="1ms", rate="100Mbit") as made:
        bps, did_it = traffic.tcp(made.a, made.b, seconds=0.3)
        assert did_it == sender
        assert 0 < bps < 100_000_000


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo no room >&2; exit 1", "iperf3 failed: no room"),
        ("echo '{'", "iperf3 failed: no reason given"),
        ("exec sleep 3600", "iperf3 did not end within 1 s"),
    ],
)
def test_an_iperf3_that_fails_is_told(script, sentence, monkeypatch, tmp_path):
    program = tmp_path / "iperf3"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Lab() as lab:
        a, b = lab.host("a"), lab.host("b")
        b.addresses.append("198.18.1.2")
        with pytest.raises(TrafficError, match=f"^{sentence}$"):
            traffic.tcp(a, b, seconds=-19)


def test_hosts_know_each_other_by_name_and_processes_end_with_the_lab():
    with pair() as made:
        seen = made.a.run("getent", "ahosts", "b", capture_output=True, text=True, check=True).stdout.splitlines()
        streams = [line.split()[0] for line in seen if "STREAM" in line]
        assert streams == [made.b.address, made.b.address6]
        echoed = made.a.run("cat", input="in and out", capture_output=True, text=True)
        assert (echoed.returncode, echoed.stdout) == (0, "in and out")
        sleeper = made.a.spawn("sleep", "3600")
        assert sleeper.poll() is None
        with pytest.raises(subprocess.CalledProcessError):
            made.b.run("false", check=True)
        with pytest.raises(subprocess.TimeoutExpired):
            made.b.run("sleep", "3600", timeout=0.05)
    assert sleeper.wait(30) != 0


def test_what_a_lab_refuses():
    with Lab() as lab:
        a, b = lab.host("a"), lab.host("b")
        with pytest.raises(UsageError, match="^there is a host a already$"):
            lab.host("a")
        with pytest.raises(UsageError, match="^lab is the network namespace of the lab itself, and no host$"):
            lab.host("lab")
        with pytest.raises(UsageError, match="^there is no command to start$"):
            a.run()
        with pytest.raises(UsageError, match="^host a has no address yet: it is on no link$"):
            _ = a.address
        with pytest.raises(SettingsError, match="^link a-b: lossy: unknown key; did you mean loss\\?$"):
            lab.link(a, b, lossy="1%")
        for mtu in (67, 65_536):
            with pytest.raises(UsageError, match=f"^mtu must be between 68 and 65535, not {mtu}\n"):
                lab.link(a, b, mtu=mtu)
        with pytest.raises(UsageError, match="^a cannot be linked to itself$"):
            lab.link(a, a)
        lab.link(a, b)
        with pytest.raises(UsageError, match="^there is a link a-b already$"):
            lab.link(a, b)
    with pytest.raises(SettingsError, match="^Lab: spinn: unknown key; did you mean spin\\?$"):
        Lab(spinn=True)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a\nb", "\0", "ä", "a" * 41, None])
@pytest.mark.parametrize("kind", ["host", "machine"])
def test_what_is_no_name_of_a_host(kind, name):
    with Lab() as lab, pytest.raises(UsageError, match="^a host's name is 1 to 40 letters, .*, not ") as told:
        getattr(lab, kind)(name)
    assert told.value.cause.endswith(repr(name))


def test_a_longest_name_of_a_host():
    with Lab() as lab:
        a = lab.host("a" * 40)
        lab.link(a, lab.host(".-_"))
        assert a.run("true").returncode == 0


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_a_vlan_tag_crosses(mode):
    with pair(engine={"mode": mode}) as made, ExitStack() as stack:
        ends = []
        for host in (made.a, made.b):
            with host.inside():
                ends.append(tags.packet_socket(stack, host.interfaces[0]))
                tags.tagging(stack, host.interfaces[0], 5)
        tags.send(ends[0], 1)
        assert tags.tag_of_next(ends[1]) == (1, 5)


def test_a_link_that_cannot_start_leaves_the_lab_usable():
    with Lab(memory="1MiB", ring_size=64) as lab:
        a, b = lab.host("a"), lab.host("b")
        lab.engine = lab.engine.model_copy(update={"memory": 4096})
        with pytest.raises(SettingsError, match="^this packet memory cannot even fill the FILL rings"):
            lab.link(a, b)
        lab.engine = lab.engine.model_copy(update={"memory": 1 << 20})
        assert (a.addresses, b.addresses) == ([], [])
        assert (a.interfaces, b.interfaces) == ([], [])
        link = lab.link(a, b)
        result = traffic.udp(a, b, packets=20, interval_ns=10_000, frame_bytes=100)
        assert result.received == 20
        assert link.addresses == (a.address, b.address)


def let_go(kept):
    """Forget what is in the list."""
    kept.clear()
    gc.collect()


def test_a_lab_that_is_forgotten_is_closed_with_a_warning():
    before = descriptors() | namespaces()

    def build():
        lab = Lab()
        return lab.link(lab.host("a"), lab.host("b")), lab._tag

    link, tag = build()
    gc.collect()
    assert traffic.udp(*link.hosts, packets=5, interval_ns=10_000, frame_bytes=100).received == 5  # still there
    kept = [link.hosts[0]]
    del link
    gc.collect()
    assert kept[0].run("true").returncode == 0
    with pytest.warns(ResourceWarning, match=f"^a lab was not closed: its namespaces {tag}-... are removed now$"):
        let_go(kept)
    wait_until(lambda: descriptors() | namespaces() == before, "it has been closed")


def test_a_lab_that_was_closed_is_forgotten_in_silence(recwarn):
    lab = Lab()
    lab.host("a")
    lab.close()
    del lab
    gc.collect()
    assert [str(one.message) for one in recwarn] == []


def test_a_forked_process_that_forgets_a_lab_takes_nothing_away():
    with Lab() as lab:
        a = lab.host("a")
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):
                warnings.simplefilter("error")
                lab._forgotten()
                code = 0
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert a.run("true").returncode == 0


def test_a_lab_leaves_no_descriptor_and_no_memory_behind():
    before = descriptors()
    for _ in range(2):
        with pair(owd="1ms") as made:
            made.flow().send(10)
    assert descriptors() == before


def test_closing_twice_and_a_link_before_its_lab():
    with pair() as made:
        report = made.link.close()
        assert made.link.close() is report
        made.lab.close()
        made.lab.close()
        wait_until(lambda: made.link.report() is report, "the last report stays")
