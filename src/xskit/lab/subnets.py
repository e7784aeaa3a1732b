"""The addresses of a lab: every link has a /24 of its own out of 198.18.0.0/15.

RFC 2544 sets that network aside for benchmarks. A link is known by the number of its subnet, 0 to 511.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network

NETWORK = IPv4Network("198.18.0.0/15")
SUBNETS = list(NETWORK.subnets(new_prefix=24))


def free_numbers(used: Iterable[int], networks: Iterable[IPv4Network]) -> Iterator[int]:
    """Numbers of subnets, ascending from 1, that are not `used` and overlap none of the `networks`."""
    numbers = set(used)
    near = [network for network in networks if network.overlaps(NETWORK)]
    for number, subnet in enumerate(SUBNETS):
        if number and number not in numbers and not any(subnet.overlaps(network) for network in near):
            yield number


def addresses(number: int) -> tuple[str, str]:
    """The two addresses on the link with this number."""
    subnet = SUBNETS[number]
    return str(subnet[1]), str(subnet[2])
