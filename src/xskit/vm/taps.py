"""Taps as the other ends of a guest's NICs, in a network namespace that nobody else has.

    NIC 0 -- xktap0 -- xkwire0 (a bridge) -- xktap1 -- NIC 1

QEMU's hubs have one queue, and know no offloads, so a virtio-net on one has neither checksums nor scatter-gather, and
the guest's kernel makes every packet linear before it sends it. A tap with a virtio header has both, and several
queues (IFF_VNET_HDR, IFF_MULTI_QUEUE, linux/if_tun.h). The namespace has no name: it goes with the last descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from xskit.abi.mount import CLONE_NEWNET
from xskit.libc import unshare
from xskit.netconf.interfaces import control_socket, index, set_up
from xskit.vm.errors import GuestError

__all__ = ["taps"]

_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_MULTI_QUEUE, _IFF_VNET_HDR = 0x0002, 0x1000, 0x0100, 0x4000
_SIOCBRADDBR, _SIOCBRADDIF = 0x89A0, 0x89A2  # linux/sockios.h
_TUN = "/dev/net/tun"


@contextmanager
def taps(count: int, queues: int, *, wired: bool = False) -> Iterator[list[list[int]]]:
    """So many taps, each with a descriptor for each queue.

    Args:
        count: how many.
        queues: of each.
        wired: 0 and 1 are on one bridge, 2 and 3 on the next, and none has offloads; else what is sent to one goes
            nowhere.

    Raises:
        GuestError: there is no /dev/net/tun, or no right to it; or there are no bridges.
    """
    found: list[list[int]] = []
    failure: list[OSError] = []

    def make() -> None:
        """In a thread, because the namespace is the thread's, and ends with it but for the taps."""
        try:
            unshare(CLONE_NEWNET)
            for number in range(count):
                found.append([])
                for _ in range(queues):
                    found[-1].append(_open(f"xktap{number}", queues, offloads=not wired))
                set_up(f"xktap{number}", True)
                if wired:
                    _join(number, f"xkwire{number // 2}")
        except OSError as error:
            failure.append(error)

    thread = threading.Thread(target=make, name="xskit-taps")
    thread.start()
    thread.join()
    try:
        if failure:
            raise GuestError(
                f"no tap can be made for the guest: {failure[0].strerror}",
                remedy="sudo (taps need root), or --queues 1, or --nic igb"
                if failure[0].errno in (errno.EPERM, errno.EACCES)
                else f"ls -l {_TUN}",
            )
        yield found
    finally:
        for fd in (fd for each in found for fd in each):
            os.close(fd)


def _join(number: int, bridge: str) -> None:
    """Put a tap on its bridge, which the first of the two makes. Without a spanning tree it forwards at once."""
    with control_socket() as control:
        if number % 2 == 0:
            fcntl.ioctl(control, _SIOCBRADDBR, struct.pack("=16s", bridge.encode()))
            set_up(bridge, True)
        fcntl.ioctl(control, _SIOCBRADDIF, struct.pack("=16si20x", bridge.encode(), index(f"xktap{number}")))


def _open(name: str, queues: int, *, offloads: bool) -> int:
    fd = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    flags = _IFF_TAP | _IFF_NO_PI | (_IFF_VNET_HDR if offloads else 0) | (_IFF_MULTI_QUEUE if queues > 1 else 0)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("=16sH22x", name.encode(), flags))
    except OSError:
        os.close(fd)
        raise
    return fd
