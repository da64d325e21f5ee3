"""Ranks of test_fsdp_device.py: each is a process with CUDA tensors, and prints one line of JSON.

over_fsdp_cuda.py SCENARIO,...      with torchrun's variables
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard

import torch_mcast
from tests.limits import LIMIT, until
from torch_mcast import errors
from torch_mcast.param_groups import groups_of

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CUDA = torch.device("cuda", 0)
BF16 = torch.bfloat16
LATE_S = 0.6  # rank 1's operations begin so much later than rank 0 has gone on: a GPU needs no luck
BIG = 6 << 18  # floats a rank: more pieces than there are slots, so that the last is read when rank 1 comes
SCENARIOS: dict[str, Callable[[], Any]] = {}


def scenario(f: Callable[[], Any]) -> Callable[[], Any]:
    SCENARIOS[f.__name__] = f
    return f


def host(tensor: Any) -> torch.Tensor:
    """Return a copy on the host of a tensor, of a DTensor this rank's shard."""
    shard = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return torch.empty(shard.shape, dtype=shard.dtype).copy_(shard.detach())


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) > 0 and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class Late(nn.Module):
    """Passes tensors on; its backward comes late on rank 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def hook(_: torch.Tensor) -> None:
            if RANK == 1:
                torch.cuda.synchronize()
                time.sleep(LATE_S)

        if x.requires_grad:
            x.register_hook(hook)
        return x


class Big(nn.Module):
    """Adds a weight of SIZE * BIG floats; each row of its gradient is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE * BIG // 1024, 1024))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + (self.weight * x).mean(0)


def gradients(where: str, hooked: bool) -> tuple[list[torch.Tensor], Any]:
    """Train Big, a small module and Big, with backwards in that order; return all gradients."""
    mesh = init_device_mesh(where, (SIZE,))
    model = nn.Sequential(Big(), nn.Linear(1024, 1024), Late(), Big()).to(where)
    for module in (model[0], model[1], model[3]):
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    handle = torch_mcast.fsdp.enable(model)
    if hooked:
        for parameter in model[1].parameters():
            parameter.register_post_accumulate_grad_hook(lambda p: None)
    x = torch.arange(1024.0).to(where).requires_grad_() / 1024 + RANK
    model(x).square().sum().backward()
    return [host(p.grad) for p in model.parameters()], handle


@scenario
def mixed() -> dict[str, bool]:
    """One module's Reduce-Scatter is slow, and the next module's is not left in flight on a CPU."""
    torch.manual_seed(0)
    state = torch.get_rng_state()
    answers = {}
    for hooked in (False, True):
        torch.set_rng_state(state)
        got, handle = gradients("cuda", hooked)
        torch.set_rng_state(state)
        want, _ = gradients("cpu", hooked)
        answers[f"hooked {hooked}"] = equal(got, want) and handle.blocked == 0 and not handle.reasons
    return answers


@scenario
def memory() -> dict[str, int]:
    """How many MiB a backward of 6 modules holds at most, where the other rank comes late."""
    most = {}
    buffers = hasattr(FSDPModule, "set_reduce_scatter_max_input_buffers")
    for way in ("plain", "enable()", *(["3 buffers"] if buffers else [])):
        gc.collect()
        mesh = init_device_mesh("cuda", (SIZE,))
        model: Any = nn.Sequential(*(Big() for _ in range(6))).to("cuda")
        for module in model:
            fully_shard(module, mesh=mesh, reshard_after_forward=False)
        fully_shard(model, mesh=mesh)
        if way != "plain":
            torch_mcast.fsdp.enable(model)
        if way == "3 buffers":
            model.set_reduce_scatter_max_input_buffers(3)
        loss = model(torch.ones(1024, device=CUDA, requires_grad=True)).sum()
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        if RANK == 1:
            time.sleep(LATE_S)
        loss.backward()
        torch.cuda.synchronize()
        most[way] = (torch.cuda.max_memory_allocated() - before) >> 20
        del loss, model, module
    return most


