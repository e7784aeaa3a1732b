"""What happens to a running link when interfaces go down, come back, lose their other end, or are deleted."""

from __future__ import annotations

import subprocess
import threading

import pytest

from tests.real.detaching import detach
from tests.real.foreign_hosts import foreign_hosts
from tests.real.lab_rig import assert_every_frame_is_somewhere, datagram, dropped, pair, wait_until
from xskit.errors import UsageError
from xskit.netconf import ethtool, interfaces
from xskit.netconf.namespaces import inside

pytestmark = pytest.mark.root


def ip(namespace: str, *words: str) -> None:
    subprocess.run(["ip", "-n", namespace, *words], check=True, capture_output=True, timeout=30)


def ports_of(made):
    return tuple(made.link.emulator.ports)


def test_a_port_that_is_down_drops_what_is_due_and_goes_on_when_it_is_up():
    with pair(owd="1ms") as made:
        flow = made.flow()
        egress = flow.direction.live.egress()
        _, port = ports_of(made)
        flow.send(10)
        ip(port.namespace, "link", "set", "dev", port.name, "down")
        flow.send(1, first=10)
        wait_until(lambda: egress.down, "the worker has noticed")
        flow.send(50, first=11)
        wait_until(lambda: dropped(flow.direction) == {"port_down": 50}, "what is due is dropped")
        made.assert_books_balance()
        assert flow.counters.in_flight == 1  # the kernel had it already, and keeps it
        ip(port.namespace, "link", "set", "dev", port.name, "up")
        flow.empty()
        flow.send(20, first=61)
        flow.empty()
        assert flow.numbers() == [*range(11), *range(61, 81)]
        assert made.link.report().links[0].directions[0].packets["dropped"] == {"port_down": 50}
        made.stop_workers()
        assert_every_frame_is_somewhere(flow.direction)


def test_a_port_that_was_down_receives_again():
    with pair() as made:
        flow = made.flow(reverse=True)
        _, port = ports_of(made)
        flow.send(10)
        flow.take(10)
        ip(port.namespace, "link", "set", "dev", port.name, "down")
        ip(port.namespace, "link", "set", "dev", port.name, "up")
        before = flow.counters.received
        knocks = iter(range(10, 1_000_000))

        def knock() -> bool:
            flow.sender.send(datagram(next(knocks), 100))
            return flow.counters.received > before

        wait_until(knock, "the host sends again, a moment after its carrier is back")
        first = next(knocks)
        flow.send(20, first=first)
        wait_until(lambda: flow.numbers()[-1] == first + 19, "all have come")
        assert flow.numbers()[-20:] == list(range(first, first + 20))


def test_packets_to_a_host_whose_end_is_down_are_refused_by_the_kernel():
    with pair() as made:
        flow = made.flow()
        flow.send(10)
        flow.take(10)
        (interface,) = made.b.interfaces
        ip(made.b.namespace, "link", "set", "dev", interface, "down")
        flow.send(40, first=10)
        flow.empty()
        assert dropped(flow.direction) == {"tx_refused": 40}
        assert flow.counters.sent == 10
        ip(made.b.namespace, "link", "set", "dev", interface, "up")
        flow.send(10, first=50)
        flow.empty()
        assert flow.numbers() == [*range(10), *range(50, 60)]
        made.assert_books_balance()
        assert made.link.report().links[0].directions[0].packets["dropped"] == {"tx_refused": 40}


def test_a_program_that_somebody_detaches_makes_the_run_invalid_though_it_goes_on():
    with pair() as made:
        flow = made.flow()
        flow.send(10)
        flow.take(10)
        port = ports_of(made)[0]
        detach(made.link.emulator.ports[port]._attachment.link)
        sentence = f"port {port}: its XDP program was detached while the link was running: its packets bypass the link"
        wait_until(lambda: sentence in made.link.report().warnings, "it is told")
        made.assert_books_balance()
        report = made.link.close()
        for told in (report.warnings, report.invalid_because):  # a busy machine adds lateness
            assert [one for one in told if "(allowed: " not in one] == [sentence]


def mtu_and_offloads(name: str, namespace: str) -> tuple[int, dict[str, bool]]:
    with inside(namespace), interfaces.control_socket() as control:
        known = ethtool.features(control, name)
        return interfaces.mtu(name), {feature: value.requested for feature, value in known.items()}


def test_a_port_that_is_moved_to_another_namespace():
    """It is put back where it is then."""
    with foreign_hosts() as hosts:
        port, target = hosts.ports[0], str(hosts.namespaces[1])
        before = mtu_and_offloads(port.name, hosts.room)
        with hosts.emulator() as emulator:
            assert mtu_and_offloads(port.name, hosts.room)[0] > before[0]
            ip(hosts.room, "link", "set", port.name, "netns", target)
            sentence = f"port {port} was moved to the network namespace {target} while the link was running"
            assert emulator.wait(60) == sentence
            assert emulator.close().invalid_because[0] == sentence
        assert mtu_and_offloads(port.name, target) == before


@pytest.mark.parametrize("which", [0, 1], ids=["ingress", "egress"])
def test_a_port_that_is_deleted_under_load(which):
    with pair(owd="2ms", jitter="1ms", loss="1%") as made:
        flow = made.flow()
        flow.send(64)
        enough = threading.Event()

        def send_on() -> None:
            number = 64
            while not enough.wait(0.0001):
                try:
                    flow.sender.send(datagram(number, 100))
                except OSError:  # the host's end has gone with it
                    return
                number += 1

        load = threading.Thread(target=send_on)
        load.start()
        port = ports_of(made)[which]
        ip(port.namespace, "link", "del", port.name)
        sentence = f"port {port} was deleted while the link was running"
        assert made.link.emulator.wait(60) == sentence
        made.assert_books_balance()
        report = made.link.close()
        enough.set()
        load.join()
        assert report.invalid_because[0] == sentence
        assert made.link.close() is report
        assert made.link.report() is report
        with pytest.raises(UsageError, match="^a-b forward: the link is not running$"):
            made.link.update(owd="3ms")
