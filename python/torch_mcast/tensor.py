"""Tensors on their way to the library: what is allowed, and staging for what is not contiguous."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from . import errors, reduction


def only(items: Sequence[Any], operation: str) -> Any:
    """Return the one item of a list of one, as torch passes a tensor."""
    if len(items) != 1:
        raise errors.ArgumentError(f"{operation}: {len(items)} tensors a call, one is allowed")
    return items[0]


def require_pairs(outputs: Sequence[Any], inputs: Sequence[Any], operation: str) -> None:
    """Raise ArgumentError unless there is an input for every output."""
    if len(outputs) != len(inputs):
        raise errors.ArgumentError(f"{operation}: {len(outputs)} outputs for {len(inputs)} inputs")


def require_dense(*tensors: torch.Tensor) -> None:
    """Raise ArgumentError unless all tensors are dense, and all on the CPU or all on one CUDA device."""
    for tensor in tensors:
        if tensor.device.type not in ("cpu", "cuda") or tensor.layout != torch.strided:
            raise errors.ArgumentError(
                f"a {tensor.layout} tensor on {tensor.device}: only dense tensors on the CPU or on a CUDA "
                "device are supported"
            )
        if tensor.device != tensors[0].device:
            raise errors.ArgumentError(
                f"tensors on {tensors[0].device} and {tensor.device}: those of a call must be on one device"
            )


def require_cpu(operation: str, *tensors: torch.Tensor) -> None:
    """Raise an error unless all tensors are dense and on the CPU: gloo does the operation."""
    require_dense(*tensors)
    if any(tensor.device.type != "cpu" for tensor in tensors):
        raise errors.UnsupportedError(
            f"{operation} of CUDA tensors: the mcast backend does all_gather, reduce_scatter, all_reduce and "
            "broadcast of them, with SUM, PRODUCT, MIN, MAX, AVG and PREMUL_SUM; move the tensors to the "
            "CPU, or use another group (nccl, gloo)"
        )


def require_reducible(operation: str, args: Sequence[Any]) -> None:
    """Raise an error for elements of which gloo has no reduction, or no mean.

    It would report an "Invalid scalar type", or sum, fail to divide and leave the sum.
    """
    op = getattr(args[-1], "reduceOp", None)
    if op is None:
        return
    for tensor in tensors_in(args):
        if tensor.dtype not in reduction.GLOO_DTYPES and not tensor.is_complex():
            allowed = ", ".join(str(dtype) for dtype in reduction.GLOO_DTYPES)
            raise errors.UnsupportedError(
                f"{operation}: {tensor.dtype} has no such reduction: want one of {allowed}, or a complex type"
            )
        mean = tensor.is_floating_point() or tensor.is_complex()
        if getattr(op, "op", op) == ReduceOp.AVG and not mean:
            raise errors.ArgumentError(
                f"{operation}: AVG of {tensor.dtype}: only floating-point and complex tensors have a mean "
                "here; use SUM and divide"
            )


def tensors_in(args: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among arguments, in lists and tuples as well."""
    found: list[torch.Tensor] = []
    for arg in args:
        if isinstance(arg, torch.Tensor):
            found.append(arg)
        elif isinstance(arg, (list, tuple)):
            found.extend(tensors_in(arg))
    return found


def staging(output: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None] | None]:
    """Return contiguous memory to receive into, and the copy to do afterwards, if any."""
    if output.is_contiguous():
        return output, None
    memory = torch.empty_like(output, memory_format=torch.contiguous_format)

    def finish() -> None:
        output.copy_(memory)

    return memory, finish


def flat_view(tensors: list[torch.Tensor]) -> torch.Tensor | None:
    """Return one tensor over tensors of equal size that lie one after another, or None."""
    first, step = tensors[0], tensors[0].nbytes
    for i, t in enumerate(tensors):
        if (
            not t.is_contiguous()
            or t.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()
            or t.data_ptr() != first.data_ptr() + i * step
        ):
            return None
    return first.as_strided((len(tensors) * first.numel(),), (1,), first.storage_offset())


def scatter_into(outputs: list[torch.Tensor], flat: torch.Tensor) -> Callable[[], None]:
    """Return the copy of what was received in one piece to the outputs."""

    def finish() -> None:
        for output, part in zip(outputs, flat.chunk(len(outputs)), strict=True):
            output.copy_(part.view_as(output))

    return finish
