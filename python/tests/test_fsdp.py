"""The overlapped schedule must give the gradients of the plain one, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

import torch_mcast.fsdp
from torch_mcast.param_groups import param_groups

from .values import ENABLE
from .world import World

pytestmark = ENABLE

BF16 = torch.bfloat16
CASES: dict[str, dict[str, Any]] = {
    "f32": {},
    "accumulated": {"accumulate": 2},
    "accumulated without communication": {"accumulate": 2, "no_sync": True},
    "bf16 parameters": {"precision": MixedPrecisionPolicy(param_dtype=BF16)},
    "all bf16": {"dtype": BF16},
    "bf16 parameters and reduction": {"precision": MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=BF16)},
    "bf16 reduction": {"precision": MixedPrecisionPolicy(reduce_dtype=BF16)},
    "f64": {"dtype": torch.float64},
    "divide factor": {"factor": 3.0},
    "checkpointed": {"checkpoint": True},
    "two forwards": {"twice": True},
    "three ahead": {"prefetch": 3},
    "validated": {"validate": True, "prefetch": 2},
    "hooked": {"hook": True},
    "offloaded": {"offload": True},
}
DEFERRED = {
    "f32",
    "all bf16",
    "divide factor",
    "bf16 parameters",
    "checkpointed",
    "accumulated without communication",
    "two forwards",
    "three ahead",
    "validated",
}
REASONS = {
    "accumulated": "gradient accumulation",
    "bf16 parameters and reduction": "cast from torch.bfloat16 to torch.float32",
    "bf16 reduction": "cast from torch.bfloat16 to torch.float32",
    "f64": "divided afterwards",
    "hooked": "post-accumulate-grad hook",
    "offloaded": "CPU offload",
}
if torch.__version__ < "2.15":  # which reduces in the dtype of the parameters where none is said
    DEFERRED.remove("bf16 parameters")
    REASONS["bf16 parameters"] = "cast from torch.bfloat16 to torch.float32"


class Part(nn.Module):
    def __init__(self, width: int, checkpointed: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width, bias=False)
        self.checkpointed = checkpointed

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(nn.functional.gelu(self.up(x)))
        return out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.checkpointed:
            out: torch.Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return out
        return self.inner(x)


def local(tensor: Any) -> torch.Tensor:
    """Return a copy of this rank's shard of a DTensor."""
    shard: torch.Tensor = tensor.to_local().detach().clone()
    return shard