@scenario
def temporaries() -> dict[str, bool]:
    """Memory of the library's own, allocated on one stream and waited for on another, is nobody else's."""
    answers: dict[str, bool] = {}
    kept: list[torch.Tensor] = []
    side = torch.cuda.Stream()
    mine = (torch.arange(float(BIG)) + RANK).to(CUDA)  # kept: the program minds the streams of its tensors
    theirs = torch.stack([torch.arange(float(BIG)) + r for r in range(SIZE)])

    def strided(t: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*t.shape, 2, device=CUDA)[..., 0].copy_(t)

    def gather() -> tuple[Any, torch.Tensor, torch.Tensor]:
        out = strided(torch.zeros(SIZE, BIG))
        return dist.all_gather_into_tensor(out, mine, async_op=True), out, theirs

    def gather_list() -> tuple[Any, torch.Tensor, torch.Tensor]:
        outs = torch.zeros(SIZE, BIG + 1, device=CUDA)
        return dist.all_gather([o[:BIG] for o in outs], mine, async_op=True), outs[:, :BIG], theirs

    def reduce() -> tuple[Any, torch.Tensor, torch.Tensor]:
        out, given = torch.zeros(BIG, device=CUDA), strided(theirs)
        kept.append(given)
        return dist.reduce_scatter_tensor(out, given, async_op=True), out, theirs[RANK] * SIZE

    def reduce_list() -> tuple[Any, torch.Tensor, torch.Tensor]:
        out, given = torch.zeros(BIG, device=CUDA), strided(theirs)
        kept.append(given)
        return dist.reduce_scatter(out, list(given), async_op=True), out, theirs[RANK] * SIZE

    def all_reduce() -> tuple[Any, torch.Tensor, torch.Tensor]:
        out = strided(theirs)
        return dist.all_reduce(out, async_op=True), out, theirs * SIZE

    def broadcast() -> tuple[Any, torch.Tensor, torch.Tensor]:
        out = strided(theirs if RANK == 1 else torch.zeros(SIZE, BIG))
        return dist.broadcast(out, 1, async_op=True), out, theirs

    for post in (gather, gather_list, reduce, reduce_list, all_reduce, broadcast):
        torch.cuda.synchronize()
        dist.barrier()
        if RANK == 1:
            time.sleep(LATE_S)
        with torch.cuda.stream(side):
            work, out, want = post()
        work.wait()  # the default stream
        with torch.cuda.stream(side):  # which did not wait
            others = [torch.full((n * BIG,), -1.0, device=CUDA) for n in (1, 1, SIZE, SIZE)]
        got = host(out)
        torch.cuda.synchronize()
        answers[post.__name__] = torch.equal(got, want) and all(bool((host(o) == -1).all()) for o in others)
        del others, out, work
    return answers


@scenario
def lost() -> list[str]:
    """The group fails between a call and the copy that follows it: the work is known, and tells it."""
    backend: Any = dist.group.WORLD._get_backend(CUDA)  # type: ignore[union-attr]

    def fail(*_: Any) -> None:
        raise errors.RankError("the group has failed")

    out = torch.zeros(2 * SIZE, 5, device=CUDA)[::2]
    with patch.object(backend.group.lib, "follow", fail):
        work: Any = dist.all_gather_into_tensor(out, torch.ones(5, device=CUDA), async_op=True)
    said = []
    for _ in range(2):
        try:
            work.wait()
        except errors.RankError as e:
            said.append(str(e))
        torch.cuda.synchronize()
    dist.all_gather_into_tensor(out, torch.full((5,), 3.0, device=CUDA))
    while not all(w.poll() for w in list(backend._recorder._posted)):
        time.sleep(0.01)
    said.append(f"{len(backend._recorder._posted)} kept, {out.sum().item()}")
    return said


