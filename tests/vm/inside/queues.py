"""NICs of several queues: one registration for two of them, and what the hardware can be told, put back again."""

from __future__ import annotations

import socket
import struct
from typing import Any

from tests.vm.inside.wire import INNER, NEAR, OUTER, End, await_carrier, compare, driver, packet
from xskit.errors import DeviceError
from xskit.netconf import ethtool, hardware
from xskit.netconf.changes import AddFlowRule, SetChannels, SetOffload, SetRings
from xskit.netconf.interfaces import control_socket, look
from xskit.netconf.journal import Journal
from xskit.xsk.headers import udp_packet
from xskit.xsk.port import Port
from xskit.xsk.umem import Umem

FLOWS = 64


def _flows() -> list[bytes]:
    """Packets of many flows: what spreads packets over queues looks at addresses."""
    return [
        udp_packet(
            struct.pack("!I", number) + bytes(60),
            source=f"10.1.{number % 7}.{number + 1}",
            destination=f"10.2.0.{number % 11 + 1}",
            destination_mac="ff:ff:ff:ff:ff:ff",
        )
        for number in range(FLOWS)
    ]


def _everything(name: str) -> Any:
    """A socket for packets of all kinds."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    opened.bind((name, 3))
    opened.settimeout(10.0)
    return opened


def check_two_queues_share_a_memory() -> dict[str, Any]:
    """Both queues in zero copy on one registration: what the NIC spreads over them comes whole, and both send."""
    flows = _flows()
    assert look(INNER).rx_queues >= 2, look(INNER)
    with (
        Umem(4096, debug=True) as umem,
        Port.open(INNER, umem, mode="zero-copy", queues=[0, 1]) as port,
        _everything(NEAR) as near,
    ):
        assert all(queue.zero_copy for queue in port.queues)
        assert port.receive(timeout=0) == []
        got: dict[int, list[bytes]] = {0: [], 1: []}
        for at in range(0, FLOWS, 8):
            for content in flows[at : at + 8]:
                near.send(content)
            wanted, idle = at + 8, 0
            while sum(map(len, got.values())) < wanted and idle < 100:
                idle += 1
                for seen in port.receive(timeout=0.05):
                    got[seen.queue].append(bytes(seen))
        assert sorted(got[0] + got[1]) == sorted(flows)
        for queue in port.queues:
            wanted_back = [packet(1000 * queue.queue + number) for number in range(16)]
            with End(NEAR) as plain:
                assert port.send(wanted_back, queue=queue.queue) == 16
                port.flush(10.0)
                compare(plain.receive(16), wanted_back)
        umem.check()
    return {"packets": {number: len(contents) for number, contents in got.items()}}


def check_channels() -> dict[str, Any]:
    """Set, read back, and put back."""
    with control_socket() as control:
        before = hardware.channels(control, OUTER)
        wanted = 1 if before > 1 else 2
        with Journal.open() as journal:
            assert journal.apply(SetChannels(OUTER, wanted))
            assert hardware.channels(control, OUTER) == wanted
        assert hardware.channels(control, OUTER) == before
    await_carrier(OUTER)
    return {"before": before, "set": wanted}


def check_rings() -> dict[str, Any]:
    """RX and TX rings resized, and put back."""
    with control_socket() as control:
        before = ethtool.rings(control, OUTER)
        assert before is not None
        wanted = (before[0] // 2, before[1] // 2) if driver(OUTER) == "virtio_net" else (before[0] * 2, before[1] * 2)
        with Journal.open() as journal:
            assert journal.apply(SetRings(OUTER, *wanted))
            assert ethtool.rings(control, OUTER) == wanted
        assert ethtool.rings(control, OUTER) == before
    await_carrier(OUTER)
    return {"before": before, "set": wanted}


def check_flow_rules() -> dict[str, Any]:
    """A rule that steers an EtherType to queue 1: set, read back and removed; or the sentence that says why not.

    Of the emulated NICs none has rules: virtio-net knows none, and igb has them from the I210 on, QEMU's is an 82576.
    """
    with control_socket() as control, Journal.open() as journal:
        try:
            journal.apply(SetOffload(OUTER, {"ntuple": True}))
            journal.apply(AddFlowRule(OUTER, 0x88B5, 1))
        except DeviceError as error:
            said = (error.cause, error.remedy)
        else:
            said = None
        if said is not None:
            assert "ntuple" in said[0]
            assert said[1]
            return {"rules": False, "said": said[0]}
        assert hardware.rule(control, OUTER, 0) == hardware.FlowRule(0x88B5, 1, 0)
        journal.restore()
        assert hardware.rule(control, OUTER, 0) is None
        return {"rules": True}


CHECKS = (check_two_queues_share_a_memory, check_channels, check_rings, check_flow_rules)
