"""What stands on the groups in torch: compiled functional collectives, DTensor, checkpoints, torchcomms."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

import torch_mcast
from torch_mcast.group_in_python import TAKES_BACKENDS

from .values import ENABLE, FSDP_ON_CPU, distributed, impl
from .world import World


def compiled() -> tuple[int, int]:
    """Compile collectives into one graph; return how many collectives it has, and how many graphs."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.testing import CompileCounter

    calls: list[str] = []

    def note(graph: torch.fx.GraphModule, _: Any) -> Any:
        calls.extend(str(node.target) for node in graph.graph.nodes if "_c10d_functional" in str(node.target))
        return graph.forward

    name = distributed.group.WORLD.group_name
    x = torch.arange(8.0) + dist.get_rank()

    def program(x: torch.Tensor) -> Any:
        whole = functional.all_gather_tensor(x * 2, 0, name) + 1
        parts = functional.reduce_scatter_tensor(whole, "sum", 0, name)
        return functional.all_reduce(parts, "max", name) * 3

    counter = CompileCounter()
    fast = torch.compile(program, backend=aot_autograd(fw_compiler=note), fullgraph=True)
    assert torch.equal(fast(x), program(x))
    assert torch.equal(torch.compile(program, backend=counter, fullgraph=True)(x), program(x))
    torch._dynamo.reset()
    return sum("wait" not in call for call in calls), counter.frame_count


def test_functional_collectives_are_compiled_into_one_graph(world: World) -> None:
    assert world.run(compiled) == [(3, 1)] * 4


def redistributed() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    whole = torch.arange(48.0).reshape(8, 6)
    placed = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    assert placed.to_local().shape == (4, 3)
    assert torch.equal(placed.redistribute(mesh, [Replicate(), Replicate()]).to_local(), whole)
    assert torch.equal(placed.full_tensor(), whole)
    right = distribute_tensor(whole.t().contiguous(), mesh, [Replicate(), Shard(0)])
    product: Any = placed @ right
    assert isinstance(product.placements[1], Partial)
    torch.testing.assert_close(product.full_tensor(), whole @ whole.t())
    for name in ("rows", "columns"):
        assert dist.get_backend(mesh.get_group(name)) == "mcast"


def test_tensors_on_a_mesh(world: World) -> None:
    world.run(redistributed)


def sharded() -> None:
    """Train without enable(), on whole numbers: the sums are exact."""
    rank, size = dist.get_rank(), dist.get_world_size()
    plain = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    with torch.no_grad():
        for n, weight in enumerate(plain.parameters()):
            weight.copy_(torch.arange(float(weight.numel())).reshape(weight.shape) % (n + 3))
    model = copy.deepcopy(plain)
    mesh = init_device_mesh("cpu", (size,))
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    for network in (plain, model):
        network(torch.full((2, 8), float(rank + 1))).sum().backward()
    for weight, ours in zip(plain.parameters(), model.parameters(), strict=True):
        assert weight.grad is not None
        dist.all_reduce(weight.grad)
        whole: Any = ours.grad
        assert torch.equal(whole.full_tensor() * size, weight.grad)


@FSDP_ON_CPU
def test_fsdp2_without_enable(world: World) -> None:
    world.run(sharded)


def saved(folder: str) -> str:
    """Save a model beside its training, over a group of its own; return that group's settings."""
    background: Any = dist.new_group(backend="mcast", pg_options=torch_mcast.Options(class_="background"))
    torch.manual_seed(3)
    model = torch.nn.Linear(64, 64)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    torch_mcast.fsdp.enable(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = model.state_dict()
    at_save: dict[str, torch.Tensor] = {name: t.full_tensor().clone() for name, t in state.items()}
    future = distributed.checkpoint.async_save(
        {"model": state}, checkpoint_id=folder, process_group=background
    )
    for step in range(5):
        model(torch.full((4, 64), float(step + 1))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    future.result()
    assert torch_mcast.stats(background).gather_ops > 0
    assert not torch.equal(model.state_dict()["weight"].full_tensor(), at_save["weight"])
    into = {"model": model.state_dict()}
    distributed.checkpoint.load(into, checkpoint_id=folder, process_group=background)
    for name, want in at_save.items():
        assert torch.equal(into["model"][name].full_tensor(), want)
    said: str = impl(background, torch.device("cpu")).options.lines()
    dist.destroy_process_group(background)
    return said


@ENABLE
def test_a_checkpoint_is_saved_in_the_background(world: World, tmp_path: Any) -> None:
    assert world.run(saved, str(tmp_path)) == ["MCAST_CLASS=background"] * 4


def beside_torchcomms() -> None:
    """With torchcomms in use, which does not know our name, the group is ours all the same."""
    c10d, config = distributed.distributed_c10d, distributed.config
    before = c10d._TORCHCOMM_AVAILABLE, config.use_torchcomms
    c10d._TORCHCOMM_AVAILABLE, config.use_torchcomms = True, True
    try:
        group: Any = dist.new_group(backend="mcast")
    finally:
        c10d._TORCHCOMM_AVAILABLE, config.use_torchcomms = before
    assert torch_mcast.info(group).fabric == "shm"
    dist.barrier(group=group)
    dist.destroy_process_group(group)


@pytest.mark.skipif(not TAKES_BACKENDS, reason="before torch 2.14 torchcomms is asked for every group")
def test_torchcomms_leaves_our_groups_to_us(world: World) -> None:
    world.run(beside_torchcomms)
