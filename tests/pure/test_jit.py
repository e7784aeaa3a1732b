"""What compiled code can do and Python cannot, as intrinsics, and as their twins under NUMBA_DISABLE_JIT=1."""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

from xskit.jit import (
    DISABLED,
    as_f64,
    as_i64,
    as_u8,
    as_u16,
    as_u32,
    as_u64,
    call_pointer,
    compiled,
    exchange64,
    external,
    function_pointer,
    i32,
    i64,
    last_errno,
    leading_zeros,
    load_acquire32,
    load_acquire64,
    load_word,
    store_release32,
    store_release64,
    store_word,
    trailing_zeros,
    u64,
    unlikely,
)
from xskit.memory import Region

_close = external("close", "int32", "int32")


@compiled("int64(int64, int64, int64)")
def store(address: int, width: int, value: int) -> int:
    """Through a view of that many bits, at the second place."""
    if width == 8:
        as_u8(address)[1] = value
    elif width == 16:
        as_u16(address)[1] = value
    elif width == 32:
        as_u32(address)[1] = value
    elif width == 64:
        as_i64(address)[1] = value
    elif width == -32:
        store_release32(address + 4, value)
    elif width == -64:
        store_release64(address + 8, value)
    return 0


@compiled("int64(int64, int64)")
def load(address: int, width: int) -> int:
    """What `store` stored, one place before where it ends."""
    if width == 8:
        return i64(as_u8(address + 2)[-1])
    if width == 16:
        return i64(as_u16(address + 4)[-1])
    if width == 32:
        return i64(as_u32(address + 8)[-1])
    if width == 64:
        return as_i64(address + 16)[-1]
    if width == -32:
        return load_acquire32(address + 4)
    return load_acquire64(address + 8)


@compiled("int64(int64)")
def half_as_float(address: int) -> int:
    """Halve the number at the address, as a float; the whole part of the half."""
    as_f64(address)[1] = as_i64(address)[0] / 2
    return i64(as_f64(address)[1])


@compiled("int64(int64, int64)")
def count_zeros(value: int, leading: int) -> int:
    return leading_zeros(value) if leading else trailing_zeros(value)


@compiled("int64(int64)")
def sign(value: int) -> int:
    """By a condition that the compiler takes for false, and by one that is stored."""
    negative = unlikely(value < 0)
    if unlikely(value > 0):
        return 1
    return -1 if negative else 0


@compiled("int64(int64)")
def shifted_unsigned(address: int) -> int:
    """The highest bit of the word there, which is no sign: 0 or 1. And a product that wraps, beside it."""
    word = as_u64(address)[0]
    as_u64(address)[1] = u64(word * u64(3))
    return i64(word >> u64(63))


@compiled("int64(int64)")
def narrowed(value: int) -> int:
    return i64(i32(value))


@compiled("int64(int64)")
def errno_of_close(fd: int) -> int:
    """0, or what close(2) says."""
    if _close(i32(fd)) < 0:
        return i64(last_errno())
    return 0


@compiled("int64(int64, int64)")
def exchanged(address: int, value: int) -> int:
    return exchange64(address, value)


@compiled("int64(int64, int64, int64)")
def pass_on(address: int, token: int, rounds: int) -> int:
    """Put a token in place of the one at the address, and go on with that one; returns the last."""
    for _ in range(rounds):
        token = exchange64(address, token)
    return token


@compiled("int64(int64, int64)")
def call(pointer: int, number: int) -> int:
    return call_pointer(pointer, number, 2, 3, 4)


def digits(a: int, b: int, c: int, d: int) -> int:
    return a * 1000 + b * 100 + c * 10 + d


@pytest.fixture
def memory():
    with Region(4096) as region:
        yield region


@pytest.mark.parametrize("value", [-5, 0, 7])
def test_what_is_unlikely_is_still_true_where_it_is(value):
    assert sign(value) == (value > 0) - (value < 0)


@pytest.mark.parametrize("value", [0, 1, 255, 256, 1 << 31, (1 << 40) + 7, (1 << 63) - 1, -1, -(1 << 63)])
@pytest.mark.parametrize("width", [8, 16, 32, 64, -32, -64])
def test_stores_narrow_and_loads_widen(memory, width, value):
    bits = abs(width)
    memory.array(32, "u1")[:] = 0xA5
    store(memory.address, width, value)
    found = memory.array(32, "u1").tobytes()
    here = slice(bits // 8, bits // 4)
    assert found[here] == (value & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    assert set(found[: here.start] + found[here.stop :]) == {0xA5}, "its neighbours are as they were"
    assert load(memory.address, width) == (value if bits == 64 else value & ((1 << bits) - 1))


@pytest.mark.parametrize(("number", "whole"), [(7, 3), (-7, -3), (1 << 40, 1 << 39)])
def test_floats_are_cut_towards_zero(memory, number, whole):
    memory.array(1, "i8")[0] = number
    assert half_as_float(memory.address) == whole
    assert memory.array(2, "f8")[1] == number / 2


@pytest.mark.parametrize(
    ("value", "leading", "trailing"),
    [(0, 64, 64), (1, 63, 0), (-1, 0, 0), (-(1 << 63), 0, 63), (0x0010_0000, 43, 20), (6 << 40, 21, 41)],
)
def test_zeros_are_counted_in_64_bits(value, leading, trailing):
    assert count_zeros(value, 1) == leading
    assert count_zeros(value, 0) == trailing


def test_unsigned_words_wrap_and_have_no_sign(memory):
    words = memory.array(2, "u8")
    for word in (1, (1 << 63) + 5, (1 << 64) - 1):
        words[0] = word
        assert shifted_unsigned(memory.address) == word >> 63
        assert int(words[1]) == word * 3 % (1 << 64)


@pytest.mark.parametrize(("value", "narrow"), [(5, 5), (-5, -5), (1 << 31, -(1 << 31)), ((1 << 32) + 3, 3)])
def test_numbers_for_libc_have_32_bits(value, narrow):
    assert narrowed(value) == narrow


def test_libc_is_called_and_its_errno_read():
    assert errno_of_close(-1) == errno.EBADF


def test_a_function_is_called_by_its_pointer():
    pointer = function_pointer(digits, cache=False)
    assert function_pointer(digits, cache=False) == pointer
    assert call(pointer, 1) == 1234
    assert call(pointer, -1) == -766


@pytest.mark.parametrize("value", [0, 1, -1, -(1 << 63), (1 << 63) - 1])
def test_a_word_is_exchanged(memory, value):
    words = memory.array(3, "i8")
    words[:] = 7, 8, 9
    assert exchanged(memory.address + 8, value) == 8
    assert words.tolist() == [7, value, 9]


def test_threads_that_exchange_a_word_lose_and_double_nothing(memory):
    """Loaded and stored in two steps, a token would be had twice now and then."""
    word = memory.array(1, "i8")
    with ThreadPoolExecutor(2) as threads:
        for _ in range(20):
            word[0] = 100
            tokens = threads.map(lambda token: pass_on(memory.address, token, 500 if DISABLED else 100_000), (1, 2))
            assert sorted([*tokens, int(word[0])]) == [1, 2, 100]


def test_words_are_shared_with_compiled_code(memory):
    assert store_word(memory.address + 8, -2) == 0
    assert load_word(memory.address + 8) == -2
    assert memory.array(2, "i8").tolist() == [0, -2]
