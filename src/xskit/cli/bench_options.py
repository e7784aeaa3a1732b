"""From the options of `xskit bench` to cases: lists, units, xdpsock's bare numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from xskit import units
from xskit.errors import UsageError
from xskit.netconf.names import check_interface_name

if TYPE_CHECKING:
    from xskit.bench.settings import Case

_RUNGS = {
    "auto": "auto",
    "native": "native",
    "drv": "native",
    "copy": "native",
    "generic": "generic",
    "skb": "generic",
    "zero-copy": "zero-copy",
    "zerocopy": "zero-copy",
    "zc": "zero-copy",
}


@dataclass
class CaseOptions:
    """As they were written; `fields` are those that need no reading."""

    mode: str
    interfaces: tuple[str, ...]
    queues: str
    xdp: str
    packet_size: str
    frame_size: str
    ring: str
    batch: str
    cycle: str
    pattern: str
    fields: dict[str, Any] = field(default_factory=dict)


Accel = Literal["auto", "kvm", "tcg"]


@dataclass(frozen=True)
class AskedGuests:
    """Guests to do it in: which kernels, on which NICs ("": veth pairs), run by what."""

    kernels: tuple[str, ...]
    nic: str
    accel: Accel

    @classmethod
    def read(
        cls, kernel: str | None, nic: str | None, accel: Accel, *, interface: str | None, far: str | None
    ) -> AskedGuests | None:
        """From the options; None: on this machine.

        Raises:
            UsageError: options that do not go together.
        """
        if kernel is None:
            if nic or accel != "auto":
                given = f"--nic {nic}" if nic else f"--accel {accel}"
                raise UsageError(
                    f"{given} is of a guest, and no kernel is named for one", remedy=f"--kernel 7.3 {given}"
                )
            return None
        kernels = tuple(dict.fromkeys(names(kernel)))
        if not kernels:
            raise UsageError("--kernel takes versions or names with commas between", remedy="xskit vm kernels list")
        if interface is not None or far is not None:
            raise UsageError(
                "--interface and --far name interfaces of this machine, and a guest has its own",
                remedy="--nic virtio-net, to measure on a guest's NICs; without, on a veth pair in it",
            )
        return cls(kernels, nic or "", accel)

    def without_queues(self, options: CaseOptions) -> CaseOptions:
        """Options that can be checked here, where the guest's NICs are not."""
        return replace(options, queues="0") if self.nic and options.queues.strip().lower() == "all" else options


def names(text: str) -> tuple[str, ...]:
    """`eth0,eth1`."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def interface_names(text: str | None, option: str) -> tuple[str, ...]:
    """The interfaces that an option names; empty if it was not given.

    Raises:
        UsageError: it names none, as `--interface "$UNSET"` does, or a name is not an interface name.
    """
    found = () if text is None else names(text)
    if text is not None and not found:
        raise UsageError(f"{option} names no interface", remedy="ip -brief link")
    for name in found:
        check_interface_name(name)
    return found


def far_names(text: str | None, interfaces: Sequence[str]) -> tuple[str, ...]:
    """What each interface is wired to, in the same order.

    Raises:
        UsageError: another number of them.
    """
    found = interface_names(text, "--far")
    if found and len(found) != len(interfaces):
        raise UsageError(
            f"--far names {len(found)} interfaces, and --interface {len(interfaces)}: each is wired to one",
            remedy="--interface eth0 --far eth1",
        )
    return found


def as_cases(options: CaseOptions) -> list[Case]:
    """All combinations of the lists.

    Raises:
        UsageError: an option cannot be meant.
        MissingError: `all` queues of an interface that is not there.
    """
    lists = {
        "xdp": _rungs(options.xdp),
        "frame_size": as_numbers(options.frame_size, "--frame-size"),
        "packet_size": as_numbers(options.packet_size, "--packet-size"),
        "ring": as_numbers(options.ring, "--ring"),
        "batch": as_numbers(options.batch, "--batch"),
        "cycle_ns": [_cycle(text) for text in options.cycle.split(",")],
    }
    fields = {**options.fields, "queues": _queues(options), "pattern": _pattern(options.pattern)}
    from xskit.bench.settings import Case, sweep

    first: dict[str, Any] = {name: values[0] for name, values in lists.items()}
    if len(options.interfaces) > 2:
        raise UsageError(f"at most two interfaces, not {len(options.interfaces)}", remedy="--interface eth0,eth1")
    arguments: dict[str, Any] = {"mode": options.mode, "interfaces": options.interfaces, **first, **fields}
    return sweep(Case(**arguments), lists)


def _rungs(text: str) -> Sequence[str]:
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in _RUNGS:
            raise UsageError(f"there is no mode {word!r}", remedy="--mode auto, native, skb or zero-copy")
    return [_RUNGS[word] for word in words]


def _queues(options: CaseOptions) -> tuple[int, ...]:
    if options.queues.strip().lower() != "all":
        return as_numbers(options.queues, "--queue")
    if not options.interfaces:
        raise UsageError("--queue all asks an interface, and none is given", remedy="--queue 0,1")
    from xskit.netconf.interfaces import look

    return tuple(range(min(look(name).rx_queues for name in options.interfaces)))


def _pattern(text: str) -> int:
    try:
        value = int(text, 16)
    except ValueError:
        raise UsageError(f"{text!r} is no pattern: four bytes in hexadecimal", remedy="--pattern 0x12345678") from None
    if not 0 <= value < 1 << 32:
        raise UsageError(f"{text} has more than four bytes", remedy="--pattern 0x12345678")
    return value


def _cycle(text: str) -> int:
    """A bare number is microseconds, as xdpsock has it."""
    bare = text.strip()
    try:
        return units.parse_duration(f"{bare}us" if bare.isdecimal() else bare)
    except UsageError as error:
        raise UsageError(f"--tx-cycle: {error.cause}", remedy=error.remedy or "--tx-cycle 100us") from None


def as_numbers(text: str, option: str) -> tuple[int, ...]:
    """`64,512,1500`."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"{option} takes numbers with commas between, not {text!r}", remedy=f"{option} 1,2") from None


def as_count(text: str) -> int:
    """`1000000`; with suffix, as in 10k or 2M."""
    factor = {"k": 1000, "M": 1_000_000}.get(text[-1:], 1)
    try:
        return int(text[:-1] if factor > 1 else text) * factor
    except ValueError:
        raise UsageError(f"--count takes a number of packets, not {text!r}", remedy="--count 1000000") from None


def as_seconds(text: str, option: str) -> float:
    """`5` is seconds, as xdpsock has it; `200ms` says its unit."""
    bare = text.strip()
    try:
        return units.parse_duration(f"{bare}s" if bare.replace(".", "", 1).isdecimal() else bare) / 1e9
    except UsageError as error:
        raise UsageError(f"{option}: {error.cause}", remedy=error.remedy or f"{option} 5s") from None


def as_fraction(text: str, option: str) -> float:
    """`1%` or `0.01`."""
    try:
        return units.parse_probability(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error.cause}", remedy=error.remedy or f"{option} 1%") from None


def as_priority(policy: str, priority: int) -> int:
    """Above 0: SCHED_FIFO, as xdpsock's -W and -U ask for it."""
    if policy.upper() not in ("OTHER", "FIFO"):
        raise UsageError(f"there is no policy {policy!r} for workers", remedy="--policy OTHER, or --policy FIFO")
    return priority or int(policy.upper() == "FIFO")


def read_clock_name(text: str) -> str:
    """In any case of letters."""
    return text.upper().removeprefix("CLOCK_")
