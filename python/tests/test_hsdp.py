"""FSDP2 on a mesh of two dimensions: shards within rows of ranks, replicas down its columns."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import torch_mcast.fsdp

from .values import ENABLE
from .world import World

pytestmark = ENABLE

SHAPE = (2, 2)  # replicas, shards


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 8))


def gradients(model: nn.Module) -> list[torch.Tensor]:
    """Return the gradients of this rank's inputs, whole ones, as of each parameter in turn."""
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(dist.get_rank()))
    model(x).pow(2).sum().backward()
    grads: list[Any] = [p.grad for p in model.parameters()]
    return [g.full_tensor() if hasattr(g, "full_tensor") else g for g in grads]


def shards_and_replicas() -> list[torch.Tensor]:
    """Return the gradients, which are those of plain data parallelism."""
    mesh = dist.device_mesh.init_device_mesh("cpu", SHAPE, mesh_dim_names=("replicate", "shard"))
    replicas, shards = mesh.get_group("replicate"), mesh.get_group("shard")
    found = []
    for overlapped in (False, True):
        model = layers()
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        handle = torch_mcast.fsdp.enable(model) if overlapped else None
        before = [torch_mcast.stats(group) for group in (replicas, shards)]
        found.append(gradients(model))
        replica, shard = (torch_mcast.stats(g) - b for g, b in zip((replicas, shards), before, strict=True))
        assert shard.reduce_ops == 2, "one Reduce-Scatter a module, among shards"
        assert replica.reduce_ops + replica.gather_ops >= 2, "one Allreduce a module, among replicas"
        if handle is not None:
            assert (handle.blocked, handle.deferred) == (2, 0)
            assert all("all-reduce over replicas" in reason for reason in handle.reasons.values())
    for plain, ours in zip(*found, strict=True):
        assert torch.equal(plain, ours), "the schedule changes no bit"
    single = gradients(layers())
    for mine, ours in zip(single, found[1], strict=True):
        dist.all_reduce(mine)
        torch.testing.assert_close(ours, mine / dist.get_world_size())
    return found[1]


def test_gradients_of_shards_and_replicas(world: World) -> None:
    first, *others = world.run(shards_and_replicas)
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            assert torch.equal(mine, theirs), "all ranks of all replicas have the same gradients"