def train(case: dict[str, Any], defer: Any) -> tuple[list[torch.Tensor], Any]:
    """Return every gradient after clipping and every weight of three steps, and the handle."""
    torch.manual_seed(0)
    dtype = case.get("dtype", torch.float32)
    model = nn.Sequential(*(Part(17, case.get("checkpoint", False)) for _ in range(3)), nn.Linear(17, 5)).to(
        dtype
    )
    options: dict[str, Any] = {"mp_policy": case["precision"]} if "precision" in case else {}
    if case.get("offload"):
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    for part in list(model)[:3]:
        fully_shard(part, **options)
    root: Any = fully_shard(model, **options)
    if "factor" in case:
        for module in [root, *list(model)[:3]]:
            module.set_gradient_divide_factor(case["factor"])
    handle = None
    if defer is not None:
        ahead = case.get("prefetch", True)
        handle = torch_mcast.fsdp.enable(model, prefetch=ahead, defer_reduce_scatter=defer)
    seen: list[torch.Tensor] = []
    if case.get("hook"):
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(lambda p: seen.append(local(p.grad)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    kept: list[torch.Tensor] = []
    turns = case.get("accumulate", 1)
    for step in range(3):
        for turn in range(turns):
            if case.get("no_sync"):
                root.set_requires_gradient_sync(turn == turns - 1)
            generator = torch.Generator().manual_seed(97 * step + 7 * turn + dist.get_rank())
            x = torch.randn(6, 17, generator=generator, dtype=dtype)
            if case.get("twice"):
                loss = model(x).pow(2).sum()
                loss = loss + model(x * 2).pow(2).sum()
            else:
                loss = model(x).float().pow(2).sum()
            loss.backward()
            kept += [local(p.grad) for p in model.parameters() if p.grad is not None]
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        kept += [local(p.grad) for p in model.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
        kept += [local(p) for p in model.parameters()]
        if case.get("validate"):
            with torch.no_grad():
                kept.append(model(torch.ones(2, 17)))
    return kept + seen, handle


def equal_to_plain(name: str) -> dict[str, Any]:
    case = CASES[name]
    plain, _ = train(case, None)
    blocking, _ = train(case, False)
    overlapped, handle = train(case, "auto")
    assert len(plain) == len(overlapped) > 0
    for a, b, c in zip(plain, blocking, overlapped, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    return {"deferred": handle.deferred, "blocked": handle.blocked, "reasons": handle.reasons}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_plain_run(world: World, name: str) -> None:
    for result in world.run(equal_to_plain, name):
        if name in DEFERRED:
            assert result["deferred"] > 0
            assert result["blocked"] == 0, result["reasons"]
        else:
            assert result["blocked"] > 0
            assert any(REASONS[name] in reason for reason in result["reasons"].values()), result["reasons"]


def refusals() -> None:
    with pytest.raises(ValueError, match="no FSDP module"):
        torch_mcast.fsdp.enable(nn.Linear(2, 2))
    model: Any = fully_shard(nn.Linear(4, 4))
    wrong: Any = "no"
    prefetch: Any
    group: Any
    other: Any
    for prefetch in (-1, 1.5, "2", None):
        with pytest.raises(ValueError, match=f"prefetch={prefetch!r}: it must be"):
            torch_mcast.fsdp.enable(model, prefetch=prefetch)
    for group in ("mcast", 3):
        with pytest.raises(TypeError, match=f"group={group!r}: it must be a process group"):
            torch_mcast.fsdp.enable(model, group=group)
    sgd = torch.optim.SGD(model.parameters())
    for other, name in ((None, "NoneType"), ([model], "list"), (sgd, "SGD")):
        with pytest.raises(TypeError, match=f"takes the model, and got {name}: "):
            torch_mcast.fsdp.enable(other)
    with pytest.raises(ValueError, match=r"DistributedDataParallel has no FSDP module.*FSDP1"):
        torch_mcast.fsdp.enable(nn.parallel.DistributedDataParallel(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="defer_reduce_scatter='no'"):
        torch_mcast.fsdp.enable(model, defer_reduce_scatter=wrong)
    torch_mcast.fsdp.enable(model, defer_reduce_scatter=True)
    model(torch.ones(1, 4)).sum().backward()
    accumulated = model(torch.ones(1, 4)).sum()
    with pytest.raises(RuntimeError, match="cannot be deferred: gradient accumulation"):
        accumulated.backward()


def test_what_cannot_be_done_is_refused(world: World) -> None:
    world.run(refusals)


def gathers_ahead() -> dict[str, list[int]]:
    """Return which parts have been gathered, or are being, when the forward of each begins."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(*(Part(8, False) for _ in range(4)))
    for part in model:
        fully_shard(part)
    fully_shard(model)
    torch_mcast.fsdp.enable(model, prefetch=2)
    seen: dict[str, list[int]] = {}

    def look(when: str) -> None:
        groups = [param_groups(part)[0] for part in model]
        seen[when] = [i for i, g in enumerate(groups) if g._all_gather_result is not None or g.is_unsharded]

    for i, part in enumerate(model):
        part.register_forward_pre_hook(lambda _, __, i=i: look(f"forward {i}"))
    x = torch.ones(2, 8)
    with torch.no_grad():
        model(x)
    look("end of no backward")
    loss = model(x).sum()
    look("begin of backward")
    loss.backward()
    look("end of backward")
    return seen


def test_gathers_as_far_ahead_as_asked(world: World) -> None:
    for seen in world.run(gathers_ahead):
        assert seen == {
            "forward 0": [0, 1, 2],
            "forward 1": [1, 2, 3],
            "forward 2": [2, 3],
            "forward 3": [3],  # and nothing for a backward: weights may change before it
            "end of no backward": [],
            "begin of backward": [],
            "end of backward": [],
        }


def drains_after_an_error() -> None:
    """A backward that raises half-way leaves Reduce-Scatters in flight, for the next one to wait for."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Part(8, False) for _ in range(3)))
    for part in model:
        fully_shard(part)
    fully_shard(model)
    handle = torch_mcast.fsdp.enable(model)

    def fail(_: torch.Tensor) -> None:
        raise KeyError("on purpose")

    x = torch.ones(2, 8, requires_grad=True)
    x.register_hook(fail)
    with pytest.raises(KeyError, match="on purpose"):
        model(x).sum().backward()
    handle.drain()
    assert handle._pending == []


def test_a_failed_backward_can_be_drained(world: World) -> None:
    world.run(drains_after_an_error)


def over_another_group() -> None:
    group: Any = dist.new_group(backend="mcast")
    model = nn.Linear(8, 8)
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (4,)))
    handle = torch_mcast.fsdp.enable(model, group=group)
    before = torch_mcast.stats(group)
    handle.timeline.start()
    model(torch.ones(2, 8)).sum().backward()
    summary = handle.timeline.stop()
    delta = torch_mcast.stats(group) - before
    assert (delta.gather_ops, delta.reduce_ops) == (1, 1)
    assert {e.kind for e in handle.timeline.events} == {"allgather", "reduce_scatter"}
    assert summary.span >= summary.exposed_allgather > 0
    small: Any = dist.new_group([0, 1], backend="mcast")
    if dist.get_rank() < 2:
        with pytest.raises(ValueError, match=r"ranks \[0, 1\], FSDP shards over \[0, 1, 2, 3\]"):
            torch_mcast.fsdp.enable(model, group=small)


def test_another_group_of_the_same_ranks(world: World) -> None:
    world.run(over_another_group)


def over_two_groups() -> None:
    groups = torch_mcast.nccl.Groups(dist.new_group(backend="mcast"), dist.new_group(backend="mcast"))  # type: ignore[arg-type]
    model = nn.Linear(8, 8)
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (4,)))
    handle = torch_mcast.fsdp.enable(model, group=groups)
    assert (handle.groups, handle.why_serial) == (groups, "")
    before = [torch_mcast.stats(group) for group in groups]
    model(torch.ones(2, 8)).sum().backward()
    gather, reduce = (torch_mcast.stats(g) - b for g, b in zip(groups, before, strict=True))
    assert (gather.gather_ops, gather.reduce_ops) == (1, 0)
    assert (reduce.gather_ops, reduce.reduce_ops) == (0, 1)
    without = torch_mcast.fsdp.enable(model)
    assert (without.groups, without.why_serial) == (None, "")


def test_a_group_for_each_of_the_two(world: World) -> None:
    world.run(over_two_groups)


def gathers_in_a_step(bare_root: bool) -> int:
    """Return the Allgathers of a step of three blocks, below a root with or without parameters of its own."""
    torch.manual_seed(5)
    blocks = [nn.Linear(8, 8) for _ in range(3)]
    model: Any = nn.Sequential(*blocks) if bare_root else nn.Sequential(*blocks, nn.Linear(8, 8))
    for block in blocks:
        fully_shard(block)
    fully_shard(model)
    torch_mcast.fsdp.enable(model)
    count = 0
    for _ in range(2):  # the second is what repeats
        before = torch_mcast.stats().gather_ops
        model(torch.ones(2, 8)).sum().backward()
        dist.barrier()
        count = torch_mcast.stats().gather_ops - before
    return count


@pytest.mark.parametrize("bare_root", [True, False])
def test_each_module_is_gathered_once_a_pass(world: World, bare_root: bool) -> None:
    """All in the forward, all but the root, which was not freed, in the backward; and the barrier."""
    for gathers in world.run(gathers_in_a_step, bare_root):
        assert gathers == (6 if bare_root else 7) + 1
