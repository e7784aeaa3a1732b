"""Quantities: every spelling, every refusal word for word, and round trips of any value."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xskit import units
from xskit.errors import UsageError
from xskit.units import QueueLimit, UnitError

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value_ns"),
    [
        ("20ms", 20_000_000),
        ("1.5s", 1_500_000_000),
        ("250us", 250_000),
        ("250\N{MICRO SIGN}s", 250_000),
        ("250\N{GREEK SMALL LETTER MU}s", 250_000),
        ("10ns", 10),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("0.1ms", 100_000),
        ("0.000000001s", 1),
        (" 20 ms ", 20_000_000),
        (".5ms", 500_000),
        ("1e3us", 1_000_000),
        ("0", 0),
        ("0ms", 0),
        (0, 0),
        ("9223372036854775807ns", LARGEST),
    ],
)
def test_durations(text, value_ns):
    assert units.parse_duration(text) == value_ns


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("20", "20 what? write 20ms"),
        (20, "20 what? write 20ms"),
        (0.5, "0.5 what? write 0.5ms"),
        ("2m", "did you mean 2ms or 2min?"),
        ("-1ms", "-1ms is no duration: it cannot be negative"),
        ("1.5ns", "1.5ns is no whole number of nanoseconds"),
        ("9223372036854775808ns", "9223372036854775808ns is too large for a duration"),
        ("1e999s", "1e999s is too large for a duration"),
        ("20parsec", "'parsec' is no unit of a duration: use ns, us, ms, s, min, h"),
        ("soon", "'soon' is no duration: write a number and a unit, for instance 20ms"),
        ("", "'' is no duration: write a number and a unit, for instance 20ms"),
        ("1m30s", "'1m30s' is no duration: write a number and a unit, for instance 20ms"),
        (True, "True is no duration: write it as text, for instance 20ms"),
        (math.nan, "'nan' is no duration: write a number and a unit, for instance 20ms"),
    ],
)
def test_refused_durations(text, cause):
    with pytest.raises(UnitError) as caught:
        units.parse_duration(text)
    assert caught.value.cause == cause


@pytest.mark.parametrize(
    ("text", "value_bps"),
    [
        ("1bit", 1),
        ("64kbit", 64_000),
        ("100Mbit", 100_000_000),
        ("100mbit", 100_000_000),
        ("100 Mbit/s", 100_000_000),
        ("1Gbit", 1_000_000_000),
        ("2.5Gbit", 2_500_000_000),
        ("1Tbit", 1_000_000_000_000),
        ("10MBps", 80_000_000),
        ("10MB/s", 80_000_000),
        ("10kBps", 80_000),
        ("10KBps", 80_000),
        ("0.125Bps", 1),
    ],
)
def test_rates(text, value_bps):
    assert units.parse_rate(text) == value_bps


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("10mbps", "did you mean 10Mbit or 10MBps?"),
        ("10Mbps", "did you mean 10Mbit or 10MBps?"),
        ("10 mBps", "did you mean 10Mbit or 10MBps?"),
        ("10MBPS", "did you mean 10Mbit or 10MBps?"),
        ("10Mb/s", "did you mean 10Mbit or 10MBps?"),
        ("10MB", "did you mean 10Mbit or 10MBps?"),
        ("10M", "did you mean 10Mbit or 10MBps?"),
        ("10kbps", "did you mean 10kbit or 10kBps?"),
        ("10Kbps", "did you mean 10kbit or 10kBps?"),
        ("1.5gbps", "did you mean 1.5Gbit or 1.5GBps?"),
        ("10bps", "did you mean 10bit or 10Bps?"),
        ("100", "100 what? write 100Mbit"),
        (100, "100 what? write 100Mbit"),
        ("0", "a rate of 0 never sends: leave rate out for unlimited, or write loss 100% for a black hole"),
        ("0Mbit", "a rate of 0 never sends: leave rate out for unlimited, or write loss 100% for a black hole"),
        ("0.5bit", "0.5bit is no whole number of bit/s"),
        ("1e300Mbit", "1e300Mbit is too large for a rate"),
        (
            "20ms",
            "'ms' is no unit of a rate: use bit, kbit, Mbit, Gbit, Tbit, Bps, kBps, MBps, GBps, TBps",
        ),
    ],
)
def test_refused_rates(text, cause):
    with pytest.raises(UnitError) as caught:
        units.parse_rate(text)
    assert caught.value.cause == cause


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5%", 0.005),
        ("0.5 %", 0.005),
        ("0.005", 0.005),
        ("1e-6", 1e-6),
        ("0", 0.0),
        ("0%", 0.0),
        ("100%", 1.0),
        ("1.0", 1.0),
        ("0.1%", 0.001),
        ("0.7%", 0.007),  # in floats, 0.7 / 100 is something else
        (0, 0.0),
        (-0.0, 0.0),
        (0.25, 0.25),
        (1.0, 1.0),
    ],
)
def test_probabilities(text, value):
    assert repr(units.parse_probability(text)) == repr(value)  # 0.0, never -0.0


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("5", "5 what? write 5%"),
        (5, "5 what? write 5%"),
        ("1.5", "1.5 what? write 1.5%"),
        ("1", "1 what? write 1% or 100%"),
        (1, "1 what? write 1% or 100%"),
        ("150", "150 is no probability: write it from 0% to 100%"),
        ("101%", "101% is no probability: write it from 0% to 100%"),
        ("-1%", "-1% is no probability: it cannot be negative"),
        ("5ms", "'ms' is no unit of a probability: use %"),
        (1.5, "1.5 is no probability: write it from 0 to 1, or with a percent sign from 0% to 100%"),
        (math.nan, "nan is no probability: write it from 0 to 1, or with a percent sign from 0% to 100%"),
    ],
)
def test_refused_probabilities(text, cause):
    with pytest.raises(UnitError) as caught:
        units.parse_probability(text)
    assert caught.value.cause == cause


@pytest.mark.parametrize(
    ("text", "value_bytes"),
    [
        ("1500B", 1500),
        ("64KiB", 65536),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1MB", 1_000_000),
        ("1.5MiB", 1_572_864),
        ("10GiB", 10 * 2**30),
        ("0", 0),
        (0, 0),
    ],
)
def test_sizes(text, value_bytes):
    assert units.parse_size(text) == value_bytes


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("64K", "did you mean 64KiB or 64kB?"),
        ("64kb", "did you mean 64KiB or 64kB?"),
        ("10g", "did you mean 10GiB or 10GB?"),
        ("1500", "1500 what? write 1500B"),
        ("1.5B", "1.5B is no whole number of bytes"),
        ("9PiB", "'PiB' is no unit of a size: use B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"),
    ],
)
def test_refused_sizes(text, cause):
    with pytest.raises(UnitError) as caught:
        units.parse_size(text)
    assert caught.value.cause == cause


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("100packets", QueueLimit("packets", 100)),
        ("1 packet", QueueLimit("packets", 1)),
        ("64KiB", QueueLimit("bytes", 65536)),
        ("1500B", QueueLimit("bytes", 1500)),
        ("50ms", QueueLimit("ns", 50_000_000)),
        ("1min", QueueLimit("ns", 60_000_000_000)),
        ("0", QueueLimit("packets", 0)),
        (0, QueueLimit("packets", 0)),
        ("0B", QueueLimit("bytes", 0)),
        ("0ms", QueueLimit("ns", 0)),
    ],
)
def test_queue_limits(text, limit):
    assert units.parse_queue_limit(text) == limit


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("100", "100 what? write 100packets, 100KiB or 100ms"),
        ("50m", "did you mean 50ms or 50min?"),
        ("64K", "did you mean 64KiB or 64kB?"),
        ("1.5packets", "1.5packets is no whole number of packets"),
        ("10Mbit", "'Mbit' is no unit of a queue limit: use packets, a size (64KiB) or a duration (50ms)"),
    ],
)
def test_refused_queue_limits(text, cause):
    with pytest.raises(UnitError) as caught:
        units.parse_queue_limit(text)
    assert caught.value.cause == cause


def test_a_unit_error_is_a_usage_error():
    assert issubclass(UnitError, UsageError)
    assert UnitError("no").exit_code == 2


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (units.format_duration, 0, "0"),
        (units.format_duration, 1_500_000, "1.5ms"),
        (units.format_duration, 100_000_000, "100ms"),
        (units.format_duration, 20_000_000_000, "20s"),
        (units.format_duration, 90_000_000_000, "90s"),
        (units.format_duration, 120_000_000_000, "2min"),
        (units.format_rate, 0, "0bit"),
        (units.format_rate, 1_500_000, "1.5Mbit"),
        (units.format_rate, 10**10, "10Gbit"),
        (units.format_size, 0, "0"),
        (units.format_size, 1500, "1500B"),
        (units.format_size, 65536, "64KiB"),
        (units.format_size, 1_500_000, "1.5MB"),
        (units.format_probability, 0.0, "0%"),
        (units.format_probability, 1.0, "100%"),
        (units.format_probability, 0.005, "0.5%"),
        (units.format_probability, 0.0001, "0.01%"),
        (units.format_probability, 1e-6, "1e-06"),
        (units.format_queue_limit, QueueLimit("packets", 0), "0packets"),
        (units.format_queue_limit, QueueLimit("bytes", 0), "0B"),
        (units.format_queue_limit, QueueLimit("ns", 0), "0ms"),
    ],
)
def test_the_shortest_text(form, value, text):
    assert form(value) == text


@pytest.mark.parametrize("form", [units.format_duration, units.format_rate, units.format_size])
def test_nothing_negative_is_formatted(form):
    with pytest.raises(ValueError, match="-1 is negative"):
        form(-1)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_only_a_probability_is_formatted_as_one(value):
    with pytest.raises(ValueError, match="is no probability"):
        units.format_probability(value)


# Whole numbers of a unit as well as arbitrary ones: both kinds reach every unit.
QUANTITIES = st.integers(0, LARGEST) | st.builds(
    lambda digits, power: min(digits * power, LARGEST),
    st.integers(0, 9999),
    st.sampled_from([1, 60, 10**3, 2**10, 10**6, 2**20, 10**9, 60 * 10**9, 2**30, 3600 * 10**9, 2**40]),
)


@given(QUANTITIES)
def test_any_duration_comes_back(value_ns):
    assert units.parse_duration(units.format_duration(value_ns)) == value_ns


@given(QUANTITIES.filter(bool))
def test_any_rate_comes_back(value_bps):
    assert units.parse_rate(units.format_rate(value_bps)) == value_bps


@given(QUANTITIES)
def test_any_size_comes_back(value_bytes):
    assert units.parse_size(units.format_size(value_bytes)) == value_bytes


@given(st.floats(0, 1) | st.integers(0, 10_000).map(lambda n: n / 10_000))
def test_any_probability_comes_back(value):
    assert units.parse_probability(units.format_probability(value)) == value


@given(st.builds(QueueLimit, st.sampled_from(["packets", "bytes", "ns"]), QUANTITIES))
def test_any_queue_limit_comes_back(limit):
    assert units.parse_queue_limit(units.format_queue_limit(limit)) == limit


@given(st.text() | st.from_regex(r"[0-9.e+-]{0,8} ?[a-zA-Z%/]{0,4}", fullmatch=True))
@pytest.mark.parametrize(
    "parse",
    [
        units.parse_duration,
        units.parse_rate,
        units.parse_probability,
        units.parse_size,
        units.parse_queue_limit,
    ],
)
def test_any_text_is_read_or_refused(parse, text):
    with contextlib.suppress(UnitError):
        assert parse(text) is not None


def fixed(value, digits):
    return f"{value:.{digits}f}"


@given(st.lists(st.floats(0, 1000) | st.builds(lambda n: 1 + n * 1e-9, st.integers(0, 5)), min_size=1, max_size=4))
def test_different_values_never_look_the_same(values):
    texts = units.apart(values, fixed, 3)
    for one, text in zip(values, texts, strict=True):
        for other, beside in zip(values, texts, strict=True):
            if round(one, 17) != round(other, 17):
                assert text != beside
            if one < other:
                assert float(text) <= float(beside)


def test_no_more_digits_than_it_takes():
    assert units.apart((20.0, 20.5), fixed, 1) == ["20.0", "20.5"]
    assert units.apart((20.0, 20.0004), fixed, 1) == ["20.0000", "20.0004"]
    assert units.apart((20.0, 20.0), fixed, 1) == ["20.0", "20.0"]
