"""What the user asks for: settings of links and directions, as written in TOML, on the command line or in Python.

One model for all three. A link is given by settings that hold for both directions, and by `forward` and `reverse`
for what differs. Every quantity is written as people write it (units.py); zero is valid everywhere but for the rate.

The stages are imported only by who makes them: the command line reads its options from here, and must answer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError, model_validator

from xskit import units
from xskit.emulator.mistakes import SettingsError, explain
from xskit.engine.sizes import LONGEST_HORIZON_NS
from xskit.stages import FULL_BYTES, default_queue
from xskit.units import QueueLimit

if TYPE_CHECKING:
    from xskit.engine.stage import Stage

NORMAL_EXTENT = 9
"""A normal draw is never further out than this many standard deviations (53 random bits)."""

LONGEST_OWD_NS = 7 * 24 * 3_600_000_000_000
"""A week: far from what 64 bits of nanoseconds can count, whatever is added to it."""


def _reader(parse: Any, kind: type, example: str) -> BeforeValidator:
    """A validator that reads text with `parse` and lets through what is already a value."""

    def read(value: Any) -> Any:
        if isinstance(value, kind) and not isinstance(value, (bool, str)) and kind is QueueLimit:
            return value
        if isinstance(value, bool):
            raise ValueError(f"expected a quantity such as {example}, got {str(value).lower()}")  # noqa: TRY004
        try:
            return parse(value)
        except units.UnitError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(read)


Duration = Annotated[int, _reader(units.parse_duration, int, "20ms"), PlainSerializer(units.format_duration)]
Rate = Annotated[int, _reader(units.parse_rate, int, "100Mbit"), PlainSerializer(units.format_rate)]
Probability = Annotated[
    float, _reader(units.parse_probability, float, "0.5%"), PlainSerializer(units.format_probability)
]
_Limit = Annotated[
    QueueLimit, _reader(units.parse_queue_limit, QueueLimit, "50ms"), PlainSerializer(units.format_queue_limit)
]
Size = Annotated[int, _reader(units.parse_size, int, "64MiB"), PlainSerializer(units.format_size)]


def _not_true_or_false(value: Any) -> Any:
    """For numbers: Python's True is 1. Raises ValueError, as pydantic wants it."""
    if isinstance(value, bool):
        raise ValueError(f"expected a whole number, got {str(value).lower()}")  # noqa: TRY004
    return value


