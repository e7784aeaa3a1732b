"""`xskit run` over IPv4 and IPv6, and on links that are slower than the kernel's patience with a neighbour."""

from __future__ import annotations

import json
import sys

import pytest

from tests.e2e.rig import UDP_CLIENT, UDP_SERVER, Outer, ip

pytestmark = [pytest.mark.root, pytest.mark.e2e]

PEER, PEER6, COMMAND6 = "198.18.1.2", "fd78:736b:6974:1::2", "fd78:736b:6974:1::1"
TCP_SERVER = """
import socket
listener = socket.create_server(("::", 7001), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
connections = [listener.accept() for _ in range(2)]
"""
TCP_CLIENT = "import sys, socket; socket.create_connection((sys.argv[1], 7001), timeout=60)"


def test_the_peer_has_an_ipv4_and_an_ipv6_address_in_this_order(machine: Outer):
    script = "getent ahosts peer | grep STREAM; ip -6 route; ip -brief -6 address show lo; ip -6 neighbour"
    lines = machine.xskit("run", "--", "sh", "-c", script).out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == [PEER, PEER6]
    assert next(line for line in lines if line.startswith("default")).startswith(f"default via {PEER6} dev xk0")
    assert any(line.split() == ["lo", "UNKNOWN", "::1/128"] for line in lines)
    assert any(line.startswith(f"{PEER6} dev xk0 lladdr ") and line.endswith("PERMANENT ") for line in lines)


def test_a_link_slower_than_the_patience_of_arp_and_nd(machine: Outer):
    machine.listen(TCP_SERVER)
    script = f'"$0" -c "$1" {PEER} & "$0" -c "$1" {PEER6}; code=$?; wait $! && exit $code'
    result = machine.xskit("run", "--owd", "1600ms", "--json", "--", "sh", "-c", script, sys.executable, TCP_CLIENT)
    assert result.code == 0, result.err
    (warning,) = json.loads(result.err)["warnings"]
    assert warning.startswith("link run: a round trip takes 1s or more, but TCP retransmits a SYN after 1s")


def test_ipv6_only(machine: Outer):
    machine.listen(UDP_SERVER.replace("AF_INET,", "AF_INET6,"))
    script = 'getent ahosts peer | grep -c STREAM; ip -4 route; "$0" -c "$1" peer 5'
    client = UDP_CLIENT.replace("AF_INET,", "AF_INET6,")
    result = machine.xskit("run", "--ip", "6", "--", "sh", "-c", script, sys.executable, client)
    assert result.out == "1\n5\n", result.err


def test_a_machine_whose_ipv6_is_switched_off(machine: Outer):
    machine.run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1", "net.ipv6.conf.all.disable_ipv6=1")
    result = machine.xskit("run", "--json", "--", "ip", "-6", "-brief", "address", "show", "xk0")
    assert result.out == ""
    assert json.loads(result.err)["warnings"] == ["link run has no IPv6: IPv6 is turned off on this machine"]
    result = machine.xskit("run", "--ip", "6", "--", "true")
    assert (result.code, result.err) == (
        1,
        "xskit: IPv6 is turned off on this machine\ntry: sysctl -w net.ipv6.conf.default.disable_ipv6=0\n",
    )


def test_this_machine_answers_from_the_links_own_address(machine: Outer):
    ip("-netns", machine.name, "address", "add", "2001:db8::1/64", "dev", "lo", "nodad")  # as good, and preferred
    script = f"nsenter --net=/run/netns/{machine.name} ip -6 route get {COMMAND6}"
    assert f" src {PEER6} " in machine.xskit("run", "--", "sh", "-c", script).out
