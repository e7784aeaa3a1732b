"""Quantities as people write them: 20ms, 100Mbit, 0.5%, 64KiB, 100packets.

Text goes in, SI base units come out: nanoseconds, bit/s, bytes, a probability in [0, 1]. The arithmetic is exact
(0.1ms is 100000 ns), and what is no whole number of the base unit is refused. Where a spelling means two things to
two people (10mbps, 64K, 2m), the error asks which one was meant. `format_*` gives the shortest text that parses back
to the same value.

Prefixes follow IEC 80000-13: k, M, G, T are powers of 1000, Ki, Mi, Gi, Ti powers of 1024.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Final, Literal

from xskit.errors import UsageError

__all__ = [
    "QueueLimit",
    "UnitError",
    "apart",
    "format_duration",
    "format_probability",
    "format_queue_limit",
    "format_rate",
    "format_size",
    "parse_duration",
    "parse_probability",
    "parse_queue_limit",
    "parse_rate",
    "parse_size",
]


class UnitError(UsageError):
    """A quantity that cannot be read: no unit, an ambiguous one, or a value out of range."""


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """How much a queue may hold, in the unit the user chose: packets, bytes, or nanoseconds at the current rate."""

    unit: Literal["packets", "bytes", "ns"]
    value: int


_DURATIONS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_RATES: Final = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
_BYTE_RATES: Final = {"Bps": 8, "kBps": 8 * 10**3, "MBps": 8 * 10**6, "GBps": 8 * 10**9, "TBps": 8 * 10**12}
_SIZES: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}

# What other tools write for the same thing; none of these has a second meaning.
_RATE_SPELLINGS: Final = {f"{unit}{tail}".lower(): factor for unit, factor in _RATES.items() for tail in ("", "/s")}
_BYTE_RATE_SPELLINGS: Final = (
    _BYTE_RATES
    | {unit.replace("Bps", "B/s"): factor for unit, factor in _BYTE_RATES.items()}
    | {"KBps": 8 * 10**3, "KB/s": 8 * 10**3}
)
_SIZE_SPELLINGS: Final = _SIZES | {"KB": 10**3}
_PACKETS: Final = ("packets", "packet")

# Mbps is a megabit to most people and a megabyte to tc(8); Mb, MB and M are no rates at all.
_RATE_IN_DOUBT: Final = re.compile(r"([kmgt]?)(?:b(?:ps|/s)?)?", re.IGNORECASE)
_SIZE_IN_DOUBT: Final = re.compile(r"([kmgt])(?:i?b?)", re.IGNORECASE)

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?\s*([^\s0-9.]*)", re.IGNORECASE)
_LONGEST_TEXT: Final = 64
_MOST_DIGITS: Final = 17  # of a double
_LARGEST: Final = 2**63 - 1  # the data plane counts in signed 64-bit integers
_EXACT: Final = Context(prec=_LONGEST_TEXT, traps=[Inexact])


def parse_duration(text: str | int) -> int:
    """Read `20ms`, `1.5s`, `250us`, `10ns`, `2min`, `1h` or 0: nanoseconds.

    Raises UnitError: no unit, an unknown one, negative, or finer than a nanosecond.
    """
    number, unit = _split(text, "duration", "ms")
    factor = _duration_factor(unit)
    if factor is not None:
        return _whole(text, number * factor, "duration", "nanoseconds")
    if unit == "m":
        raise UnitError(f"did you mean {_bare(text, unit)}ms or {_bare(text, unit)}min?")
    return _zero_or_refuse(text, number, unit, "duration", "ms", [*_DURATIONS])


def parse_rate(text: str | int) -> int:
    """Read `100Mbit`, `1Gbit`, `64kbit` (also with /s), or bytes a second, `10MBps`, `10MB/s`: bit/s.

    Raises UnitError: no unit, one of two meanings (`10mbps`), zero, negative, or no whole number of bit/s.
    """
    number, unit = _split(text, "rate", "Mbit")
    if number == 0:
        raise UnitError("a rate of 0 never sends: leave rate out for unlimited, or write loss 100% for a black hole")
    factor = _RATE_SPELLINGS.get(unit.lower()) or _BYTE_RATE_SPELLINGS.get(unit)
    if factor is not None:
        return _whole(text, number * factor, "rate", "bit/s")
    if unit and (doubt := _RATE_IN_DOUBT.fullmatch(unit)):
        prefix = doubt[1].upper().replace("K", "k")
        raise UnitError(f"did you mean {_bare(text, unit)}{prefix}bit or {_bare(text, unit)}{prefix}Bps?")
    raise _unknown_unit(text, unit, "rate", "Mbit", [*_RATES, *_BYTE_RATES])


def parse_probability(text: str | float) -> float:
    """Read `0.5%`, `0.005`, `1e-6`, 0, `100%`, or a Python float: a probability in [0, 1].

    A whole number other than 0 needs its percent sign: `1` could be 1% as well as 100%.
    Raises UnitError: out of range, an unknown unit, or a number that needs a percent sign.
    """
    if isinstance(text, float):
        if not 0 <= text <= 1:
            raise UnitError(f"{text!r} is no probability: write it from 0 to 1, or with a percent sign from 0% to 100%")
        return abs(text)  # -0.0 too is 0
    number, unit = _split(text, "probability", "%")
    if unit not in ("", "%"):
        raise _unknown_unit(text, unit, "probability", "%", ["%"])
    bare = _bare(text, unit)
    if number > 100:
        raise UnitError(f"{bare}{unit} is no probability: write it from 0% to 100%")
    if not unit and (number > 1 or (number == 1 and "." not in bare)):
        raise UnitError(f"{bare} what? write {bare}%" + (" or 100%" if number == 1 else ""))
    return float(number / 100 if unit else number)


def parse_size(text: str | int) -> int:
    """Read `1500B`, `1MB` (10^6), `64KiB` (2^16), `10GiB` or 0: bytes.

    Raises UnitError: no unit, one of two meanings (`64K`), negative, or no whole number of bytes.
    """
    number, unit = _split(text, "size", "B")
    if unit in _SIZE_SPELLINGS:
        return _whole(text, number * _SIZE_SPELLINGS[unit], "size", "bytes")
    if doubt := _SIZE_IN_DOUBT.fullmatch(unit):
        binary, decimal = f"{doubt[1].upper()}iB", f"{doubt[1].upper().replace('K', 'k')}B"
        raise UnitError(f"did you mean {_bare(text, unit)}{binary} or {_bare(text, unit)}{decimal}?")
    return _zero_or_refuse(text, number, unit, "size", "B", [*_SIZES])


def parse_queue_limit(text: str | int) -> QueueLimit:
    """Read `100packets`, `64KiB` (bytes), `50ms` (of sending at the current rate) or 0.

    Raises UnitError as parse_size and parse_duration do.
    """
    number, unit = _split(text, "queue limit", "packets")
    if unit.lower() in _PACKETS:
        return QueueLimit("packets", _whole(text, number, "queue limit", "packets"))
    if unit == "m" or _duration_factor(unit) is not None:
        return QueueLimit("ns", parse_duration(text))
    if unit in _SIZE_SPELLINGS or _SIZE_IN_DOUBT.fullmatch(unit):
        return QueueLimit("bytes", parse_size(text))
    if unit:
        raise UnitError(f"{unit!r} is no unit of a queue limit: use packets, a size (64KiB) or a duration (50ms)")
    if number == 0:
        return QueueLimit("packets", 0)
    raise UnitError("{0} what? write {0}packets, {0}KiB or {0}ms".format(_bare(text, unit)))


def apart(values: Sequence[float], text: Callable[[float, int], str], digits: int) -> list[str]:
    """Texts of values that a sentence or a table compares; different values never look the same.

    `text(value, digits)` writes one; all get `digits` digits, or as many more as it takes.
    """
    while True:
        texts = [text(value, digits) for value in values]
        if digits >= _MOST_DIGITS or len(set(texts)) >= len(set(values)):
            return texts
        digits += 1


def format_duration(value_ns: int) -> str:
    """The shortest text that parse_duration reads as `value_ns`: `1.5ms`, `90s`, `2min`, `0`."""
    return "0" if value_ns == 0 else _shortest(value_ns, _DURATIONS)


def format_rate(value_bps: int) -> str:
    """The shortest text that parse_rate reads as `value_bps`: `1.5Mbit`. Zero, a measured rate, is `0bit`."""
    return _shortest(value_bps, _RATES)


def format_probability(value: float) -> str:
    """The shortest text that parse_probability reads as `value`: `0.5%`, `100%`, below 0.01% `1e-06`."""
    if not 0 <= value <= 1:
        raise ValueError(f"{value!r} is no probability")
    shortest = repr(abs(float(value)))
    return shortest if "e" in shortest else f"{_plain(_EXACT.multiply(Decimal(shortest), Decimal(100)))}%"


def format_size(value_bytes: int) -> str:
    """The shortest text that parse_size reads as `value_bytes`: `1500B`, `64KiB`, `1.5MB`, `0`."""
    return "0" if value_bytes == 0 else _shortest(value_bytes, _SIZES)


def format_queue_limit(limit: QueueLimit) -> str:
    """The shortest text that parse_queue_limit reads as `limit`; an empty one keeps its unit (`0B`)."""
    match limit.unit:
        case "packets":
            return f"{limit.value}packets"
        case "bytes":
            return format_size(limit.value) if limit.value else "0B"
        case "ns":
            return format_duration(limit.value) if limit.value else "0ms"


def _split(text: str | int, what: str, example: str) -> tuple[Fraction, str]:
    """The number and the unit of a text; the unit may be empty."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise UnitError(f"{text!r} is no {what}: write it as text, for instance 20{example}")
    if isinstance(text, int) and abs(text) > 2 * _LARGEST:  # Python may refuse to write it
        raise UnitError(
            f"a number of {text.bit_length()} bits is not a {what}: write it as text, for instance 20{example}"
        )
    written = str(text).strip()
    match = _QUANTITY.fullmatch(written)
    if match is None or len(written) > _LONGEST_TEXT:
        if written.startswith("-"):
            raise UnitError(f"{written} is no {what}: it cannot be negative")
        shown = repr(written[:_LONGEST_TEXT])
        raise UnitError(f"{shown} is no {what}: write a number and a unit, for instance 20{example}")
    return Fraction(match[1] + (match[2] or "")), match[3]


