"""Element types and reductions, as the library numbers them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import ReduceOp

from . import _lib

_DTYPES: dict[torch.dtype, int] = {
    # BEGIN types: internal/api writes them
    torch.int8: _lib.I8,
    torch.uint8: _lib.U8,
    torch.int16: _lib.I16,
    torch.uint16: _lib.U16,
    torch.int32: _lib.I32,
    torch.uint32: _lib.U32,
    torch.int64: _lib.I64,
    torch.uint64: _lib.U64,
    torch.float8_e4m3fn: _lib.E4M3,
    torch.float8_e5m2: _lib.E5M2,
    torch.float16: _lib.F16,
    torch.bfloat16: _lib.BF16,
    torch.float32: _lib.F32,
    torch.float64: _lib.F64,
    # END types
}
# What gloo reduces, which takes the operations that the library does not know (torch's
# ProcessGroupGlooDetail.hpp, GENERATE_ALL_TYPES); complex ones it takes as pairs.
GLOO_DTYPES = (
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
)
_OPS: dict[Any, int] = {
    ReduceOp.SUM: _lib.SUM,
    ReduceOp.PRODUCT: _lib.PROD,
    ReduceOp.MAX: _lib.MAX,
    ReduceOp.MIN: _lib.MIN,
    ReduceOp.AVG: _lib.AVG,
    ReduceOp.PREMUL_SUM: _lib.PREMUL_SUM,
}
# Bools are bytes of 0 or 1 and stay so: a sum is true where any is, as with NCCL. gloo's would be 2 there.
_OF_BOOLS: dict[Any, int] = {
    ReduceOp.SUM: _lib.MAX,
    ReduceOp.MAX: _lib.MAX,
    ReduceOp.BOR: _lib.MAX,
    ReduceOp.PRODUCT: _lib.MIN,
    ReduceOp.MIN: _lib.MIN,
    ReduceOp.BAND: _lib.MIN,
}


class Reduction(NamedTuple):
    """What to do with the elements of one tensor.

    Attributes:
        dtype: the library's number of the element type.
        op: the library's number of the operation.
        factor: of a premultiplied sum.
    """

    dtype: int
    op: int
    factor: float


def find(dtype: torch.dtype, op: Any) -> Reduction | None:
    """Return the library's reduction for torch's, or None if it has none."""
    code, kind = _DTYPES.get(dtype), _OPS.get(getattr(op, "op", op))
    if dtype == torch.bool:
        code, kind = _lib.U8, _OF_BOOLS.get(getattr(op, "op", op))
    if code is None or kind is None:
        return None
    # Its pickled state has the factor in every torch; the attribute is younger than 2.11.
    return Reduction(code, kind, float(op.__getstate__()[1]) if kind == _lib.PREMUL_SUM else 1.0)
