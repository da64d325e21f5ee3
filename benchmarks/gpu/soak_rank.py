"""One rank of soak.py: trains on CUDA tensors and on CPU tensors, and compares all bits.

soak_rank.py FIRST COUNT      with torchrun's variables

Rank 0 prints one line of JSON: the trainings out of FIRST, FIRST+1, ... that were not the same, and the
library's counters of all ranks.
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fsdp"))

import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import batch, load
from model import GPT, Shape
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch_mcast

SHAPE = Shape(context=8, width=32, heads=2, blocks=2)
STEPS = 2
BF16 = torch.bfloat16
# Weights, reduction. Seeds take them by turns, each with and without enable().
PRECISIONS = {
    "f32": MixedPrecisionPolicy(),
    "bf16": MixedPrecisionPolicy(BF16, BF16),
    "bf16, f32 reduction": MixedPrecisionPolicy(BF16, torch.float32),
}


def host(tensor: Any) -> torch.Tensor:
    """Return a copy on the host of a tensor, of a DTensor this rank's shard."""
    shard = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return torch.empty(shard.shape, dtype=shard.dtype).copy_(shard.detach())


def train(device: str, seed: int, text: torch.Tensor) -> list[torch.Tensor]:
    """Return losses and gradient norms of all steps, and the weights at the end."""
    precision = list(PRECISIONS.values())[seed // 2 % len(PRECISIONS)]
    # The model makes tensors without naming a device.
    on_device = torch.device(device) if device != "cpu" else contextlib.nullcontext()
    torch.manual_seed(seed)
    model = GPT(SHAPE).to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh, mp_policy=precision)
    if seed % 2:
        torch_mcast.fsdp.enable(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed((seed * 1_009 + step) * 1_009 + dist.get_rank())
        tokens, following = (t.to(device) for t in batch(text, 2, SHAPE.context, generator))
        with on_device, sdpa_kernel(SDPBackend.MATH):
            loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), following.flatten())
            loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seen += [host(loss), host(norm)]
    return seen + [host(p) for p in model.parameters()]


def alike(got: list[torch.Tensor], want: list[torch.Tensor]) -> bool:
    """Say whether all bits are the same, and numbers."""
    return all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def main() -> None:
    """Train, and print the result."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.cuda.set_device(0)
    dist.init_process_group("cpu:mcast,cuda:mcast", timeout=timedelta(seconds=120))
    text, _ = load()
    wrong = []
    for seed in range(first, first + count):
        ok = torch.tensor([alike(train("cuda", seed, text), train("cpu", seed, text))], dtype=torch.int32)
        dist.all_reduce(ok, op=dist.ReduceOp.MIN)
        if not ok.item():
            wrong.append(seed)
    stats = torch_mcast.stats()
    names = ("device_ops", "device_out_bytes", "chunks_injected", "switch_ops", "direct_ops")
    sums = torch.tensor([getattr(stats, name) for name in names])
    dist.all_reduce(sums)
    if dist.get_rank() == 0:
        info = torch_mcast.info()
        print(
            json.dumps(
                {
                    "wrong": wrong,
                    **dict(zip(names, sums.tolist(), strict=True)),
                    "device_made": stats.device_made,
                    "fabric": info.fabric,
                    "nodes": info.nodes,
                    "reduce_scatter": info.reduce_scatter,
                    "device": torch.cuda.get_device_name(0),
                    "torch": torch.__version__,
                }
            ),
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
