"""Scenarios of over_cuda.py: what stands on collectives trains as on the CPU."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import torch_mcast
from tests.over_cuda_rank import CUDA, EMULATED, RANK, SIZE

# A GPU's matrix products and GELU have other bits than the CPU's. There the reference is gloo, on CUDA
# tensors: by so much losses, norms and weights may differ, as sums of three ranks have another order.
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


class Reference:
    """Who trains what the backend's training on CUDA tensors must equal."""

    def __init__(self) -> None:
        self.device = "cpu" if EMULATED else "cuda"
        self.group: Any = dist.group.WORLD
        if not EMULATED:
            self.group = dist.new_group(list(range(SIZE)), backend="cpu:gloo,cuda:gloo")

    def equal(self, got: list[float], want: list[float], dtype: torch.dtype) -> bool | list[list[float]]:
        """Return whether it is equal, or what differs."""
        limit = 0.0 if EMULATED else LIMITS[dtype]
        near = (math.isclose(g, w, rel_tol=limit, abs_tol=limit) for g, w in zip(got, want, strict=True))
        return all(near) or [got, want]


def weights(model: nn.Module) -> list[float]:
    """Return this rank's, one after another."""
    own: list[Any] = [p.detach() for p in model.parameters()]
    local = [p.to_local() if hasattr(p, "to_local") else p for p in own]
    return [float(x) for p in local for x in p.flatten().tolist()]


def programs() -> dict[str, Any]:
    """What else stands on the collectives: DDP, functional collectives, objects, groups one after another."""
    reference = Reference()

    def train(where: str, group: Any) -> list[float]:
        torch.manual_seed(0)
        model: nn.Module = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).to(where)
        model = nn.parallel.DistributedDataParallel(model, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data, seen = torch.Generator().manual_seed(RANK), []
        for _ in range(4):
            x = torch.randn(8, 64, generator=data).to(where)
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen + weights(model)

    world: Any = dist.group.WORLD
    gathered: Any = torch.ops._c10d_functional.all_gather_into_tensor(
        torch.full((1000,), float(RANK), device=CUDA), SIZE, world.group_name
    )
    gathered = torch.ops._c10d_functional.wait_tensor(gathered)
    objects: list[Any] = [None] * SIZE
    dist.all_gather_object(objects, RANK)
    made = []
    for _ in range(2):
        group: Any = dist.new_group(list(range(SIZE)), backend="mcast")
        tensor = torch.ones(5, device=CUDA)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [float(SIZE)] * 5
        made.append(torch_mcast.stats(group).device_made)
        dist.destroy_process_group(group)
    got, want = train("cuda", None), train(reference.device, reference.group)
    return {
        "ddp": reference.equal(got, want, torch.float32),
        "functional": gathered[::1000].tolist(),
        "objects": objects,
        "another group made": made[1],
    }


def fsdp() -> dict[str, Any]:
    """Train with and without enable(), and compare losses, norms and weights."""
    reference = Reference()

    def train(where: str, group: Any, overlap: bool, dtype: torch.dtype) -> list[float]:
        torch.manual_seed(0)
        mesh = DeviceMesh.from_group(group, where)
        model = nn.Sequential(
            *(nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 48)) for _ in range(4))
        )
        model = model.to(where)
        policy = MixedPrecisionPolicy() if dtype == torch.float32 else MixedPrecisionPolicy(dtype, dtype)
        for block in model:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        handle = torch_mcast.fsdp.enable(model) if overlap else None
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        data = torch.Generator().manual_seed(100 + RANK)
        seen: list[float] = []
        for _ in range(4):
            x = torch.randn(8, 48, generator=data).to(where)
            loss = (model(x).float() - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            seen += [loss.item(), norm.full_tensor().item()]
        if handle is not None and dtype == torch.float32:
            assert not handle.blocked, handle  # else enable() has no part in it
        return seen + weights(model)

    equal = {}
    for dtype in (torch.float32, torch.bfloat16):
        want = train(reference.device, reference.group, False, dtype)
        for overlap in (False, True):
            got = train("cuda", dist.group.WORLD, overlap, dtype)
            equal[f"{dtype} {'enable()' if overlap else 'plain'}"] = reference.equal(got, want, dtype)
    return equal
