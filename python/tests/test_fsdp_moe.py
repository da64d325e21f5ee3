"""Experts that are sharded over other ranks than the rest: the plain run's bits, and nothing waits in vain."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_common
from torch.distributed.tensor import Shard

import torch_mcast.fsdp
from torch_mcast.param_groups import groups_of

from .values import ENABLE
from .world import World

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "fsdp"))

import moe

pytestmark = ENABLE
BLOCKS, WIDTH, STEPS = 3, 16, 3
# In older torch a module has one group.
LAYOUTS = ["groups", "nested"] if hasattr(_fsdp_common, "ShardPlacementResult") else ["nested"]
CASES: dict[str, dict[str, Any]] = {
    "one ahead": {},
    "two ahead": {"prefetch": 2},
    "none ahead": {"prefetch": 0},
    "as torchtitan": {
        "precision": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        "factor": 1.0,
        "lists": True,
    },
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear, self.moe = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), moe.Moe(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.linear(x)
        out: torch.Tensor = x + self.moe(self.norm(x))
        return out


def build(layout: str, case: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    model: Any = nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 5))
    over = moe.meshes()
    moe.spread(model, over)
    options = {"mp_policy": case["precision"]} if "precision" in case else {}
    blocks = list(model)[:BLOCKS]
    for block in blocks:
        moe.shard(block, over, layout == "nested", **options)
    fully_shard(model, mesh=over.dense, **options)
    for module in model.modules():
        if "factor" in case and hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(case["factor"])
    if "lists" in case:
        for block, following in pairwise(blocks):
            block.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([block])
    return model


def train(layout: str, case: dict[str, Any], enabled: bool) -> tuple[list[torch.Tensor], Any]:
    """Return losses, gradients and weights of some steps, and the handle."""
    model = build(layout, case)
    handle = torch_mcast.fsdp.enable(model, prefetch=case.get("prefetch", 1)) if enabled else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    kept: list[torch.Tensor] = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        loss = model(torch.randn(2, 7, WIDTH, generator=generator)).float().pow(2).sum()
        loss.backward()
        kept.append(loss.detach())
        kept += [p.grad.to_local().clone() for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        kept += [p.detach().to_local().clone() for p in model.parameters()]
    return kept, handle


def equal_to_plain(layout: str, name: str) -> tuple[int, int, list[str]]:
    plain, _ = train(layout, CASES[name], False)
    ours, handle = train(layout, CASES[name], True)
    for a, b in zip(plain, ours, strict=True):
        assert torch.equal(a, b)
    return handle.deferred, handle.blocked, sorted(handle.reasons)


@pytest.fixture(scope="module", params=[(2, "shm"), (2, "udp"), (4, "shm"), (4, "udp")], ids=str)
def ranks(request: pytest.FixtureRequest) -> Iterator[World]:
    size, fabric = request.param
    ranks = World(size, MCAST_FABRIC=fabric)
    yield ranks
    ranks.close()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_results_are_those_of_the_plain_run(ranks: World, layout: str, name: str) -> None:
    # Of two ranks each has its own experts: nothing is to be reduced.
    reduced = STEPS * (BLOCKS * (2 if ranks.size > moe.EP else 1) + 1)
    for deferred, blocked, reasons in ranks.run(equal_to_plain, layout, name):
        assert deferred == reduced
        if ranks.size > moe.EP or "groups" in LAYOUTS:
            assert (blocked, reasons) == (0, [])
        else:  # older torch calls a Reduce-Scatter of one rank
            assert (blocked, reasons) in ((0, []), (STEPS * BLOCKS, [f"{i}.moe.experts" for i in range(BLOCKS)]))


def both(block: int) -> list[str]:
    return [str(block), f"{block} experts"] if 0 <= block < BLOCKS else []


def gathers_ahead(layout: str) -> dict[str, list[str]]:
    """Return whose weights have been gathered, or are being, where a block begins and its experts end."""
    model = build(layout, {})
    torch_mcast.fsdp.enable(model)
    seen: dict[str, list[str]] = {}
    groups: dict[str, Any] = {}
    for i in range(BLOCKS):
        of = groups_of(model[i]._get_fsdp_state())
        of += groups_of(model[i].moe.experts._get_fsdp_state()) if layout == "nested" else []
        groups.update(zip(both(i), of, strict=True))

    def look(when: str) -> None:
        seen[when] = [n for n, g in groups.items() if g._all_gather_result is not None or g.is_unsharded]

    for i in range(BLOCKS):
        model[i].register_forward_pre_hook(lambda _, __, i=i: look(f"forward {i}"))
        model[i].moe.experts.register_full_backward_hook(lambda _, __, ___, i=i: look(f"backward {i}"))
    model(torch.ones(2, 3, WIDTH)).sum().backward()
    look("end")
    return seen


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_module_gathers_for_all_groups_of_the_next(world: World, layout: str) -> None:
    for seen in world.run(gathers_ahead, layout):
        assert seen["end"] == []
        for i in range(BLOCKS):
            # A block comes before the experts within it, in the backward as well.
            following, before = (both(i + 1), both(i - 1)) if layout == "groups" else ([], both(i - 1)[:1])
            assert seen[f"forward {i}"] == both(i) + following
            assert seen[f"backward {i}"] == before + both(i)


def names(layout: str) -> tuple[list[str], list[str]]:
    model = build(layout, {})
    handle = torch_mcast.fsdp.enable(model, defer_reduce_scatter=False)
    handle.timeline.start()
    model(torch.ones(2, 3, WIDTH)).sum().backward()
    handle.timeline.stop()
    return sorted(handle.reasons), sorted({layer.module for layer in handle.explain().layers})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_groups_have_names_of_their_own(world: World, layout: str) -> None:
    wanted = sorted(["", *"012", *(f"{i}.moe.experts" for i in range(BLOCKS))])
    for said in world.run(names, layout):
        assert said == (wanted, wanted)


def of_one_module() -> list[str]:
    pair = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    over = moe.meshes()
    weights = {part.weight for part in pair}
    sparse = _fsdp_common.ShardPlacementResult(Shard(0), _fsdp_common.FSDPMeshInfo(over.sparse["efsdp"], 0))
    fully_shard(list(pair), mesh=over.dense, shard_placement_fn=lambda p: sparse if p in weights else None)
    fully_shard(pair, mesh=over.dense)
    handle = torch_mcast.fsdp.enable(pair[0], defer_reduce_scatter=False)
    pair(torch.ones(2, 8)).sum().backward()
    return sorted(handle.reasons)


@pytest.mark.skipif("groups" not in LAYOUTS, reason="in older torch a module has one group")
def test_groups_of_one_module_have_names_too(world: World) -> None:
    assert world.run(of_one_module) == [["", "#2"]] * world.size
