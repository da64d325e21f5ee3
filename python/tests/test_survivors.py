"""A job that lost a rank goes on with the others, and trains what three ranks from that step on would."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
import torch.distributed as dist

import torch_mcast

from .limits import LIMIT
from .values import distributed
from .world import World

STEPS, LOST, DIES_AT = 8, 2, 4


def data(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(6, 5, generator=generator), torch.randn(6, 3, generator=generator)


def model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(7)
    made = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    return made, torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)


def gradients(of: torch.nn.Module, rank: int, step: int) -> list[torch.Tensor]:
    x, y = data(rank, step)
    return list(torch.autograd.grad(torch.nn.functional.mse_loss(of(x), y), list(of.parameters())))


def apply(of: torch.nn.Module, by: torch.optim.Optimizer, mean: list[torch.Tensor]) -> None:
    for parameter, gradient in zip(of.parameters(), mean, strict=True):
        parameter.grad = gradient
    by.step()


def expected() -> list[list[float]]:
    """Train in one process: with the data of all ranks, then without those of the one that is lost."""
    trained, optimizer = model()
    for step in range(STEPS):
        ranks = [r for r in range(4) if r != LOST or step < DIES_AT]
        each = [gradients(trained, rank, step) for rank in ranks]
        apply(trained, optimizer, [torch.stack(g).mean(0) for g in zip(*each, strict=True)])
    return [p.flatten().tolist() for p in trained.parameters()]


def shrunk() -> Any:
    return distributed.shrink_group([LOST])


def made_anew() -> Any:
    """Give the old group up and meet the others under another name of the store, as torchft does."""
    rank = dist.get_rank()
    store = distributed.PrefixStore("without the lost", distributed.distributed_c10d._get_default_store())
    distributed.distributed_c10d._abort_process_group()
    ranks = [r for r in range(4) if r != LOST]
    dist.init_process_group(
        "mcast",
        store=store,
        rank=ranks.index(rank),
        world_size=len(ranks),
        timeout=LIMIT,
    )
    return dist.group.WORLD


def trains(again: Any) -> list[list[float]]:
    me = dist.get_rank()  # the number of its data, even if the rank's own number changes
    trained, optimizer = model()
    group = dist.group.WORLD
    step = 0
    store = distributed.distributed_c10d._get_default_store()
    while step < STEPS:
        if step == DIES_AT and me == LOST:
            store.wait([f"trained {r}" for r in range(4) if r != LOST])
            os.kill(os.getpid(), signal.SIGKILL)
        mean = gradients(trained, me, step)
        try:
            for gradient in mean:
                dist.all_reduce(gradient, op=dist.ReduceOp.AVG, group=group)
        except torch_mcast.RankError as e:
            if (step, e.rank) != (DIES_AT, LOST):
                raise
            group = again()
            assert dist.get_world_size(group) == 3
            continue  # the step again: no parameter has been touched
        apply(trained, optimizer, mean)
        step += 1
        if step == DIES_AT:
            store.set(f"trained {me}", "")  # who dies takes an operation from those who are still in it
    return [p.flatten().tolist() for p in trained.parameters()]


@pytest.mark.parametrize("again", [shrunk, pytest.param(made_anew, marks=pytest.mark.more)])
def test_the_others_train_on(again: Any) -> None:
    world = World(4, MCAST_FABRIC="udp")
    survivors = [r for r in range(4) if r != LOST]
    try:
        world.start(trains, again)
        results = world.collect(survivors)
    finally:
        world.close()
    want = [torch.tensor(p) for p in expected()]
    for got in results:
        assert got == results[0]
        for parameter, reference in zip(got, want, strict=True):
            torch.testing.assert_close(torch.tensor(parameter), reference)
