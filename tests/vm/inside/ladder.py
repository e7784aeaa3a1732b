"""What runs on this kernel with these NICs: the best mode there is, what is missing from it, and that it works."""

from __future__ import annotations

import os
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
from xskit.bpf.probe import Feature, available
from xskit.emulator.emulator import Emulator
from xskit.emulator.ports import LinkSpec, PortSpec
from xskit.emulator.settings import EngineSettings, LinkSettings
from xskit.errors import XskitError
from xskit.netconf.interfaces import set_mtu
from xskit.netconf.netdev import device_features
from xskit.xsk.port import Port
from xskit.xsk.socket import Socket
from xskit.xsk.umem import Umem

JUMBO = 9000


def check_mode() -> dict[str, Any]:
    """A port opens in the best mode there is, and says why no better one."""
    features = device_features(INNER)
    with Umem(2048) as umem, Port.open(INNER, umem) as port:
        queue = port.queues[0]
        assert queue.transmitter is not None
        return {
            "release": os.uname().release,
            "driver": driver(INNER),
            "xdp_mode": port.xdp_mode,
            "zero_copy": port.zero_copy,
            "multi_buffer": port.multi_buffer,
            "budget": queue.transmitter.transmit_budget,
            "why": port.why,
            "kernel_says": None if features is None else features.zero_copy,
            "missing": [feature.name for feature in Feature if not available(feature)],
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
    return {"stamps": stamped}


def check_link() -> dict[str, Any]:
    """The emulator, in whatever mode there is: order, content and books."""
    there, back = packets(96), packets(96, first=1000)
    link = LinkSpec("wan", (PortSpec(INNER), PortSpec(OUTER)), LinkSettings(owd="5ms"))
    with ends(NEAR, FAR) as (near, far), Emulator([link], EngineSettings(debug=True)) as running:
        arrived = cross(there, near.send, far.receive)
        returned = cross(back, far.send, near.receive)
        report = running.close()
    compare(arrived, padded(there))
    compare(returned, padded(back))
    assert report is not None
    for direction in report.links[0].directions:
        books = direction.packets
        assert books["received"] == books["sent"] + sum(books["dropped"].values()) + books["in_flight"], books
    return {"link": True}


def check_jumbo() -> dict[str, Any]:
    """MTU 9000: packets of several frames where that works, else the sentence that says why not."""
    try:
        for name in (NEAR, INNER):
            set_mtu(name, JUMBO)
    except XskitError as error:
        for name in (NEAR, INNER):
            set_mtu(name, 1500)
        return {"jumbo": False, "said": error.cause}
    sent = packets(8, lengths=(9014, 60, 4000))
    try:
        with ends(NEAR, INNER) as (near, inner):
            if len(cross(sent, near.send, lambda count: inner.receive(count, patience_s=3.0))) < len(sent):
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
        for name in (NEAR, INNER):
            set_mtu(name, 1500)


CHECKS = (check_mode, check_traffic, check_link, check_jumbo)
