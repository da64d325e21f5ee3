"""What the tests of the backend share: groups, inputs, and the reductions that they must give."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

import torch_mcast
from torch_mcast.recorder import RECORDS

distributed: Any = dist  # with its private names
CPU = torch.device("cpu")

SINCE_2_15 = RECORDS
FLIGHT_RECORDER = pytest.mark.skipif(
    not SINCE_2_15, reason="before torch 2.15 the Flight Recorder has its own backends alone"
)
ENABLE = pytest.mark.skipif(not hasattr(FSDPModule, "set_custom_all_gather"), reason="enable() needs torch 2.9")
# Before torch 2.9 NCCL alone is split, and 2.12 to 2.14 split none where there is no accelerator.
SPLITS = hasattr(dist.ProcessGroup, "split_group") and not torch.__version__.startswith(("2.12.", "2.13.", "2.14."))
FSDP_ON_CPU = pytest.mark.skipif(
    not hasattr(torch.cpu.current_stream(), "record_event"), reason="FSDP2 of torch 2.6 takes no CPU tensors"
)


def impl(group: Any = None, device: torch.device = CPU) -> Any:
    """Return the backend of a group, as get_backend_impl() of newer torch does."""
    return (group or distributed.group.WORLD)._get_backend(device)


@contextlib.contextmanager
def splittable() -> Iterator[None]:
    """Bind the default group to a device, which torch before 2.15 wants of a group that is split."""
    everyone: Any = dist.group.WORLD
    if not SINCE_2_15:
        everyone.bound_device_id = torch.device("cpu", 0)
    try:
        yield
    finally:
        everyone.bound_device_id = None

SUMMABLE = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
]  # fmt: skip
OPAQUE = [torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fnuz]
SIZES = [0, 1, 3, 1000, 70_001]


@functools.cache
def group_of(fabric: str, size: int) -> Any:
    """Return a group of the first ranks; made by all ranks, once."""
    return dist.new_group(list(range(size)), backend="mcast", pg_options=torch_mcast.Options(fabric=fabric))


def numbers(count: int, dtype: torch.dtype, rank: int, salt: int = 0) -> torch.Tensor:
    """Return values 0..7 that differ by place and rank: sums and products of four fit any type."""
    values = (torch.arange(count) * 5 + rank * 3 + salt) % 8
    if dtype is torch.bool:
        return values % 2 == 1
    if dtype.is_complex:
        return torch.complex(values.double(), values.flip(0).double()).to(dtype)
    return values.to(torch.float32).to(dtype) if dtype.is_floating_point else values.to(dtype)


def sparse_ones(places: list[list[int]], *shape: int) -> torch.Tensor:
    """Return ones at places, given as a list for each of the sparse dimensions, which come first."""
    ones = torch.ones(len(places[0]), *shape[len(places) :])
    return torch.sparse_coo_tensor(torch.tensor(places), ones, shape, check_invariants=True)


def same_bytes(got: torch.Tensor, want: torch.Tensor) -> bool:
    got, want = got.contiguous(), want.contiguous()
    return got.dtype == want.dtype and torch.equal(got.view(torch.uint8), want.view(torch.uint8))


def reduced(op: Any, dtype: torch.dtype, inputs: list[torch.Tensor], factor: float) -> torch.Tensor:
    """Return the reduction, shorter floats added in f32: of `numbers` the same bits in any order."""
    if dtype.is_complex:
        pairs = [torch.view_as_real(t) for t in inputs]
        return torch.view_as_complex(reduced(op, pairs[0].dtype, pairs, factor))
    wide = torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
    if not dtype.is_floating_point:
        wide = torch.int64
    terms = [t.to(wide) * factor if op == "premul" else t.to(wide) for t in inputs]
    fold: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = {
        dist.ReduceOp.PRODUCT: torch.mul,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.BAND: torch.bitwise_and,
        dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor,
    }.get(op, torch.add)
    total = functools.reduce(fold, terms)
    if op == dist.ReduceOp.AVG:
        total = total / len(inputs)
    return total.to(dtype)


def reductions() -> Iterator[tuple[torch.dtype, Any, Any, int]]:
    """Give element type, operation, how torch takes it, and number of elements, for every pair we reduce.

    "premul" is PREMUL_SUM by 0.5.
    """
    for dtype in (*SUMMABLE, torch.bool, torch.complex64, torch.complex128):
        for op in _operations(dtype):
            passed = distributed._make_nccl_premul_sum(0.5) if op == "premul" else op
            for n in SIZES if dtype is torch.float32 else [257]:
                yield dtype, op, passed, n


def _operations(dtype: torch.dtype) -> list[Any]:
    """Return what elements of a type are reduced by."""
    ops = dist.ReduceOp
    if dtype.is_complex:
        return ["premul", ops.SUM, ops.AVG]
    of_all = [ops.SUM, ops.MIN, ops.MAX, ops.PRODUCT]
    if dtype.is_floating_point:
        return ["premul", ops.AVG, *of_all]
    return [*of_all, ops.BAND, ops.BOR, ops.BXOR]
