"""A gather ahead is a guess: where it was wrong, nothing is computed with the gathered weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import torch_mcast.fsdp
from torch_mcast.param_groups import groups_of

from .guesses import (
    SITUATIONS,
    called_more_often_on_a_rank,
    evaluation_leaves_out,
    part_by_itself_trained,
    pipeline,
    training_leaves_out,
    trial_and_load,
)
from .situations import BLOCKS, Net, batch, build, differ, trained
from .world import World


def all_differences(prefetch: int) -> dict[str, str]:
    found = {situation.__name__: differ(situation, prefetch=prefetch) for situation in SITUATIONS}
    return {name: said for name, said in found.items() if said}


@pytest.mark.parametrize("prefetch", [1, 3])
def test_nothing_is_computed_with_what_was_gathered_in_vain(world: World, prefetch: int) -> None:
    for differences in world.run(all_differences, prefetch):
        assert not differences


def all_differences_without_a_root() -> dict[str, str]:
    situations = [
        trial_and_load,
        evaluation_leaves_out,
        training_leaves_out,
        part_by_itself_trained,
        pipeline,
    ]
    found = {situation.__name__: differ(situation, root=False) for situation in situations}
    return {name: said for name, said in found.items() if said}


def test_a_model_that_is_no_root_itself_is_trained(world: World) -> None:
    for differences in world.run(all_differences_without_a_root):
        assert not differences


def all_differences_in_a_part(around: bool) -> dict[str, str]:
    situations = [s for s in SITUATIONS if s is not called_more_often_on_a_rank]  # plain FSDP2 gathers there
    found = {situation.__name__: differ(situation, prefetch=2, around=around) for situation in situations}
    return {name: said for name, said in found.items() if said}


@pytest.mark.parametrize("sharded", [True, False])
def test_a_part_of_a_model_is_enabled_alone(world: World, sharded: bool) -> None:
    for differences in world.run(all_differences_in_a_part, sharded):
        assert not differences


def ahead_of(module: Any, way: str = "ahead") -> list[Any]:
    """Return the groups that a module gathers ahead in its forward, or in its backward ("behind")."""
    guess = vars(groups_of(module._get_fsdp_state())[-1]).get("unshard")
    return [one._group for one in getattr(guess, way)] if guess else []


def enabled_again() -> None:
    net = build(True, prefetch=2)
    groups = [group for block in net.blocks for group in groups_of(block._get_fsdp_state())]
    assert len(ahead_of(net.blocks[0])) == 2
    torch_mcast.fsdp.enable(net, prefetch=1)
    assert len(ahead_of(net.blocks[0])) == 1
    torch_mcast.fsdp.enable(net, prefetch=False)
    assert ahead_of(net.blocks[0]) == []
    assert not any(group.unshard_async_op for group in groups)
    assert not any(name in vars(group) for group in groups for name in ("pre_forward", "_backward_prefetch"))
    trained(net)


def test_another_enable_takes_the_place_of_the_first(world: World) -> None:
    world.run(enabled_again)


def lists_where_modules_share_a_group() -> dict[str, list[str]]:
    """Return which blocks, by number, the last group of two modules gathers for, and which the last block."""
    torch.manual_seed(0)
    net = Net()
    norm = nn.LayerNorm(8)
    model: Any = nn.Sequential(*net.blocks, norm, net.head)
    for block in net.blocks:
        fully_shard(block)
    fully_shard([norm, net.head], reshard_after_forward=False)
    fully_shard(model)
    handle = torch_mcast.fsdp.enable(model, defer_reduce_scatter=False)
    model(batch()).sum().backward()
    names = {
        id(group): name for name, m in model.named_children() for group in groups_of(m._get_fsdp_state())
    }
    return {
        "forward of the group": [names[id(g)] for g in ahead_of(net.head)],
        "backward of the group": [names[id(g)] for g in ahead_of(net.head, "behind")],
        "forward of the last block": [names[id(g)] for g in ahead_of(net.blocks[-1])],
        "blocked": sorted(handle.reasons),
    }


def test_modules_that_share_a_group_are_gathered_once(world: World) -> None:
    for lists in world.run(lists_where_modules_share_a_group):
        assert lists == {
            "forward of the group": [],
            "backward of the group": ["3"],
            "forward of the last block": ["5"],  # its last name
            "blocked": ["0", "1", "2", "3", "4, 5"],
        }


def gathers_of_a_step(enabled: bool, reentrant: bool | None) -> int:
    net = build(enabled)
    for _ in range(2):  # the second is counted
        dist.barrier()
        before = torch_mcast.stats().gather_ops
        net(batch().requires_grad_(), reentrant=reentrant).sum().backward()
        net.zero_grad()
        dist.barrier()
    return int(torch_mcast.stats().gather_ops - before - 1)


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_no_gather_of_a_step_as_foreseen_is_in_vain(world: World, reentrant: bool | None) -> None:
    plain = world.run(gathers_of_a_step, False, reentrant)
    assert plain == [2 * BLOCKS + 1] * world.size  # the root, which was not freed, once
    assert world.run(gathers_of_a_step, True, reentrant) == plain
