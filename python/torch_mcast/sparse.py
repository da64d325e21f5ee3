"""The sum of sparse tensors: what ranks tell each other before it, and what each adds up for itself."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

from . import errors

_RECORD_BYTES = 2048  # a type and 64 dimensions, torch's most, take fewer


def require_sum(op: Any) -> None:
    """Raise ArgumentError for other reductions than a sum."""
    kind = getattr(op, "op", op)
    if kind != ReduceOp.SUM:
        raise errors.ArgumentError(f"all_reduce: {kind.name} of sparse tensors: they have SUM alone")


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the memory of the host, where it is coalesced: so all sums have the CPU's bits."""
    with torch.no_grad():
        return tensor.detach().cpu().coalesce()


def record(mine: torch.Tensor) -> torch.Tensor:
    """Return what the other ranks must know of a tensor: how many elements it has, and what must be alike."""
    shape = list(mine.shape)
    text = f"{mine._nnz()} {mine.dtype} of shape {shape}, the first {mine.sparse_dim()} dimensions sparse"
    return torch.frombuffer(bytearray(text.encode().ljust(_RECORD_BYTES)), dtype=torch.uint8)


def places(mine: torch.Tensor, records: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return room for the indices and values of each rank.

    Raises:
        ArgumentError: on all ranks, if their tensors differ in more than the number of elements.
    """
    said = [bytes(r.tolist()).decode(errors="replace").rstrip().partition(" ") for r in records]
    for rank, (_, _, kind) in enumerate(said):
        if kind != said[0][2]:
            raise errors.ArgumentError(
                f"all_reduce: a sparse tensor on rank 0 is {said[0][2]}, on rank {rank} {kind}: they must be alike"
            )
    counts = [int(count) for count, _, _ in said]
    indices, values = mine.indices(), mine.values()
    return (
        [indices.new_empty(len(indices), count) for count in counts],
        [values.new_empty(count, *values.shape[1:]) for count in counts],
    )


def add_up(output: torch.Tensor, indices: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    """Write the sum to the output. It is made in the order of ranks, so that all get the same bits."""
    shape = output.shape[: output.sparse_dim()]
    with torch.inference_mode() if output.is_inference() else torch.no_grad():
        keys = [_keys(each, shape) for each in indices]
        found, at = torch.cat(keys).unique(return_inverse=True)
        wide = _sums_in(output.dtype)
        sums = torch.zeros(len(found), *output.shape[len(shape) :], dtype=wide, device="cpu")
        for place, each in zip(at.split([len(key) for key in keys]), values, strict=True):
            sums[place] += each.to(wide)  # a rank has each place once
        total = torch.sparse_coo_tensor(
            _unravelled(found, shape),
            sums.to(output.dtype),
            output.shape,
            is_coalesced=True,
            check_invariants=False,
        )
        output.copy_(total)


def _keys(indices: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return a number for each place: where it lies in a dense tensor."""
    keys = torch.zeros(indices.shape[1], dtype=torch.int64, device="cpu")
    for row, length in zip(indices, shape, strict=True):
        keys = keys * length + row
    return keys


def _unravelled(keys: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return the indices of keys."""
    indices = keys.new_empty(len(shape), len(keys))
    for i, length in enumerate(shape):
        indices[i] = keys // max(1, math.prod(shape[i + 1 :])) % max(1, length)
    return indices


def _sums_in(dtype: torch.dtype) -> torch.dtype:
    """Return the type to add in: shorter floats are rounded once, and torch adds no large unsigned integers."""
    if dtype.is_floating_point and dtype.itemsize < 4:
        return torch.float32
    if dtype == torch.complex32:
        return torch.complex64
    return torch.int64 if dtype in (torch.uint16, torch.uint32, torch.uint64) else dtype
