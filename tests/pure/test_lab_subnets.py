"""Which subnets a link gets, of which IP versions, and why not of both."""

from __future__ import annotations

from ipaddress import ip_network
from itertools import islice

import pytest

from xskit.emulator.mistakes import SettingsError
from xskit.emulator.settings import LabSettings, read
from xskit.errors import DeviceError
from xskit.lab import versions as module
from xskit.lab.subnets import LAST, NETWORKS, addresses, free_numbers, subnet
from xskit.lab.versions import Versions, every_subnet_taken, versions
from xskit.lab.wiring import link_local

BOTH = (4, 6)


def free(used, networks, wanted=BOTH):
    return free_numbers(used, map(ip_network, networks), wanted)


def test_numbers_go_up_from_one():
    assert list(islice(free([], []), 3)) == [1, 2, 3]
    assert list(free([], []))[-1] == LAST == 511


def test_numbers_that_are_used_are_left_out():
    assert list(islice(free([1, 3], []), 2)) == [2, 4]


@pytest.mark.parametrize(
    ("network", "first"),
    [
        ("198.18.1.7/32", 2),
        ("198.18.0.0/22", 4),
        ("198.18.0.0/16", 256),
        ("10.0.0.0/8", 1),
        ("198.0.0.0/12", 1),
        ("fd78:736b:6974:1::7/128", 2),
        ("fd78:736b:6974::/62", 4),
        ("fd78:736b:6974:0::/56", 100),
        ("fd78:736b:6975::/48", 1),
        ("2001:db8::/32", 1),
    ],
)
def test_networks_of_the_machine_are_left_out(network, first):
    assert next(free([], [network])) == first


@pytest.mark.parametrize("network", ["198.18.0.0/15", "198.16.0.0/12", "0.0.0.0/0", "fd78:736b:6974::/48", "fc00::/7"])
def test_nothing_is_free(network):
    assert list(free([], [network])) == []


@pytest.mark.parametrize(("network", "version"), [("198.18.0.0/15", 6), ("fc00::/7", 4)])
def test_networks_of_an_ip_version_that_is_not_wanted_take_nothing(network, version):
    assert next(free([], [network], (version,))) == 1


def test_addresses():
    assert addresses(1, 4) == ("198.18.1.1", "198.18.1.2")
    assert addresses(511, 4) == ("198.19.255.1", "198.19.255.2")
    assert addresses(1, 6) == ("fd78:736b:6974:1::1", "fd78:736b:6974:1::2")
    assert addresses(511, 6) == ("fd78:736b:6974:511::1", "fd78:736b:6974:511::2")


@pytest.mark.parametrize(("version", "prefix"), [(4, 24), (6, 64)])
def test_every_link_has_a_subnet_of_its_own(version, prefix):
    found = [subnet(number, version) for number in range(1, LAST + 1)]
    assert len(set(found)) == LAST
    assert all(one.prefixlen == prefix and one.subnet_of(NETWORKS[version]) for one in found)


def test_the_link_local_address_follows_from_the_mac_address():
    assert link_local("02:33:10:41:58:e4") == "fe80::33:10ff:fe41:58e4"  # as Linux made it
    assert link_local("00:25:96:12:34:56") == "fe80::225:96ff:fe12:3456"


# -- which IP versions ---------------------------------------------------------------------------------------------


def chosen(ip="both", mtu=1500, networks=(), machine=True) -> Versions:
    settings = read(LabSettings, {"ip": ip})
    return versions(settings, mtu, used={1}, networks=[ip_network(one) for one in networks], machine=machine)


@pytest.fixture
def kernel(monkeypatch):
    """A kernel with IPv6, which the machine's administrator leaves on; and how to change both."""

    def change(has: bool, off: bool) -> None:
        monkeypatch.setattr(module, "kernel_has_ipv6", lambda: has)
        monkeypatch.setattr(module, "ipv6_switched_off", lambda: off)

    change(has=True, off=False)
    return change


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(("ip", "numbers"), [("both", (4, 6)), (4, (4,)), (6, (6,)), ("4", (4,)), ("6", (6,))])
def test_as_asked(ip, numbers):
    assert chosen(ip) == Versions(numbers)


NO_IPV6 = [
    ({"mtu": 1279}, True, False, "IPv6 needs an MTU of at least 1280 bytes, not 1279", "mtu=1280", SettingsError),
    ({}, False, False, "this kernel has no IPv6", "ip=4", DeviceError),
    (
        {},
        True,
        True,
        "IPv6 is turned off on this machine",
        "sysctl -w net.ipv6.conf.default.disable_ipv6=0",
        DeviceError,
    ),
    (
        {"networks": ["fc00::/7"]},
        True,
        False,
        "every subnet of fd78:736b:6974::/48 is in use on this machine",
        "ip -6 address; ip -6 route",
        DeviceError,
    ),
]


@pytest.mark.parametrize(("how", "has", "off", "cause", "remedy", "kind"), NO_IPV6)
def test_both_means_ipv4_where_there_is_no_ipv6(kernel, how, has, off, cause, remedy, kind):
    kernel(has, off)
    assert chosen("both", **how) == Versions((4,), cause)
    assert chosen(4, **how) == Versions((4,))
    with pytest.raises(kind) as told:
        chosen(6, **how)
    assert (told.value.cause, told.value.remedy) == (cause, remedy)


@pytest.mark.usefixtures("kernel")
def test_the_least_mtu_of_ipv6_has_ipv6():
    assert chosen(mtu=1280) == Versions((4, 6))


def test_a_machine_without_ipv6_says_nothing_about_its_labs_other_hosts(kernel):
    kernel(has=True, off=True)
    assert chosen(machine=False) == Versions((4, 6))


@pytest.mark.usefixtures("kernel")
def test_no_number_that_is_free_in_both():
    halves = ["198.18.0.0/16", "fd78:736b:6974:200::/56", "fd78:736b:6974:300::/56", "fd78:736b:6974:400::/54"]
    assert chosen("both", networks=halves) == Versions(
        (4,), "every subnet of fd78:736b:6974::/48 is in use on this machine"
    )
    assert chosen(6, networks=halves) == Versions((6,))


def test_no_subnet_left_names_the_network():
    told = every_subnet_taken(4)
    assert told.cause == "every subnet of 198.18.0.0/15 is in use on this machine"
    assert told.remedy == "ip -4 address; ip -4 route"


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"ip": 5}, "Lab: ip: expected 4, 6 or 'both', got 5"),
        ({"ip": "six"}, "Lab: ip: expected 4, 6 or 'both', got 'six'"),
        ({"neighbours": "arp"}, "Lab: neighbours: expected 'permanent' or 'kernel', got 'arp'"),
    ],
)
def test_settings_that_no_lab_has(values, cause):
    with pytest.raises(SettingsError) as told:
        read(LabSettings, values, "Lab")
    assert told.value.cause == cause
