"""Element types and reductions, as the library numbers them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import ReduceOp

from . import _lib, errors

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
# A complex number is reduced as a pair of floats.
_PAIRS: dict[torch.dtype, int] = {
    torch.complex32: _lib.F16,
    torch.complex64: _lib.F32,
    torch.complex128: _lib.F64,
}
_OPS: dict[Any, int] = {
    ReduceOp.SUM: _lib.SUM,
    ReduceOp.PRODUCT: _lib.PROD,
    ReduceOp.MAX: _lib.MAX,
    ReduceOp.MIN: _lib.MIN,
    ReduceOp.AVG: _lib.AVG,
    ReduceOp.PREMUL_SUM: _lib.PREMUL_SUM,
}
_BITWISE: dict[Any, int] = {
    ReduceOp.BAND: _lib.BAND,
    ReduceOp.BOR: _lib.BOR,
    ReduceOp.BXOR: _lib.BXOR,
}
# Bools are bytes of 0 or 1 and stay so: a sum is true where any is, as with NCCL.
_OF_BOOLS: dict[Any, int] = {
    ReduceOp.SUM: _lib.MAX,
    ReduceOp.PRODUCT: _lib.MIN,
    ReduceOp.MAX: _lib.MAX,
    ReduceOp.MIN: _lib.MIN,
    **_BITWISE,
}
_OF_INTEGERS = {op: number for op, number in _OPS.items() if op != ReduceOp.AVG} | _BITWISE
_OF_COMPLEX = {op: _OPS[op] for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM)}


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


def find(operation: str, dtype: torch.dtype, op: Any) -> Reduction:
    """Return the library's reduction for torch's.

    Raises:
        UnsupportedError: elements of this type cannot be reduced.
        ArgumentError: they cannot be reduced so.
    """
    kind = getattr(op, "op", op)
    number, ops = _DTYPES.get(dtype), _OPS
    if dtype == torch.bool:
        number, ops = _lib.U8, _OF_BOOLS
    elif dtype.is_complex:
        number, ops = _PAIRS.get(dtype), _OF_COMPLEX
    elif not dtype.is_floating_point:
        ops = _OF_INTEGERS
    if number is None:
        allowed = ", ".join(map(str, [*_DTYPES, torch.bool, *_PAIRS]))
        raise errors.UnsupportedError(f"{operation}: {dtype} has no such reduction: want one of {allowed}")
    if kind not in ops and kind == ReduceOp.AVG:  # which would lose its fraction
        instead = "convert it to a floating-point type" if dtype == torch.bool else "use SUM and divide"
        raise errors.ArgumentError(
            f"{operation}: AVG of {dtype}: only floating-point and complex tensors have a mean here; {instead}"
        )
    if kind not in ops:
        raise errors.ArgumentError(f"{operation}: {kind.name} of {dtype}: want one of {', '.join(o.name for o in ops)}")
    # Its pickled state has the factor in every torch; the attribute is younger than 2.11.
    factor = float(op.__getstate__()[1]) if kind == ReduceOp.PREMUL_SUM else 1.0
    return Reduction(number, ops[kind], factor)


def count(memory: torch.Tensor) -> int:
    """Return how many elements of the library's type contiguous memory holds."""
    return memory.numel() * (2 if memory.is_complex() else 1)
