"""The addresses of a lab: every link has a number, 1 to 511, which determines its subnet of each IP version.

    IPv4    198.18.N.0/24, up to 198.19.255.0/24    RFC 2544 sets 198.18.0.0/15 aside for benchmarks
    IPv6    fd78:736b:6974:N::/64                   unique local addresses (RFC 4193); the global ID spells "xskit"

The IPv6 subnet has the link's number in decimal digits: link 10 is 198.18.10.0/24 and fd78:736b:6974:10::/64.

They are unique local addresses because programs that order addresses by RFC 6724 put IPv4 first (precedence 35 and 3),
so a name resolves to IPv4 first. 2001:2::/48, the range for benchmarks (RFC 5180), has precedence 40. glibc's default
table is the older one of RFC 3484, which prefers all of IPv6; there, IPv4 comes first because these addresses are not
preferred (`SetAddress.preferred`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network

from xskit.netconf.subnets import Network

NETWORKS: dict[int, Network] = {4: IPv4Network("198.18.0.0/15"), 6: IPv6Network("fd78:736b:6974::/48")}
LAST = 511


def subnet(number: int, version: int) -> Network:
    """The subnet of the link with this number."""
    base = int(NETWORKS[version].network_address)
    if version == 4:
        return IPv4Network((base + (number << 8), 24))
    return IPv6Network((base + (int(str(number), 16) << 64), 64))


def free_numbers(used: Iterable[int], networks: Iterable[Network], versions: Collection[int]) -> Iterator[int]:
    """Numbers of links, ascending from 1, that are not `used` and whose subnets overlap none of the `networks`."""
    numbers = set(used)
    near = [one for one in networks if one.version in versions and _overlap(one, NETWORKS[one.version])]
    for number in range(1, LAST + 1):
        if number not in numbers and not any(_overlap(subnet(number, one.version), one) for one in near):
            yield number


def addresses(number: int, version: int) -> tuple[str, str]:
    """The two addresses on the link with this number."""
    network = subnet(number, version)
    return str(network[1]), str(network[2])


def _overlap(first: Network, second: Network) -> bool:
    """Of the same IP version."""
    (a, b), (c, d) = ((int(one.network_address), int(one.broadcast_address)) for one in (first, second))
    return a <= d and c <= b