class Part(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return out


CASES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16 parameters, float32 reduction": {"precision": MixedPrecisionPolicy(BF16, torch.float32)},
    "bfloat16 reduction": {"precision": MixedPrecisionPolicy(reduce_dtype=BF16)},
    "float16, divided afterwards": {"precision": MixedPrecisionPolicy(torch.float16, torch.float16)},
    "accumulation": {"accumulate": 2},
    "accumulation without communication": {"accumulate": 2, "set_requires_gradient_sync": True},
    "frozen": {"frozen": True},
    "some hooked": {"hooked": True},
    "kept for the backward": {"keep": True},
    "offloaded": {"offload": True},
    "validated": {"validate": True},
    "three ahead": {"prefetch": 3},
    "no prefetch": {"prefetch": False},
    "grad_dtype": {"grad_dtype": True},
    "set_reduce_scatter_max_input_buffers": {"call": ("set_reduce_scatter_max_input_buffers", 2)},
    "set_keep_unsharded_storage": {"call": ("set_keep_unsharded_storage", True)},
    "set_separate_reduce_scatter_group": {"call": ("set_separate_reduce_scatter_group", True)},
}


def lacking(case: dict[str, Any]) -> bool:
    """Say whether this torch has no such hook."""
    if case.get("grad_dtype"):
        return not hasattr(torch.Tensor, "grad_dtype")
    return "call" in case and not hasattr(FSDPModule, case["call"][0])


def train(where: str, mesh: Any, case: dict[str, Any], overlap: bool) -> tuple[list[torch.Tensor], Any]:
    """Return losses, norms and, at the end, gradients and weights of two steps; and the handle."""
    torch.manual_seed(3)
    width = 17
    model: Any = nn.Sequential(*(Part(width) for _ in range(3)), nn.Linear(width, 5)).to(where)
    parts = list(model)[:3]
    if case.get("frozen"):
        for parameter in [*model[0].up.parameters(), *model[1].parameters()]:
            parameter.requires_grad_(False)
    if case.get("grad_dtype"):
        for parameter in model[1].parameters():
            parameter.grad_dtype = BF16
    options: dict[str, Any] = {"mp_policy": case["precision"]} if "precision" in case else {}
    if case.get("offload"):
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=where == "cuda")
    for part in parts:
        fully_shard(part, mesh=mesh, reshard_after_forward=not case.get("keep", False), **options)
    fully_shard(model, mesh=mesh, **options)
    if "call" in case:
        getattr(model, case["call"][0])(case["call"][1])
    handle = torch_mcast.fsdp.enable(model, prefetch=case.get("prefetch", True)) if overlap else None
    seen: list[torch.Tensor] = []
    if case.get("hooked"):
        for parameter in model[1].parameters():
            parameter.register_post_accumulate_grad_hook(lambda p: seen.append(host(p.grad)))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    data = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(2):
        optimizer.zero_grad()
        turns = case.get("accumulate", 1)
        for turn in range(turns):
            if case.get("set_requires_gradient_sync"):
                model.set_requires_gradient_sync(turn == turns - 1)
            loss = model(torch.randn(4, width, generator=data).to(where)).float().square().mean()
            loss.backward()
            seen.append(host(loss))
        if not case.get("offload") and not case.get("grad_dtype"):
            norm = nn.utils.clip_grad_norm_(trained, 1.0)
            seen.append(host(norm))
        optimizer.step()
        if case.get("validate"):
            with torch.no_grad():
                seen.append(host(model(torch.ones(2, width).to(where))))
    return seen + [host(p.grad) for p in trained] + [host(p) for p in model.parameters()], handle


def compared(case: dict[str, Any], cuda: Any, cpu: Any) -> str:
    """Train on CUDA tensors with and without enable() and on CPU tensors; return the difference, or ""."""
    want, _ = train("cpu", cpu, case, True)
    plain, _ = train("cuda", cuda, case, False)
    ours, handle = train("cuda", cuda, case, True)
    wrong = [name for name, got in {"plain": plain, "enable()": ours}.items() if not equal(got, want)]
    if handle.blocked or handle.reasons or not handle.deferred:
        wrong.append(repr(handle))
    return ", ".join(wrong)