def _bare(text: str | float, unit: str) -> str:
    """The number as the user wrote it, for a hint."""
    return str(text).strip().removesuffix(unit).rstrip()


def _whole(text: str | int, value: Fraction, what: str, base: str) -> int:
    if value.denominator != 1:
        raise UnitError(f"{str(text).strip()} is no whole number of {base}")
    if value > _LARGEST:
        raise UnitError(f"{str(text).strip()} is too large for a {what}")
    return value.numerator


def _zero_or_refuse(text: str | int, number: Fraction, unit: str, what: str, example: str, units: list[str]) -> int:
    """Zero is the same in every unit, so it needs none; anything else does."""
    if number == 0 and not unit:
        return 0
    raise _unknown_unit(text, unit, what, example, units)


def _unknown_unit(text: str | float, unit: str, what: str, example: str, units: list[str]) -> UnitError:
    bare = _bare(text, unit)
    if not unit:
        return UnitError(f"{bare} what? write {bare}{example}")
    return UnitError(f"{unit!r} is no unit of a {what}: use {', '.join(units)}")


def _shortest(value: int, units: Mapping[str, int]) -> str:
    """The shortest exact text; of equally short ones a whole number, then the larger unit."""
    if value < 0:
        raise ValueError(f"{value} is negative")
    candidates = []
    for unit, factor in units.items():
        if value >= factor or factor == 1:
            with contextlib.suppress(Inexact):  # 20s is a third of a minute: no finite decimals
                number = _plain(_EXACT.divide(Decimal(value), Decimal(factor)))
                candidates.append((len(number) + len(unit), "." in number, -factor, number + unit))
    return min(candidates)[-1]


def _plain(number: Decimal) -> str:
    """Without exponent and trailing zeros."""
    return f"{number.normalize(_EXACT):f}"


def _duration_factor(unit: str) -> int | None:
    """Nanoseconds of one unit; both Unicode spellings of micro are the same micro."""
    return _DURATIONS.get(unit.lower().replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u"))
