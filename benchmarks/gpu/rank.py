"""One rank of a run: checks, timings, training. gpu.py starts it.

Rank 0 prints NDJSON records; any rank that finds a wrong byte ends with a status that is not 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fsdp"))

from data import batch, load
from model import GPT, Shape

# Whole numbers up to this are exact, so that sums are the same in any order: element types
# that NCCL takes from torch. Those of MUST are taken by every version.
EXACT: dict[torch.dtype, int] = {
    torch.int8: 127, torch.uint8: 255, torch.int32: 1 << 20, torch.int64: 1 << 40, torch.bool: 1,
    torch.float16: 2048, torch.bfloat16: 256, torch.float32: 1 << 24, torch.float64: 1 << 40,
    torch.float8_e4m3fn: 16, torch.float8_e5m2: 8, torch.uint16: 65535, torch.uint32: 1 << 20,
    torch.uint64: 1 << 40,
}  # fmt: skip
MUST = tuple(EXACT)[:9]
SIGNED = tuple(t for t in EXACT if t.is_floating_point or t in (torch.int8, torch.int32, torch.int64))
# What torch 2.9 to 2.15 says of a type that it does not hand to NCCL, and to gloo.
REFUSALS = (
    "Input tensor data type is not supported for NCCL",
    "Unconvertible NCCL type",
    "Unsupported Float8 type for NCCL reduction",
    "Invalid scalar type",
)
COUNTS = (1, 3, 1000, 65_537, (1 << 20) + 1)  # elements a rank; no size in bytes that is timed as well
GUARD = 0xA5


class Wrong(Exception):
    """A result is not what it must be."""


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
    """Return count whole numbers, int64, of which `ranks` add up to one that dtype holds exactly."""
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


def check(device: torch.device) -> dict[str, Any]:
    """Check both collectives with every element type; return which were checked and which refused."""
    counts = COUNTS if device.type == "cuda" else COUNTS[:3]  # the CPU is for trying this out
    checked: dict[str, list[str]] = {"allgather": [], "reducescatter": []}
    refused: dict[str, str] = {}
    for name, run in (("allgather", check_allgather), ("reducescatter", check_reduce_scatter)):
        for dtype in EXACT:
            short = str(dtype).removeprefix("torch.")
            try:
                for count in counts:
                    for inplace in (False, True):
                        run(dtype, count, device, inplace)
            except (RuntimeError, ValueError, TypeError, NotImplementedError) as e:
                # Alike on all ranks: torch decides by the type, before it calls the backend.
                if not any(text in str(e) for text in REFUSALS) or (device.type == "cuda" and dtype in MUST):
                    raise
                refused[f"{name} {short}"] = str(e).splitlines()[0]
            else:
                checked[name].append(short)
    return {"checked": checked, "refused": refused, "counts": counts}


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(nbytes: int, rounds: int, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time both collectives with f32 shards of nbytes a rank; times are this rank's, in us."""
    ranks, count = dist.get_world_size(), nbytes // 4
    shard = torch.ones(count, device=device)
    whole = torch.ones(ranks * count, device=device)
    for name, run in (
        ("allgather", lambda: dist.all_gather_into_tensor(whole, shard)),
        ("reducescatter", lambda: dist.reduce_scatter_tensor(shard, whole)),
    ):
        times = []
        for turn in range(rounds + 2):
            whole.fill_(1)
            shard.fill_(1)
            dist.barrier()
            synchronize(device)
            start = time.perf_counter()
            run()  # type: ignore[no-untyped-call]
            synchronize(device)
            if turn >= 2:  # the first two connect and warm up
                times.append((time.perf_counter() - start) * 1e6)
        yield {
            "collective": name,
            "bytes_per_rank": nbytes,
            "rounds": rounds,
            "p50_us": statistics.median(times),
            "min_us": min(times),
        }


def train(steps: int, device: torch.device) -> dict[str, Any]:
    """Train the byte GPT with FSDP2 as it comes; return its losses and the times of its steps."""
    gpu = device.type == "cuda"
    shape = Shape(context=256, width=512, heads=8) if gpu else Shape(context=32, width=64, blocks=2)
    rank, size = dist.get_rank(), 8 if gpu else 2
    text, _ = load()
    # The model makes tensors without naming a device.
    on_device = torch.device(device) if gpu else contextlib.nullcontext()
    torch.manual_seed(1)
    with on_device:
        model = GPT(shape)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, times = [], []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step * 1_009 + rank)
        tokens, following = (t.to(device) for t in batch(text, size, shape.context, generator))
        dist.barrier()
        synchronize(device)
        start = time.perf_counter()
        with on_device:
            loss = F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        synchronize(device)
        times.append(time.perf_counter() - start)
        everyone = torch.empty(dist.get_world_size(), device=device)
        dist.all_gather_into_tensor(everyone, loss.detach().reshape(1))
        losses.append(float(everyone.double().mean()))
    return {
        "steps": steps,
        "parameters": sum(p.numel() for p in model.parameters()),
        "losses": losses,
        "step_p50_s": statistics.median(times),
        "step_min_s": min(times),
    }


def emit(kind: str, **values: Any) -> None:
    """Print a record, on rank 0."""
    if dist.get_rank() == 0:
        print(json.dumps({"record": kind, **values}), flush=True)


def main() -> None:
    """Run all parts, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--store", required=True, help="a file that all ranks meet by; absent before")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--bytes", type=int, nargs="+", required=True)
    args = parser.parse_args()
    device = torch.device("cpu") if args.cpu else torch.device("cuda", 0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group(
        "gloo" if args.cpu else "nccl",
        init_method=f"file://{args.store}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=120),
        device_id=None if args.cpu else device,
    )
    if not args.cpu:
        torch.cuda.set_device(device)
        emit(
            "device",
            device=torch.cuda.get_device_name(device),
            nccl=".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
            cuda=torch.version.cuda,
        )
    emit("check", **check(device))
    for nbytes in args.bytes:
        for timing in measure(nbytes, args.rounds, device):
            emit("time", **timing)
    emit("train", **train(args.steps, device))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
