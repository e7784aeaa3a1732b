"""A NIC behind the ethtool ioctl: ring sizes and a table of rules, kept as drivers keep them.

The structures are written down here once more, as linux/ethtool.h has them, and the compiler's rules lay them out.
"""

from __future__ import annotations

import ctypes
import errno
import os
from ctypes import c_uint8, c_uint32, c_uint64
from enum import IntEnum
from types import SimpleNamespace

import pytest

from xskit.netconf import ethtool

SIOCETHTOOL = 0x8946
GET_RINGS, SET_RINGS = 0x10, 0x11
TCP4_FLOW, ETHER_FLOW = 0x01, 0x12
ANYWHERE, CAN_CHOOSE = 0xFFFFFFFF, 0x80000000


class Command(IntEnum):
    """ETHTOOL_*RXCLS*."""

    COUNT_RULES = 0x2E
    GET_RULE = 0x2F
    LIST_RULES = 0x30
    DELETE_RULE = 0x31
    INSERT_RULE = 0x32


class Request(ctypes.Structure):
    """struct ifreq, with ifr_data."""

    _fields_ = (("name", ctypes.c_char * 16), ("data", ctypes.c_void_p), ("rest", c_uint8 * 16))


class Rings(ctypes.Structure):
    """struct ethtool_ringparam."""

    _fields_ = tuple(
        (name, c_uint32)
        for name in ("command", "rx_max", "mini_max", "jumbo_max", "tx_max", "rx", "mini", "jumbo", "tx")
    )


class Ethernet(ctypes.Structure):
    """struct ethhdr."""

    _fields_ = (("destination", c_uint8 * 6), ("source", c_uint8 * 6), ("type", c_uint8 * 2))


class Flow(ctypes.Union):
    """union ethtool_flow_union."""

    _fields_ = (("ethernet", Ethernet), ("words", c_uint32 * 13))


class Extension(ctypes.Structure):
    """struct ethtool_flow_ext."""

    _fields_ = (("padding", c_uint8 * 2), ("destination", c_uint8 * 6), ("vlan", c_uint8 * 4), ("data", c_uint32 * 2))


class Spec(ctypes.Structure):
    """struct ethtool_rx_flow_spec."""

    _fields_ = (
        ("flow_type", c_uint32),
        ("value", Flow),
        ("value_extension", Extension),
        ("mask", Flow),
        ("mask_extension", Extension),
        ("ring_cookie", c_uint64),
        ("location", c_uint32),
    )


class Rules(ctypes.Structure):
    """struct ethtool_rxnfc; rule_locs begins where rule_cnt ends."""

    _fields_ = (("command", c_uint32), ("flow_type", c_uint32), ("data", c_uint64), ("spec", Spec), ("count", c_uint32))


LOCATIONS_OFFSET = Rules.count.offset + 4


class Nic:
    """One NIC.

    Args:
        locations: how many rules it can have; 0: its driver knows none.
        chooses: where to put a rule when the driver may choose; None: it cannot choose.
        queues: rules lead to these.
        makes: what the driver makes of a rule before it keeps it.
        missing: its errno for a location without a rule.
    """

    def __init__(
        self, *, locations=8, chooses=None, queues=4, makes=lambda spec: None, missing=errno.ENOENT, ring_unit=1
    ):
        self.rules: dict[int, Spec] = {}
        self.rings = [256, 512]
        self.replaced = 0
        self._locations, self._chooses, self._queues, self._makes = locations, chooses, queues, makes
        self._missing, self._ring_unit = missing, ring_unit

    def ioctl(self, control, number, argument):
        """What the kernel does, net/ethtool/ioctl.c, and then the driver."""
        request = Request.from_buffer_copy(argument)
        assert (number, request.name) == (SIOCETHTOOL, b"eth9")
        command = c_uint32.from_address(request.data).value
        if command in (GET_RINGS, SET_RINGS):
            self._do_rings(Rings.from_address(request.data))
            return argument
        if not self._locations:
            raise refusal(errno.EOPNOTSUPP)
        self._do_rules(Rules.from_address(request.data))
        return argument

    def _do_rings(self, asked):
        if asked.command == SET_RINGS:
            if max(asked.rx, asked.tx) > 4096:
                raise refusal(errno.EINVAL)
            self.rings = [-(-size // self._ring_unit) * self._ring_unit for size in (asked.rx, asked.tx)]
        asked.rx_max = asked.tx_max = 4096
        asked.rx, asked.tx = self.rings

    def _do_rules(self, asked):
        match asked.command:
            case Command.COUNT_RULES:
                asked.count = len(self.rules)
                asked.data = self._locations | (0 if self._chooses is None else CAN_CHOOSE)
            case Command.GET_RULE:
                asked.spec = self._rule_at(asked.spec.location)
            case Command.LIST_RULES:
                self._list(asked)
            case Command.DELETE_RULE:
                self._rule_at(asked.spec.location)
                del self.rules[asked.spec.location]
            case Command.INSERT_RULE:
                self._insert(asked.spec)
            case _:
                raise refusal(errno.EOPNOTSUPP)

    def _rule_at(self, location):
        if location not in self.rules:
            raise refusal(self._missing)
        return self.rules[location]

    def _list(self, asked):
        if asked.count < len(self.rules):
            raise refusal(errno.EMSGSIZE)
        asked.count = len(self.rules)
        places = (c_uint32 * len(self.rules)).from_address(ctypes.addressof(asked) + LOCATIONS_OFFSET)
        places[:] = sorted(self.rules)

    def _insert(self, spec):
        if spec.location == ANYWHERE and self._chooses is not None:
            spec.location = self._chooses
        if spec.location >= self._locations or spec.ring_cookie >= self._queues:
            raise refusal(errno.EINVAL)
        if spec.flow_type != ETHER_FLOW or bytes(spec.mask.ethernet) != bytes(12) + b"\xff\xff":
            raise refusal(errno.EOPNOTSUPP)
        self.replaced += spec.location in self.rules
        kept = Spec.from_buffer_copy(spec)
        self._makes(kept)
        self.rules[spec.location] = kept

    def seen(self):
        """Its rules by location: (EtherType, queue), or the flow type of another kind."""
        return {
            at: (int.from_bytes(spec.value.ethernet.type, "big"), spec.ring_cookie)
            if spec.flow_type == ETHER_FLOW
            else spec.flow_type
            for at, spec in self.rules.items()
        }


def refusal(number):
    return OSError(number, os.strerror(number))


def somebody_elses(flow_type=ETHER_FLOW, ether_type=0x88B5, queue=1, mac=b""):
    """A rule that another program has set."""
    spec = Spec(flow_type=flow_type, ring_cookie=queue)
    spec.value.ethernet.type[:] = ether_type.to_bytes(2, "big")
    spec.mask.ethernet.type[:] = b"\xff\xff"
    if mac:
        spec.value.ethernet.destination[:] = mac
        spec.mask.ethernet.destination[:] = b"\xff" * 6
    return spec


@pytest.fixture(name="plugged_in")
def slot(monkeypatch):
    """Plugs a NIC in as eth9."""

    def plug(**options):
        nic = Nic(**options)
        monkeypatch.setattr(ethtool, "fcntl", SimpleNamespace(ioctl=nic.ioctl))
        return nic

    return plug
