"""all_reduce over the backend, and what torch builds on it."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from torch_mcast import errors

from .values import FSDP_ON_CPU, group_of, numbers, reduced, reductions, same_bytes
from .world import World

distributed: Any = dist  # with its private names


def allreduces(fabric: str, size: int) -> None:
    group = group_of(fabric, size)
    rank = dist.get_rank()
    if rank >= size:
        return
    for dtype, op, passed, n in reductions():
        inputs = [numbers(n, dtype, r) for r in range(size)]
        want = reduced(op, dtype, inputs, 0.5)
        t = inputs[rank].clone()
        dist.all_reduce(t, op=passed, group=group)
        assert same_bytes(t, want), (dtype, op, n)
    strided = torch.arange(24.0).view(4, 6).t()[::2]
    work = dist.all_reduce(strided, group=group, async_op=True)
    assert work is not None
    result = work.get_future().wait()[0]
    assert torch.equal(strided, size * torch.arange(24.0).view(4, 6).t()[::2])
    assert torch.equal(result, strided)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_allreduces_of_every_type_and_operation(world: World, fabric: str, size: int) -> None:
    world.run(allreduces, fabric, size)


@functools.cache
def gloo_group() -> Any:
    return dist.new_group(backend="gloo")


def like_gloo(fabric: str) -> None:
    group, gloo = group_of(fabric, 4), gloo_group()
    torch.manual_seed(dist.get_rank())
    for n in (1, 1001, 70_001, 1_500_001):
        t = torch.randn(n)
        want = t.clone()
        dist.all_reduce(want, group=gloo)
        dist.all_reduce(t, group=group)
        torch.testing.assert_close(t, want, rtol=1e-5, atol=1e-5)
        everywhere = [torch.zeros(n) for _ in range(4)]
        dist.all_gather(everywhere, t, group=gloo)
        assert all(torch.equal(each, t) for each in everywhere)  # the same bits on all ranks
    for dtype in (torch.complex64, torch.bool):
        t = torch.ones(3, dtype=dtype)
        dist.all_reduce(t, group=group, op=dist.ReduceOp.SUM if dtype.is_complex else dist.ReduceOp.MAX)
        assert t.tolist() == [4 if dtype.is_complex else True] * 3
    with pytest.raises(errors.UnsupportedError, match="fnuz has no such reduction: want one of"):
        dist.all_reduce(torch.zeros(4).to(torch.float8_e4m3fnuz), group=group)
    with c10d._coalescing_manager(group=group):
        many = [torch.full((n,), float(n)) for n in (3, 70)]
        for t in many:
            dist.all_reduce(t, group=group)
    assert [t.tolist() for t in many] == [[12.0] * 3, [280.0] * 70]


def test_allreduces_are_like_gloos(world: World, fabric: str) -> None:
    world.run(like_gloo, fabric)


def full_queues(fabric: str) -> None:
    group = group_of(fabric, 4)
    ones = [torch.ones(64) for _ in range(1300)]  # more than the library holds
    works: list[Any] = []
    for i, t in enumerate(ones):
        works.append(dist.all_reduce(t, group=group, async_op=True))
        if i % 3 == 0:
            works.append(dist.all_gather_into_tensor(torch.zeros(8), torch.ones(2), group, async_op=True))
        if i % 5 == 0:
            shard = torch.zeros(2)
            works.append(dist.reduce_scatter_tensor(shard, torch.ones(8), group=group, async_op=True))
    for work in works:
        work.wait()
    assert all(t.tolist() == [4.0] * 64 for t in ones)


def test_allreduces_beside_others_fill_the_queues(world: World, fabric: str) -> None:
    world.run(full_queues, fabric)


def data_parallel(fabric: str) -> None:
    from torch.nn.parallel import DistributedDataParallel

    group, rank = group_of(fabric, 4), dist.get_rank()
    torch.manual_seed(7)
    inputs = torch.randn(4, 16, 40)
    model = torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.Tanh(), torch.nn.Linear(300, 7))
    alone = [p.detach().clone().requires_grad_() for p in model.parameters()]
    parallel = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.01)
    for _ in range(3):
        model.zero_grad()
        parallel(inputs[rank]).square().sum().backward()
    torch.func.functional_call(
        model, dict(zip(dict(model.named_parameters()), alone, strict=True)), inputs.view(-1, 40)
    ).square().sum().div(4).backward()
    for p, q in zip(model.parameters(), alone, strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)


def test_distributed_data_parallel(world: World, fabric: str) -> None:
    world.run(data_parallel, fabric)


def clipped() -> None:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = torch.nn.Linear(33, 17)
    alone = torch.nn.Linear(33, 17)
    alone.load_state_dict(model.state_dict())
    fully_shard(model)
    for m in (model, alone):
        m(torch.ones(5, 33)).square().sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    want = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
    total: Any = norm
    torch.testing.assert_close(total.full_tensor(), want)  # an all_reduce
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        grad: Any = p.grad
        torch.testing.assert_close(grad.full_tensor(), q.grad)


@FSDP_ON_CPU
def test_gradient_norms_are_clipped_over_all_ranks(world: World) -> None:
    world.run(clipped)
