"""Whatever a caller gives, a public name answers with success or with an XskitError: no raw error of Python's.

Every argument that is a number or a word is tried with the same values. Those that no argument takes must be a
UsageError everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xskit
from xskit import arguments
from xskit.bench.settings import Case, Conditions
from xskit.emulator.link import moment
from xskit.errors import UsageError, XskitError
from xskit.netconf.namespaces import inside
from xskit.vm.hardware import GuestHardware

NOWHERE = "xknope"
"""An interface that is not there: what is opened on it gets no further than its arguments."""

VALUES = {
    "negative": -1,
    "zero": 0,
    "one": 1,
    "31 bits": 2**31,
    "64 bits": 2**64,
    "very negative": -(2**70),
    "a fraction": 1.5,
    "true": True,
    "false": False,
    "nothing": "",
    "a comma": ",",
    "not a number": math.nan,
    "infinite": math.inf,
    "a byte that is no UTF-8": "\udcff",
    "a lone surrogate": "\ud800",
    "a NUL": "a\0b",
    "None": None,
    "a list": [],
    "bytes": b"x",
    "more digits than Python writes": 10**5000,
    "an object": object(),
}
NEVER = ("very negative", "a lone surrogate", "a NUL", "bytes", "an object", "more digits than Python writes")
"""These mean nothing to any number or word."""


def umem(**given: Any) -> xskit.Umem:
    """A small one; memory for more is not at hand everywhere."""
    if isinstance(frames := given.get("frames"), int) and 1 << 20 < frames < 1 << 32:
        raise XskitError("so many frames are right, and this machine may have them")
    return xskit.Umem(**{"frames": 16, "populate": False, **given})


def socket(**given: Any) -> object:
    """As far as the interface that is not there."""
    with umem() as memory:
        return xskit.Socket(**{"interface": NOWHERE, "umem": memory, **given})


def port(**given: Any) -> object:
    with umem() as memory:
        return xskit.Port.open(**{"name": NOWHERE, "umem": memory, **given})


def link(**given: Any) -> xskit.Emulator:
    ports = (xskit.PortSpec("xka"), xskit.PortSpec("xkb"))
    return xskit.Emulator(
        [xskit.LinkSpec(**{"name": "wan", "ports": ports, "settings": xskit.LinkSettings(), **given})]
    )


def entered(namespace: Any) -> None:
    with inside(namespace):
        pass


def of(make: Callable[..., Any], *names: str) -> list[tuple[str, Callable[[Any], Any]]]:
    """Each of these arguments of a function."""
    title = getattr(make, "__qualname__", "")
    return [(f"{title}.{name}", lambda value, name=name: make(**{name: value})) for name in names]


TAKERS: dict[str, Callable[[Any], Any]] = dict(
    [
        *of(umem, "frames", "frame_size", "headroom", "tx_metadata_bytes"),
        *of(socket, "interface", "queue", "umem", "rx", "tx", "fill", "completion", "mode"),
        *of(port, "name", "queues", "ring_size", "mode", "namespace"),
        *of(xskit.EngineSettings, *xskit.EngineSettings.model_fields),
        *of(xskit.DirectionSettings, *xskit.DirectionSettings.model_fields),
        *of(xskit.LinkSettings, *xskit.LinkSettings.model_fields),
        *of(lambda **given: xskit.plan(**{"settings": {}, **given}), "mtu", "ports", "queues", "hardware_ring"),
        *of(lambda **given: xskit.plan(**{"settings": {}, **given}), "settings", "engine", "mix"),
        *of(link, "name", "ports", "settings"),
        *of(Conditions, "duration", "repeat", "cpus", "drive_cpu", "priority", "retries", "interval"),
        *of(
            lambda **given: Case(**{"mode": "rxdrop", **given}),
            "mode", "interfaces", "queues", "packet_size", "frame_size", "frames", "ring", "batch", "sharers", "count",
            "cycle_ns", "vlan", "vlan_priority", "destination_mac", "source_mac", "pattern", "clock", "xdp", "drive",
        ),
        *of(GuestHardware, "nics", "queues", "cpus", "memory_bytes"),
        ("PortSpec.name", xskit.PortSpec),
        ("PortSpec.namespace", lambda value: xskit.PortSpec("xka", value)),
        ("Emulator.links", xskit.Emulator),
        ("PacketMix", xskit.PacketMix),
        ("PacketMix weight", lambda value: xskit.PacketMix({64: value})),
        ("PacketMix.parse", xskit.PacketMix.parse),
        ("PacketMix.read", xskit.PacketMix.read),
        ("update.at_ns", moment),
        ("inside", entered),
        ("limit", lambda value: arguments.whole("limit", value, 1, 64)),
    ]
)  # fmt: skip


def outcomes(take: Callable[[Any], Any]) -> dict[str, type[Exception] | None]:
    """What comes of each value: the kind of error, None for success."""
    found: dict[str, type[Exception] | None] = {}
    for name, value in VALUES.items():
        try:
            made = take(value)
        except XskitError as error:
            readable = error.cause.isprintable() and len(error.cause) < 400
            found[name] = type(error) if readable else AssertionError
        except Exception as error:
            found[name] = type(error)
        else:
            found[name] = None
            if isinstance(made, xskit.Umem):
                made.close()
    return found


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
def test_no_raw_error(take):
    found = outcomes(take)
    assert {name: kind for name, kind in found.items() if kind and not issubclass(kind, XskitError)} == {}
    assert {name: found[name] for name in NEVER if not (found[name] and issubclass(found[name], UsageError))} == {}


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: umem(headroom=1.5), "headroom must be a whole number, not 1.5\n  try: headroom=0"),
        (lambda: umem(frames=True), "frames must be a whole number, not True\n  try: frames=1"),
        (lambda: socket(rx=2**31), "rx must be between 0 and 1073741824, not 2147483648\n  try: rx=1073741824"),
        (
            lambda: socket(mode="fast"),
            "mode must be one of auto, zero-copy, native, generic, not 'fast'\n  try: mode='auto'",
        ),
        (lambda: port(namespace=-1), "namespace must be between 0 and 2147483647, not -1\n  try: namespace=0"),
        (lambda: port(namespace="\0"), "namespace must be printable text, not '\\x00'"),
        (lambda: port(queues=3), "queues must be a list of numbers, not 3\n  try: queues=[0]"),
        (
            lambda: moment(1.5),
            "at_ns must be a whole number, not 1.5\n  try: at_ns=time.monotonic_ns() + 10_000_000_000",
        ),
        (lambda: xskit.EngineSettings(workers=True), "EngineSettings: workers: expected a whole number, got true"),
        (lambda: Conditions(drive_cpu=-1), "--drive-cpu must be between 0 and 8191, not -1\n  try: --drive-cpu 0"),
    ],
)  # fmt: skip
def test_the_sentence_names_the_argument(make, sentence):
    with pytest.raises(UsageError) as told:
        make()
    assert str(told.value) == sentence


def test_numbers_of_other_types_are_whole_numbers():
    assert arguments.whole("frames", np.int64(5), 1, 9) == 5
    assert type(arguments.whole("frames", np.uint32(5), 1, 9)) is int


def test_a_long_wait_is_for_ever():
    for value in (None, math.inf, 1e300, 10**5000):
        assert arguments.seconds("timeout", value) is None
    for value in ("", "1s", True, math.nan, -1, -(10**5000), [], b"x"):
        with pytest.raises(UsageError, match=r"^timeout must be a number of seconds, 0 or more, not "):
            arguments.seconds("timeout", value)
    assert arguments.seconds("timeout", 0) == 0
    assert arguments.seconds("timeout", np.float32(1.5)) == 1.5


def test_long_values_are_cut():
    assert arguments.literal("x" * 100) == f"'{'x' * 39}..."
