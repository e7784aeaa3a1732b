"""What runs on this kernel with these NICs: the best mode there is, what is missing from it, and that it works."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from pathlib import Path
from typing import Any

from tests.vm.inside.wire import (
    FAR,
    INNER,
    NEAR,
    OUTER,
    End,
    await_carrier,
    compare,
    cross,
    driver,
    ends,
    packet,
    packets,
    padded,
)
from tests.vm.inside.zerocopy import collect
from xskit.abi.xdp import AF_XDP
from xskit.bpf.probe import BpfFeature, available
from xskit.emulator.emulator import Emulator
from xskit.emulator.plan import plan
from xskit.emulator.ports import LinkSpec, PortSpec
from xskit.emulator.settings import EngineSettings, LinkSettings
from xskit.errors import XskitError
from xskit.netconf.interfaces import set_mtu
from xskit.netconf.netdev import device_features
from xskit.xsk.errors import SocketError
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

JUMBO = 9000
PAGE = FRAME = 4096


def check_largest_memory() -> dict[str, Any]:
    """Whether the kernel takes the size of memory that `xskit plan` calls the largest before 5.14, and a page more.

    Nothing of it can be touched, so the guest need not have it: a kernel that takes the size then fails to pin it.
    """
    Path("/proc/sys/vm/overcommit_memory").write_text("1")
    largest = next(limit.largest_bytes for limit in plan({}).limits if limit.kernels == "< 5.14")
    found = {"largest": _said_to(largest), "a page more": _said_to(largest + PAGE)}
    Path("/proc/sys/vm/overcommit_memory").write_text("0")
    return found


def _said_to(size: int) -> tuple[str, str]:
    with Umem(size // FRAME, FRAME, populate=False) as umem, socket.socket(AF_XDP, socket.SOCK_RAW) as opened:
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(umem.address), ctypes.c_size_t(umem.size), 0) == 0
        try:
            umem.register(opened)
        except SocketError as error:
            return errno.errorcode[error.errno], error.cause
    raise AssertionError("what cannot be touched was registered")


def check_mode() -> dict[str, Any]:
    """A port opens in the best mode there is, and says why no better one; the verifier takes the larger program."""
    features = device_features(INNER)
    with Umem(2048) as umem, Port.open(INNER, umem, drop_chatter=True) as port:
        return {
            "release": os.uname().release,
            "driver": driver(INNER),
            "xdp_mode": port.xdp_mode,
            "zero_copy": port.zero_copy,
            "multi_buffer": port.multi_buffer,
            "budget": port.queues[0].transmit_budget,
            "why": port.why,
            "kernel_says": None if features is None else features.zero_copy,
            "missing": [feature.name for feature in BpfFeature if not available(feature)],
        }


def check_traffic() -> dict[str, Any]:
    """Packets come and go, compared byte for byte; whether they come with an arrival stamp."""
    sent = packets(120)
    with Umem(2048, debug=True) as umem, Socket(INNER, umem=umem) as opened, End(NEAR) as near:
        await_carrier(INNER)
        compare(cross(sent, near.send, lambda count: collect(opened, count)), padded(sent))
        near.send([packet(7)])
        (seen,) = opened.receive(timeout=10.0)
        stamped = seen.arrived_ns is not None

        def send(lot: list[bytes]) -> None:
            assert opened.send(lot) == len(lot)
            opened.flush(10.0)

        compare(cross(sent, send, near.receive), padded(sent))
        for _ in range(8):  # more than one system call sends: old kernels say late what they have taken of it
            send(packets(64))
    return {"stamps": stamped}


def check_link() -> dict[str, Any]:
    """The emulator, in whatever mode there is: order, content and books."""
    there, back = packets(96), packets(96, first=1000)
    link = LinkSpec("wan", (PortSpec(INNER), PortSpec(OUTER)), LinkSettings(owd="5ms"))
    with ends(NEAR, FAR) as (near, far), Emulator([link], EngineSettings()) as running:
        arrived = cross(there, near.send, far.receive)
        returned = cross(back, far.send, near.receive)
        report = running.close()
    compare(arrived, padded(there))
    compare(returned, padded(back))
    assert report is not None
    for direction in report.links[0].directions:
        books = direction.packets
        assert books["received"] == books["sent"] + sum(books["dropped"].values()) + books["in_flight"], books
        assert not any(direction.frames.values()), direction.frames
    return {"link": True}


def check_jumbo() -> dict[str, Any]:
    """MTU 9000: packets of several frames where that works, else the sentence that says why not."""
    try:
        _set_mtus(JUMBO)
    except XskitError as error:
        _set_mtus(1500)
        return {"jumbo": False, "said": error.cause}
    sent = packets(8, lengths=(9014, 60, 4000))
    try:
        with ends(NEAR, INNER) as (near, inner):
            if not any(_comes(sent, near, inner) for _ in range(3)):
                return {"jumbo": None, "said": "this NIC model loses packets of 9014 bytes, whoever receives them"}
        with Umem(2048, debug=True) as umem, End(NEAR) as near:
            try:
                opened = Socket(INNER, umem=umem)
            except XskitError as error:
                return {"jumbo": False, "said": error.cause}
            with opened:
                await_carrier(INNER)
                if not opened.multi_buffer:
                    return {"jumbo": False, "said": "; ".join(opened.why)}
                compare(cross(sent, near.send, lambda count: collect(opened, count)), padded(sent))
                return {"jumbo": True, "copied": not opened.zero_copy}
    finally:
        _set_mtus(1500)


def _set_mtus(mtu: int) -> None:
    """Of both ends of a wire. Some drivers reset the NIC for it, and what is sent meanwhile is lost."""
    for name in (NEAR, INNER):
        set_mtu(name, mtu)
    await_carrier(NEAR, INNER)


def _comes(sent: list[bytes], near: End, inner: End) -> bool:
    came = cross(sent, near.send, lambda count: inner.receive(count, patience_s=3.0))
    inner.drain()
    return len(came) == len(sent)


CHECKS = (check_largest_memory, check_mode, check_traffic, check_link, check_jumbo)
"""The first asks 5.10 for 4 MiB in one piece, which a guest surely has while it is new."""
