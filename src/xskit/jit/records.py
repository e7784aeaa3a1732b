"""Record pointers for compiled code, with the promise that makes them fast: fields do not overlap.

LLVM must not keep a field in a register across a store that might have hit it, and for all it knows any store through
an address might. A C compiler knows from the types: a store to `entry->time_ns` leaves `fifo->tail` alone. Here the
same is said for records: every access names the field, and two accesses can meet only in the same field of the same
class (type-based alias analysis, https://llvm.org/docs/LangRef.html#tbaa-metadata). A field that a class inherits is
its base's. Accesses through plain addresses (as_i64 and the like) name nothing and can meet any.

So a piece of memory is reached through records of one class, or its bases, or through plain addresses, never through
two unrelated classes.

Code that breaks this promise may work in one build and fail in the next. To find out whether a fault comes from that,
compile without the promise: XSKIT_STRICT_ALIASING=0 (like gcc's -fno-strict-aliasing). That code has a separate cache
folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, datamodel, imputils

from xskit._cache import STRICT_ALIASING

# Untyped in Numba.
_numba_datamodel: Any = datamodel
_numba_imputils: Any = imputils
_get_record_member: Any = cgutils.get_record_member


class NamedRecord(types.Record):
    """Numba's record type, whose fields know the names by which they are told apart."""

    def __init__(self, dtype: np.dtype[Any], names: Mapping[str, str]) -> None:
        plain = numba.from_dtype(dtype)
        fields: Any = [(name, {"type": f.type, "offset": f.offset}) for name, f in plain.fields.items()]
        super().__init__(fields, plain.size, plain.aligned)
        self.names = dict(names)
        self.name = f"{self.name}:{','.join(self.names.values())}"

    def can_convert_to(self, typingctx: Any, other: Any) -> None:
        """To nothing: a function is compiled anew for each class that it is called with, so that names stay true."""


def _tag(access: Any, module: Any, name: str) -> None:
    """Mark a load or a store as one that reaches the field of that name and no other."""
    if not STRICT_ALIASING:
        return
    zero = ir.Constant(ir.IntType(64), 0)
    root = module.add_metadata(["xskit"])
    field = module.add_metadata([name, root, zero])
    access.set_metadata("tbaa", module.add_metadata([field, field, zero]))


def _place(context: Any, builder: Any, record: NamedRecord, address: Any, field: str) -> Any:
    kind = context.get_data_type(record.typeof(field))
    return _get_record_member(builder, address, record.offset(field), kind)


def _load_field(context: Any, builder: Any, record: NamedRecord, address: Any, field: str) -> Any:
    value = builder.load(_place(context, builder, record, address, field))
    _tag(value, builder.module, record.names[field])
    return value


def _store_field(context: Any, builder: Any, signature: Any, arguments: Any, field: str) -> None:
    record, kind = signature.args
    value = context.cast(builder, arguments[1], kind, record.typeof(field))
    store = builder.store(value, _place(context, builder, record, arguments[0], field))
    _tag(store, builder.module, record.names[field])


_numba_datamodel.register_default(NamedRecord)(_numba_datamodel.models.RecordModel)
_numba_imputils.lower_getattr_generic(NamedRecord)(_load_field)
_numba_imputils.lower_setattr_generic(NamedRecord)(_store_field)
