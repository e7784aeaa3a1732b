"""Which IP versions a link has: those asked for, as far as the kernel, this machine and the MTU allow them."""

from __future__ import annotations

from dataclasses import dataclass

from xskit.emulator.mistakes import SettingsError
from xskit.emulator.settings import LabSettings
from xskit.errors import DeviceError, Setting, XskitError
from xskit.lab.subnets import NETWORKS, free_numbers
from xskit.netconf.subnets import Network, ipv6_switched_off, kernel_has_ipv6

__all__ = ["Versions", "every_subnet_taken", "versions"]

LEAST_MTU = 1280
"""The least MTU of a link with IPv6 (RFC 8200 section 5); below it, Linux has no IPv6 on an interface."""


@dataclass(frozen=True)
class Versions:
    """The IP versions of a link, `numbers`; `remark` says why IPv6 is missing if both were asked for."""

    numbers: tuple[int, ...]
    remark: str | None = None


def versions(settings: LabSettings, mtu: int, *, used: set[int], networks: list[Network], machine: bool) -> Versions:
    """The IP versions of a new link.

    Args:
        settings: of the lab.
        mtu: of the link, in bytes.
        used: numbers of the lab's other links.
        networks: that the link must not overlap.
        machine: whether one end is this machine.

    Raises:
        SettingsError, DeviceError: IPv6 alone was asked for and is not available.
    """
    if settings.ip == 4:
        return Versions((4,))
    wanted = (6,) if settings.ip == 6 else (4, 6)
    obstacle = _obstacle(mtu, machine)
    if obstacle is None and next(free_numbers(used, networks, wanted), None) is None:
        obstacle = every_subnet_taken(6)
    if obstacle is None:
        return Versions(wanted)
    if settings.ip == 6:
        raise obstacle
    return Versions((4,), obstacle.cause)


def _obstacle(mtu: int, machine: bool) -> XskitError | None:
    if mtu < LEAST_MTU:
        return SettingsError(
            f"IPv6 needs an MTU of at least {LEAST_MTU} bytes, not {mtu}", remedy=Setting("mtu", LEAST_MTU)
        )
    if not kernel_has_ipv6():
        return DeviceError("this kernel has no IPv6", remedy=Setting("ip", 4))
    if machine and ipv6_switched_off():
        return DeviceError(
            "IPv6 is turned off on this machine", remedy="sysctl -w net.ipv6.conf.default.disable_ipv6=0"
        )
    return None


def every_subnet_taken(version: int) -> DeviceError:
    """The error for a machine that has no free subnet of an IP version."""
    return DeviceError(
        f"every subnet of {NETWORKS[version]} is in use on this machine",
        remedy=f"ip -{version} address; ip -{version} route",
    )
