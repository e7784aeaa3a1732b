"""What compiled code may take for granted of records: which accesses can meet in memory, and which cannot."""

from __future__ import annotations

from xskit.jit import as_i64, compiled
from xskit.memory import I64, U32, Record, Region, record_at


class Base(Record):
    """Two fields that Derived inherits."""

    first: I64
    second: U32


class Derived(Base):
    """And one of its own."""

    third: I64


base_at = record_at(Base)
derived_at = record_at(Derived)


@compiled("int64(int64, int64)")
def sum_through_base(address: int, rounds: int) -> int:
    """Write through the derived class what is read through the base: the sum of 0 .. rounds - 1."""
    base = base_at(address)
    derived = derived_at(address)
    total = 0
    for number in range(rounds):
        derived.first = number
        total += base.first
    return total


@compiled("int64(int64, int64)")
def sum_through_address(address: int, rounds: int) -> int:
    """Write through a plain address what is read through the record, and the other way round."""
    words = as_i64(address)
    derived = derived_at(address)
    total = 0
    for number in range(rounds):
        words[0] = number
        derived.third = derived.first
        total += words[2]
    return total


@compiled("int64(int64)")
def narrow(address: int) -> int:
    """Fields keep their width and their place."""
    derived = derived_at(address)
    derived.first = -1
    derived.second = (1 << 33) + 7
    derived.third = -2
    return derived.second


def test_a_field_is_the_same_through_a_class_and_through_its_base() -> None:
    with Region(64) as region:
        assert sum_through_base(region.address, 1000) == 499_500


def test_a_plain_address_meets_any_field() -> None:
    with Region(64) as region:
        assert sum_through_address(region.address, 1000) == 499_500


def test_fields_lie_as_c_would_lay_them() -> None:
    with Region(64) as region:
        assert narrow(region.address) == 7
        assert region.array(3, "i8").tolist() == [-1, 7, -2]
