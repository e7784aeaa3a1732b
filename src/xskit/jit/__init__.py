"""The one place that talks to Numba: how data-plane code is compiled, and what it can do that Python cannot.

compilation    inlined functions, entry points, functions called by pointer
kept           the cache on disk
intrinsics     loads and stores by address, C functions, bits; each with a pure-Python twin
records        record pointers whose fields are known not to overlap

Data-plane code is plain Python that Numba turns into machine code. Under NUMBA_DISABLE_JIT=1 the whole data plane also
runs, and is covered and debugged, as ordinary Python.

Rules of the data plane (docs/architecture.md says why):

* every integer is a signed 64-bit one, addresses too; loads widen, stores narrow. Only random streams use u64().
* state lives in records (memory.Record) and is reached by address; no array object crosses a call.
* an index wraps only where it is masked by hand.
"""

from __future__ import annotations

from xskit._cache import COMPILED, cache_folder, cache_root, is_empty
from xskit.jit.compilation import DISABLED, compiled, direct, function_pointer, fused, inlined
from xskit.jit.intrinsics import (
    MASK64,
    as_f64,
    as_i64,
    as_u8,
    as_u16,
    as_u32,
    as_u64,
    call_pointer,
    exchange64,
    external,
    i32,
    i64,
    last_errno,
    leading_zeros,
    load_acquire32,
    load_acquire64,
    load_word,
    prefetch,
    record_pointer,
    store_release32,
    store_release64,
    store_word,
    trailing_zeros,
    u64,
    unlikely,
)

__all__ = [
    "COMPILED",
    "DISABLED",
    "MASK64",
    "as_f64",
    "as_i64",
    "as_u8",
    "as_u16",
    "as_u32",
    "as_u64",
    "cache_folder",
    "cache_root",
    "call_pointer",
    "compiled",
    "direct",
    "exchange64",
    "external",
    "function_pointer",
    "fused",
    "i32",
    "i64",
    "inlined",
    "is_empty",
    "last_errno",
    "leading_zeros",
    "load_acquire32",
    "load_acquire64",
    "load_word",
    "prefetch",
    "record_pointer",
    "store_release32",
    "store_release64",
    "store_word",
    "trailing_zeros",
    "u64",
    "unlikely",
]