@scenario
def hooks() -> dict[str, str]:
    """What may be asked of FSDP2 beside enable()."""
    cuda, cpu = (init_device_mesh(where, (SIZE,)) for where in ("cuda", "cpu"))
    return {name: compared(case, cuda, cpu) for name, case in CASES.items() if not lacking(case)}


@scenario
def replicas() -> dict[str, str]:
    """Shards within rows of ranks, replicas down its columns."""
    cuda, cpu = (
        init_device_mesh(where, (SIZE // 2, 2), mesh_dim_names=("replicate", "shard"))
        for where in ("cuda", "cpu")
    )
    names = ("float32", "bfloat16 parameters, float32 reduction", "accumulation without communication")
    return {name: compared(CASES[name], cuda, cpu) for name in names}


@scenario
def apart() -> dict[str, Any]:
    """Two groups: where FSDP has one of its own for Reduce-Scatters, and where enable() is given two."""
    seen: dict[str, Any] = {}
    for way in ("set_separate_reduce_scatter_group", "enable()"):
        if not hasattr(FSDPModule, way) and way != "enable()":
            continue
        mesh = init_device_mesh("cuda", (SIZE,))
        model: Any = fully_shard(nn.Linear(8, 8).cuda(), mesh=mesh)
        given: Any = None
        if way == "enable()":
            given = torch_mcast.nccl.Groups(dist.new_group(), dist.new_group())  # type: ignore[arg-type]
        else:
            model.set_separate_reduce_scatter_group()
        torch_mcast.fsdp.enable(model, group=given)
        (group,) = groups_of(model._get_fsdp_state())
        both = given or (group._all_gather_process_group, group._reduce_scatter_process_group)
        before = [torch_mcast.stats(g) for g in both]
        model(torch.ones(2, 8, device=CUDA)).sum().backward()
        torch.cuda.synchronize()
        after = [torch_mcast.stats(g) - b for g, b in zip(both, before, strict=True)]
        seen[way] = [[s.gather_ops, s.reduce_ops] for s in after]
    return seen


@scenario
def streams() -> dict[str, Any]:
    """Where enable() leaves Allgathers on a GPU: on FSDP's streams, and what the timeline tells of them."""
    mesh = init_device_mesh("cuda", (SIZE,))
    model: Any = nn.Sequential(*(Part(17) for _ in range(3))).cuda()
    for part in model:
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    handle = torch_mcast.fsdp.enable(model)
    used: set[str] = set()
    context = model._get_fsdp_state()._comm_ctx
    post = dist.all_gather_into_tensor

    def noted(*args: Any, **kwargs: Any) -> Any:
        names = [n for n, s in vars(context).items() if s == torch.cuda.current_stream()]
        used.add(names[0] if names else "another")
        return post(*args, **kwargs)

    with patch.object(dist, "all_gather_into_tensor", noted):
        for _ in range(2):
            handle.timeline.start()
            model(torch.ones(2, 17, device=CUDA)).sum().backward()
            torch.cuda.synchronize()
            dist.barrier()
            until(lambda: len({e.kind for e in handle.timeline.events}) == 2, "futures of what is done")
            summary = handle.timeline.stop()
    return {
        "used": sorted(used),
        "events": sorted({e.kind for e in handle.timeline.events}),
        "in flight": summary.allgather_in_flight > 0 and summary.reduce_scatter_in_flight > 0,
    }


@scenario
def limits() -> list[int]:
    """What the library is told of timeouts, in ms: 0 would be none."""
    tensor = torch.ones(1, device=CUDA)
    limits = (timedelta(microseconds=1), timedelta(milliseconds=1.5), timedelta(seconds=60), timedelta(0))
    return [torch_mcast.device.place(tensor, limit).timeout_ms for limit in limits]  # type: ignore[union-attr]


def main() -> None:
    torch.set_num_threads(1)
    torch.cuda.set_device(0)
    dist.init_process_group("cpu:mcast,cuda:mcast", timeout=LIMIT)
    answers = {name: SCENARIOS[name]() for name in sys.argv[1].split(",")}
    print(json.dumps(answers), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
