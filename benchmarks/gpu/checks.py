"""Every byte of Allgather, Reduce-Scatter, Allreduce and sends, in every element type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# Whole numbers up to this are exact, so that sums are the same in any order: element types
# that torch hands to some backend. Those of MUST are taken by every NCCL.
EXACT: dict[torch.dtype, int] = {
    torch.int8: 127, torch.uint8: 255, torch.int32: 1 << 20, torch.int64: 1 << 40, torch.bool: 1,
    torch.float16: 2048, torch.bfloat16: 256, torch.float32: 1 << 24, torch.float64: 1 << 40,
    torch.float8_e4m3fn: 16, torch.float8_e5m2: 8, torch.uint16: 65535, torch.uint32: 1 << 20,
    torch.uint64: 1 << 40,
}  # fmt: skip
MUST = tuple(EXACT)[:9]
SIGNED = tuple(t for t in EXACT if t.is_floating_point or t in (torch.int8, torch.int32, torch.int64))
# What torch 2.9 to 2.15 says of a type that it does not hand to NCCL, and to gloo; what "mcast" says.
REFUSALS = (
    "Input tensor data type is not supported for NCCL",
    "Unsupported tensor data type for NCCL",
    "Unconvertible NCCL type",
    "Unsupported Float8 type for NCCL reduction",
    "Invalid scalar type",
    "of CUDA tensors: the mcast backend does",
)
COUNTS = (1, 3, 1000, 65_537, (1 << 20) + 1)  # elements a rank; no size in bytes that is timed as well
GUARD = 0xA5


class Wrong(Exception):
    """A result differs from the right one."""


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes, on the CPU."""
    return tensor.contiguous().view(torch.uint8).cpu()


def anything(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    """Return count elements of any bit pattern."""
    generator = torch.Generator().manual_seed(seed)
    below = 2 if dtype == torch.bool else 256
    size = count * dtype.itemsize
    return torch.randint(below, (size,), dtype=torch.uint8, generator=generator).view(dtype)


def whole(dtype: torch.dtype, count: int, ranks: int, seed: int) -> torch.Tensor:
    """Return count whole numbers, int64; the sum of any `ranks` of them is exact in dtype."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:  # rarely true, so that not every sum is
        return (torch.randint(2 * ranks, (count,), generator=generator) == 0).long()
    most = EXACT[dtype] // ranks
    least = -most if dtype in SIGNED else 0
    return torch.randint(least, most + 1, (count,), generator=generator)


def compare(what: str, got: torch.Tensor, want: torch.Tensor) -> None:
    """Raise Wrong unless both are the same, byte for byte."""
    got, want = bits(got), bits(want)
    if not torch.equal(got, want):
        where = int((got != want).nonzero()[0])
        raise Wrong(f"{what}: byte {where} of {len(want)} is {int(got[where])}, not {int(want[where])}")


def check_allgather(dtype: torch.dtype, count: int, device: torch.device, inplace: bool) -> None:
    """Gather random bytes and compare all of them."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = [anything(dtype, count, seed=count * 64 + r) for r in range(ranks)]
    output = torch.full((ranks * count * dtype.itemsize,), GUARD, dtype=torch.uint8, device=device).view(
        dtype
    )
    mine = parts[rank].to(device)
    if inplace:
        output[rank * count : (rank + 1) * count].copy_(mine)
        mine = output[rank * count : (rank + 1) * count]
    dist.all_gather_into_tensor(output, mine)
    name = f"all_gather_into_tensor, {dtype}, {count} a rank{', in place' * inplace}"
    compare(name, output, torch.cat([bits(p) for p in parts]))


def check_reduce_scatter(dtype: torch.dtype, count: int, device: torch.device, inplace: bool) -> None:
    """Sum whole numbers, which every order of adding leaves exact, and compare all of them."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = [whole(dtype, ranks * count, ranks, seed=count * 64 + r) for r in range(ranks)]
    total = torch.stack(parts).sum(0)[rank * count : (rank + 1) * count]
    send = parts[rank].to(dtype).to(device)
    recv = send[rank * count : (rank + 1) * count] if inplace else torch.zeros_like(send[:count])
    dist.reduce_scatter_tensor(recv, send)
    name = f"reduce_scatter_tensor, {dtype}, {count} a rank{', in place' * inplace}"
    compare(name, recv, total.to(dtype))


def check_allreduce(dtype: torch.dtype, count: int, device: torch.device, _inplace: bool) -> None:
    """Sum whole numbers in place, and compare all of them on every rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = [whole(dtype, count, ranks, seed=count * 64 + r) for r in range(ranks)]
    total = torch.stack(parts).sum(0).to(dtype)
    buffer = parts[rank].to(dtype).to(device)
    dist.all_reduce(buffer)
    compare(f"all_reduce, {dtype}, {count}", buffer, total)


def check_exchange(dtype: torch.dtype, count: int, device: torch.device, _inplace: bool) -> None:
    """Send random bytes to the next rank and compare what comes from the one before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    mine = anything(dtype, count, seed=count * 64 + rank).to(device)
    got = torch.zeros_like(mine)
    ops = [dist.P2POp(dist.isend, mine, after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    compare(f"send and receive, {dtype}, {count}", got, anything(dtype, count, seed=count * 64 + before))


CHECKS: dict[str, Callable[[torch.dtype, int, torch.device, bool], None]] = {
    "allgather": check_allgather,
    "reducescatter": check_reduce_scatter,
    "allreduce": check_allreduce,
    "exchange": check_exchange,
}


def check(device: torch.device, small: bool) -> dict[str, Any]:
    """Check each operation with every element type; return which were checked and which refused."""
    counts = COUNTS[:3] if small else COUNTS  # small: this program is being tried out
    must = dist.get_backend() == "nccl"
    adds_bytes = {"allreduce"} | ({"reducescatter"} if device.type == "cuda" else set())
    adds_bytes = adds_bytes if dist.get_backend() == "gloo" else set()
    checked: dict[str, list[str]] = {name: [] for name in CHECKS}
    refused: dict[str, str] = {}
    for name, run in CHECKS.items():
        for dtype in EXACT:
            short = str(dtype).removeprefix("torch.")
            if name in adds_bytes and dtype == torch.bool:
                refused[f"{name} {short}"] = "gloo adds up bytes: true and true make 2"
                continue
            try:
                for count in counts:
                    for inplace in (False, True):
                        run(dtype, count, device, inplace)
            except (RuntimeError, ValueError, TypeError, NotImplementedError) as e:
                # Alike on all ranks: torch decides by the type, before it calls the backend.
                if not any(text in str(e) for text in REFUSALS) or (must and dtype in MUST):
                    raise
                refused[f"{name} {short}"] = str(e).splitlines()[0]
            else:
                checked[name].append(short)
    return {"checked": checked, "refused": refused, "counts": counts}
