"""Which subnet a link gets."""

from __future__ import annotations

from ipaddress import IPv4Network
from itertools import islice

import pytest

from xskit.lab.subnets import addresses, free_numbers


def test_numbers_go_up_from_one():
    assert list(islice(free_numbers([], []), 3)) == [1, 2, 3]


def test_numbers_that_are_used_are_left_out():
    assert list(islice(free_numbers([1, 3], []), 2)) == [2, 4]


@pytest.mark.parametrize(
    ("network", "first"),
    [
        ("198.18.1.7/32", 2),
        ("198.18.0.0/22", 4),
        ("198.18.0.0/16", 256),
        ("10.0.0.0/8", 1),
        ("198.0.0.0/12", 1),
    ],
)
def test_networks_of_the_machine_are_left_out(network, first):
    assert next(free_numbers([], [IPv4Network(network)])) == first


@pytest.mark.parametrize("network", ["198.18.0.0/15", "198.16.0.0/12", "0.0.0.0/0"])
def test_nothing_is_free(network):
    assert list(free_numbers([], [IPv4Network(network)])) == []


def test_addresses():
    assert addresses(1) == ("198.18.1.1", "198.18.1.2")
    assert addresses(511) == ("198.19.255.1", "198.19.255.2")
