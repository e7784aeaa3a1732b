"""What compiled code can do and Python cannot: reach memory by address, count bits, call C functions and pointers.

Everything here exists twice: as a Numba intrinsic, and as a pure-Python twin that is used under NUMBA_DISABLE_JIT=1.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from xskit import libc
from xskit.jit.compilation import DISABLED, by_pointer, compiled

MASK64 = 0xFFFF_FFFF_FFFF_FFFF


class View(Protocol):
    """Typed memory that begins at an address: indexed as C would index it, no bounds, no negative wraparound."""

    def __getitem__(self, index: int, /) -> int: ...
    def __setitem__(self, index: int, value: int, /) -> None: ...


class FloatView(Protocol):
    def __getitem__(self, index: int, /) -> float: ...
    def __setitem__(self, index: int, value: float, /) -> None: ...


if TYPE_CHECKING:

    def u64(value: float, /) -> int:
        """An unsigned 64-bit integer; wraps."""

    def i64(value: float, /) -> int:
        """A signed 64-bit integer; truncates a float."""

    def i32(value: int, /) -> int:
        """A signed 32-bit integer, for libc."""

    def as_u8(address: int, /) -> View: ...
    def as_u16(address: int, /) -> View: ...
    def as_u32(address: int, /) -> View: ...
    def as_i64(address: int, /) -> View: ...
    def as_u64(address: int, /) -> View: ...
    def as_f64(address: int, /) -> FloatView: ...
    def load_acquire32(address: int, /) -> int: ...
    def load_acquire64(address: int, /) -> int: ...
    def store_release32(address: int, value: int, /) -> None: ...
    def store_release64(address: int, value: int, /) -> None: ...

    def exchange64(address: int, value: int, /) -> int:
        """Store a 64-bit word and return what was there before, in one step; acquires."""

    def prefetch(address: int, /) -> None:
        """Bring the cache line at an address near, to be read and written soon. Any address will do."""

    def trailing_zeros(value: int, /) -> int:
        """Zero bits below the lowest set bit; 64 for 0."""

    def leading_zeros(value: int, /) -> int:
        """Zero bits above the highest set bit of a 64-bit word; 64 for 0."""

    def unlikely(condition: bool, /) -> bool:
        """The condition, of which the compiler may take it that it is false nearly always."""

    def call_pointer(pointer: int, a: int, b: int, c: int, d: int, /) -> int:
        """Call a function by the address that `function_pointer` gave."""

    def last_errno() -> int:
        """The errno of the libc call just made."""

    def record_pointer(dtype: np.dtype[Any], names: Mapping[str, str]) -> Callable[[int], Any]:
        """A function address -> struct pointer whose fields are read and written by name.

        `names` gives each field a name of its own among all records: where names differ, memory differs.
        """

    def external(name: str, returns: str, *arguments: str) -> Callable[..., int]:
        """A C function of this process, by symbol: no address is compiled in, so callers can be cached."""

elif not DISABLED:

    def _pointer(kind: types.Type) -> Any:
        """An intrinsic address -> pointer of this kind."""

        @intrinsic
        def at(_context: Any, _address: Any) -> Any:
            def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
                return builder.inttoptr(arguments[0], context.get_value_type(kind))

            return kind(types.int64), build

        return at

    def _view(item: types.Type) -> Any:
        return _pointer(types.CPointer(item))

    def _load(order: str, bits: int) -> Any:
        @intrinsic
        def load(_context: Any, _address: Any) -> Any:
            def build(_c: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
                pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
                value = builder.load_atomic(pointer, order, bits // 8)
                return builder.zext(value, ir.IntType(64)) if bits < 64 else value

            return types.int64(types.int64), build

        return load

    def _store(order: str, bits: int) -> Any:
        @intrinsic
        def store(_context: Any, _address: Any, _value: Any) -> Any:
            def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
                pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
                value = builder.trunc(arguments[1], ir.IntType(bits)) if bits < 64 else arguments[1]
                builder.store_atomic(value, pointer, order, bits // 8)
                return context.get_dummy_value()

            return types.void(types.int64, types.int64), build

        return store

    @intrinsic
    def exchange64(_context, _address, _value):  # noqa: ANN001, ANN201
        def build(_c: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
            return builder.atomic_rmw("xchg", pointer, arguments[1], "acquire")

        return types.int64(types.int64, types.int64), build

    @intrinsic
    def unlikely(_context, _condition):  # noqa: ANN001, ANN201
        def build(_c: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            bit = ir.IntType(1)
            kind = ir.FunctionType(bit, [bit, bit])
            expect = cgutils.get_or_insert_function(builder.module, kind, "llvm.expect.i1")
            return builder.call(expect, [arguments[0], ir.Constant(bit, 0)])

        return types.boolean(types.boolean), build

    @intrinsic
    def prefetch(_context, _address):  # noqa: ANN001, ANN201
        def build(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [pointer, word, word, word])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            for_writing, near, data = (ir.Constant(word, value) for value in (1, 3, 1))
            builder.call(function, [builder.inttoptr(arguments[0], pointer), for_writing, near, data])
            return context.get_dummy_value()

        return types.void(types.int64), build

    @intrinsic
    def trailing_zeros(_context, _value):  # noqa: ANN001, ANN201
        def build(_c: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.int64), build

    @intrinsic
    def leading_zeros(_context, _value):  # noqa: ANN001, ANN201
        def build(_c: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 1))

        return types.int64(types.int64), build

    @intrinsic
    def call_pointer(_context, _pointer, _a, _b, _c, _d):  # noqa: ANN001, ANN201
        def build(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            word = ir.IntType(64)
            kind = ir.FunctionType(word, [word] * 4)
            return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

        return types.int64(*[types.int64] * 5), build

    from xskit.jit.records import NamedRecord

    def record_pointer(dtype: np.dtype[Any], names: Mapping[str, str]) -> Any:
        """An intrinsic address -> struct pointer whose fields are read and written by name."""
        return _pointer(NamedRecord(dtype, names))

    def external(name: str, returns: str, *arguments: str) -> Any:
        """A C function of this process, by symbol: no address is compiled in, so callers can be cached."""
        return types.ExternalFunction(name, getattr(types, returns)(*[getattr(types, a) for a in arguments]))

    _errno_location = external("__errno_location", "int64")

    @numba.njit(nogil=True, error_model="numpy")
    def last_errno() -> int:
        """The errno of the libc call just made."""
        return i64(as_u32(_errno_location())[0])

    u64, i64, i32 = np.uint64, np.int64, np.int32

    as_u8, as_u16, as_u32 = _view(types.uint8), _view(types.uint16), _view(types.uint32)
    as_i64, as_u64, as_f64 = _view(types.int64), _view(types.uint64), _view(types.float64)

    load_acquire32, load_acquire64 = _load("acquire", 32), _load("acquire", 64)
    store_release32, store_release64 = _store("release", 32), _store("release", 64)

else:
    # The twins. Plain loads and stores stand for acquire and release: enough on x86 and for tests.

    class _View:
        __slots__ = ("address", "kind", "size")

        def __init__(self, address: int, kind: Any) -> None:
            self.address = int(address)
            self.kind = kind
            self.size = ctypes.sizeof(kind)

        def __getitem__(self, index: int) -> Any:
            return self.kind.from_address(self.address + int(index) * self.size).value

        def __setitem__(self, index: int, value: Any) -> None:
            self.kind.from_address(self.address + int(index) * self.size).value = (
                float(value) if self.kind is ctypes.c_double else int(value)
            )

    def _view(item: Any) -> Any:
        return lambda address: _View(address, item)

    _SCALARS: dict[str, Any] = {
        "i8": ctypes.c_int64, "u8": ctypes.c_uint64, "i4": ctypes.c_int32, "u4": ctypes.c_uint32,
        "u2": ctypes.c_uint16, "u1": ctypes.c_uint8, "f8": ctypes.c_double,
    }  # fmt: skip

    class _Pointer:
        """A struct pointer: attributes are fields."""

        __slots__ = ("_address", "_fields")

        def __init__(self, address: int, fields: dict[str, tuple[Any, int]]) -> None:
            object.__setattr__(self, "_address", int(address))
            object.__setattr__(self, "_fields", fields)

        def __getattr__(self, name: str) -> Any:
            kind, offset = self._fields[name]
            return kind.from_address(self._address + offset).value

        def __setattr__(self, name: str, value: Any) -> None:
            kind, offset = self._fields[name]
            kind.from_address(self._address + offset).value = float(value) if kind is ctypes.c_double else int(value)

    def record_pointer(dtype: np.dtype[Any], names: Mapping[str, str]) -> Any:
        assert dtype.fields is not None
        fields = {name: (_SCALARS[field[0].str[1:]], field[1]) for name, field in dtype.fields.items()}
        return lambda address: _Pointer(address, fields)

    def external(name: str, returns: str, *arguments: str) -> Any:
        function = libc.external(name, returns, *arguments)
        return lambda *values: function(*map(int, values))

    def last_errno() -> int:
        """The errno of the libc call just made."""
        return ctypes.get_errno()

    _exchanging = threading.Lock()

    def u64(value: float) -> int:
        return int(value) & MASK64

    def i64(value: float) -> int:
        wrapped = int(value) & MASK64
        return wrapped - (1 << 64) if wrapped >> 63 else wrapped

    def i32(value: float) -> int:
        return ctypes.c_int32(int(value)).value

    as_u8 = _view(ctypes.c_uint8)
    as_u16 = _view(ctypes.c_uint16)
    as_u32 = _view(ctypes.c_uint32)
    as_i64 = _view(ctypes.c_int64)
    as_u64 = _view(ctypes.c_uint64)
    as_f64 = _view(ctypes.c_double)

    def load_acquire32(address: int) -> int:
        return ctypes.c_uint32.from_address(int(address)).value

    def load_acquire64(address: int) -> int:
        return ctypes.c_int64.from_address(int(address)).value

    def store_release32(address: int, value: int) -> None:
        ctypes.c_uint32.from_address(int(address)).value = int(value)

    def store_release64(address: int, value: int) -> None:
        ctypes.c_int64.from_address(int(address)).value = int(value)

    def exchange64(address: int, value: int) -> int:
        with _exchanging:
            word = ctypes.c_int64.from_address(int(address))
            before = word.value
            word.value = int(value)
        return before

    def unlikely(condition: bool) -> bool:
        return bool(condition)

    def prefetch(address: int) -> None:
        pass

    def trailing_zeros(value: int) -> int:
        value = int(value) & MASK64
        return (value & -value).bit_length() - 1 if value else 64

    def leading_zeros(value: int) -> int:
        return 64 - (int(value) & MASK64).bit_length()

    def call_pointer(pointer: int, a: int, b: int, c: int, d: int) -> int:
        return by_pointer[int(pointer)](a, b, c, d)


@compiled("int64(int64)")
def load_word(address: int) -> int:
    """An acquiring 64-bit load, from Python."""
    return load_acquire64(address)


@compiled("int64(int64, int64)")
def store_word(address: int, value: int) -> int:
    """A releasing 64-bit store, from Python; returns 0."""
    store_release64(address, value)
    return 0