Whole = Annotated[int, BeforeValidator(_not_true_or_false)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    def __init__(self, **values: Any) -> None:
        """Raises SettingsError where pydantic has a ValidationError."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(error, type(self), (type(self).__name__,)) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # not for tables inside this one


class QueueSettings(_Strict):
    """The queue in front of the bottleneck: `50ms`, `100packets`, `64KiB`, `droptail`, or a table."""

    kind: Literal["droptail"] = "droptail"
    limit: _Limit | None = Field(default=None, description="left out: 50ms, but at least 10 full-size packets")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return _queue_table(value)


def _queue_table(value: Any) -> Any:
    """What the short form of a queue means; anything else as it is."""
    if isinstance(value, str):
        return {"kind": value} if value.isalpha() else {"limit": value}
    if isinstance(value, (int, float)):
        return {"limit": value}
    return value


class DirectionSettings(_Strict):
    """One direction of a link."""

    owd: Duration = Field(default=0, description="one-way delay: 20ms, 250us, 1.5s")
    jitter: Duration = Field(default=0, description="standard deviation (normal) or half width (uniform) of the owd")
    jitter_distribution: Literal["normal", "uniform"] = Field(default="normal", description="of the owd")
    order: Literal["keep", "free"] = Field(default="keep", description="free: jitter lets packets overtake")
    rate: Rate | None = Field(default=None, description="of the bottleneck: 100Mbit, 1Gbit; left out: none")
    overhead: Literal["L1", "L2", "L3"] = Field(default="L2", description="which bytes of a packet the rate counts")
    queue: QueueSettings = Field(
        default_factory=QueueSettings,
        description="what the bottleneck holds: 64KiB, 100packets, 80ms; left out: 50ms, at least 10 full-size packets",
    )
    loss: Probability = Field(default=0.0, description="probability of loss: 0.5%, 0.005; 100% is a black hole")

    @model_validator(mode="after")
    def _can_be_held(self) -> Self:
        longest_ns = self.longest_owd_ns
        if longest_ns > LONGEST_OWD_NS:
            raise ValueError("owd and jitter would hold a packet for more than a week (168h)")
        if self.order == "free" and longest_ns > LONGEST_HORIZON_NS:
            raise ValueError(
                f"owd and jitter would hold a packet for up to {units.format_duration(round(longest_ns, -6))}: with "
                f"order = free {LONGEST_HORIZON_NS // 10**9}s can be, with order = keep 168h"
                + (f" (normal jitter draws up to {NORMAL_EXTENT} standard deviations)" if self._draws_far else "")
            )
        return self

    @property
    def _draws_far(self) -> bool:
        return bool(self.jitter) and self.jitter_distribution == "normal"

    def queue_limit(self, longest: int) -> QueueLimit:
        """The limit of the queue if the longest packet has `longest` bytes."""
        return self.queue.limit or default_queue(self.rate, longest, self.overhead)

    def stages(self, longest: int = FULL_BYTES) -> list[Stage]:
        """All the default stages, those that do nothing included, so that an update never compiles.

        `longest`: bytes of the longest packet.
        """
        from xskit.stages.bottleneck import Bottleneck
        from xskit.stages.delay import Delay, Jitter
        from xskit.stages.delay_free import FreeDelay
        from xskit.stages.loss import Loss
        from xskit.stages.server import Overhead

        bottleneck = Bottleneck(rate_bps=self.rate, overhead=Overhead[self.overhead], limit=self.queue_limit(longest))
        delay = FreeDelay if self.order == "free" else Delay
        jitter = Jitter.NORMAL if self.jitter_distribution == "normal" else Jitter.UNIFORM
        return [Loss(self.loss), bottleneck, delay(self.owd, self.jitter, jitter)]

    @property
    def owd_base_ns(self) -> int:
        """What every packet takes at least: deviations from it are measured finely. 0 where jitter may undercut it."""
        return 0 if self.jitter else self.owd

    @property
    def longest_owd_ns(self) -> int:
        """The longest that the delay stage may hold a packet, in ns."""
        extent = NORMAL_EXTENT if self.jitter_distribution == "normal" else 1
        return self.owd + extent * self.jitter

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """These settings with some of them replaced; only what is named changes.

        Raises:
            SettingsError: an unknown key or an impossible value, or a key that cannot change in a running link.
        """
        known = {name: value for name, value in self.model_dump().items() if value is not None}
        named = {name: _queue_table(value) if name == "queue" else value for name, value in changes.items()}
        if isinstance(named.get("queue"), Mapping):
            named["queue"] = {**known["queue"], **named["queue"]}
        result = read(type(self), {**known, **named}, "update")
        if result.order != self.order:
            raise SettingsError("order cannot change while the link runs: it decides which stages are compiled")
        return result

    def asked(self, longest: int = FULL_BYTES) -> dict[str, Any]:
        """What was asked for, in base units, for the report; `longest`: bytes of the longest packet."""
        return {
            "owd_ns": self.owd,
            "jitter_ns": self.jitter,
            "jitter_distribution": self.jitter_distribution,
            "order": self.order,
            "rate_bps": self.rate,
            "overhead": self.overhead,
            "queue": {"kind": self.queue.kind, "limit": units.format_queue_limit(self.queue_limit(longest))},
            "loss": self.loss,
        }


class LinkSettings(_Strict):
    """A link: both directions."""

    forward: DirectionSettings = Field(default_factory=DirectionSettings)
    reverse: DirectionSettings = Field(default_factory=DirectionSettings)

    @model_validator(mode="before")
    @classmethod
    def _both_directions(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        both = {key: item for key, item in value.items() if key not in ("forward", "reverse")}
        own = {name: {} if value.get(name) is None else value[name] for name in ("forward", "reverse")}
        return {name: {**both, **item} if isinstance(item, Mapping) else item for name, item in own.items()}


class EngineSettings(_Strict):
    """How the engine runs: memory, workers, sockets."""

    memory: Size | None = Field(default=None, description="packet memory in all; worked out when left out")
    frame_size: Literal[2048, 4096] | None = Field(default=None, description="bytes; chosen by MTU when left out")
    ring_size: int = Field(
        default=2048, strict=True, ge=64, le=1 << 20, description="entries of each ring, a power of two"
    )
    workers: Annotated[Literal[1, 2], BeforeValidator(_not_true_or_false)] = Field(
        default=1, description="2: one for each direction"
    )
    cpus: tuple[Whole, ...] | None = Field(default=None, description="to pin the workers to, one each")
    spin: bool = Field(default=False, strict=True, description="never sleep: lowest lateness, a whole CPU")
    seed: int = Field(default=1, strict=True, ge=0, lt=1 << 64, description="of every random stream")
    mode: Literal["auto", "zero-copy", "native", "generic"] = Field(default="auto", description="of the XDP sockets")
    chatter: Literal["drop", "keep"] = Field(
        default="drop",
        description="MLD reports, DAD probes and router solicitations that the kernels of a lab's hosts send unasked",
    )
    hugetlb: bool = Field(default=False, strict=True, description="packet memory from the hugetlb pool")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.ring_size & (self.ring_size - 1):
            raise ValueError(f"ring_size must be a power of two, not {self.ring_size}")
        if self.cpus is not None and len(self.cpus) != self.workers:
            needed = "1 worker needs 1 CPU" if self.workers == 1 else f"{self.workers} workers need {self.workers} CPUs"
            raise ValueError(f"cpus: {needed}, got {len(self.cpus)}")
        if self.cpus is not None and (min(self.cpus) < 0 or len(set(self.cpus)) < self.workers):
            raise ValueError(f"cpus: expected a different CPU for each worker, got {', '.join(map(str, self.cpus))}")
        return self


def _number(value: Any) -> Any:
    """A number that came as text, as from the command line; anything else as it is."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class LabSettings(_Strict):
    """Settings of a lab's hosts."""

    ip: Annotated[Literal[4, 6, "both"], BeforeValidator(_number)] = Field(
        default="both", description="IP versions; both: IPv4, and IPv6 if the machine and the MTU allow it"
    )
    neighbours: Literal["permanent", "kernel"] = Field(
        default="permanent",
        description="permanent: the ends of a link know each other's MAC address; kernel: they use ARP and ND",
    )


Model = TypeVar("Model", bound=BaseModel)


def read(model: type[Model], values: Any, *where: str, spelled: Callable[[Sequence[str]], str] = ".".join) -> Model:
    """Validate; `where` names file, table and so on for the error, `spelled` a key's path as the user wrote it.

    Raises:
        SettingsError: names where, which key, and what is wrong with it.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise explain(error, model, where, spelled) from None


def link_settings(values: Mapping[str, Any], *where: str) -> LinkSettings:
    """A link from keyword arguments or a TOML table."""
    return read(LinkSettings, dict(values), *where)
