"""Ranks of test_torch_nccl.py: `over_nccl.py TASK JSON` with torch's RANK and WORLD_SIZE set.

Each prints a line, RESULT and a JSON object.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import torch_mcast

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", 0)
KINDS = ("allgather", "reduce_scatter")


class Part(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return out


def train(device: str, mesh: Any, case: dict[str, Any], group: Any) -> tuple[list[torch.Tensor], Any]:
    """Return loss, gradient norm and, at the end, the whole weights; and the handle of enable()."""
    torch.manual_seed(0)
    width = 33
    model: Any = nn.Sequential(*(Part(width) for _ in range(4)), nn.Linear(width, 7)).to(device)
    dtype = getattr(torch, case.get("dtype", "float32"))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    if dtype == torch.float32:
        policy = MixedPrecisionPolicy()
    for module in [*list(model)[:4], model]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
    handle = None
    if device == "cuda":
        handle = torch_mcast.fsdp.enable(model, group=group)
        if case.get("mistake") == "wait":
            post, kept = dist.reduce_scatter_tensor, []

            def unwaited(*args: Any, **options: Any) -> Any:
                kept.append(post(*args, **options))
                return SimpleNamespace(wait=lambda: None)

            dist.reduce_scatter_tensor = unwaited
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=True)
    data = torch.Generator().manual_seed(100 + RANK)
    seen: list[torch.Tensor] = []
    for _ in range(case.get("steps", 4)):
        optimizer.zero_grad()
        for _ in range(case.get("accumulate", 1)):
            x = torch.randn(8, width, generator=data).to(device)
            loss = model(x).float().pow(2).mean()
            loss.backward()
        norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen += [loss.detach().cpu(), norm.full_tensor().detach().cpu()]
    return seen + [p.full_tensor().detach().cpu() for p in model.parameters()], handle


def windows(communicator: torch_mcast.nccl.Communicator) -> tuple[int, int]:
    return communicator.allgather_windows, communicator.reduce_scatter_windows


def training(case: dict[str, Any]) -> dict[str, Any]:
    """Train on the CPU over gloo and on the GPU over NCCL."""
    if case.get("unset"):
        unset()
    if case.get("default") == "gloo":
        dist.init_process_group("gloo")
        group: Any = torch_mcast.nccl.groups()
    else:
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=DEVICE)
        group = None
    devices = dist.device_mesh
    mesh = (
        devices.init_device_mesh("cuda", (SIZE,))
        if group is None
        else devices.DeviceMesh.from_group(group.allgather, "cuda")
    )
    host, _ = train("cpu", devices.init_device_mesh("cpu", (SIZE,)), case, None)
    cuda, handle = train("cuda", mesh, case, group)
    apart = [float((a - b).abs().max()) for a, b in zip(host, cuda, strict=True)]
    return {
        "apart": max(x if x == x else float("inf") for x in apart),
        "deferred": handle.deferred,
        "blocked": handle.blocked,
        "why_serial": handle.why_serial,
        "two": handle.groups is not None,
        "windows": [windows(c) for c in torch_mcast.nccl.communicators() if c.collnet],
        "losses": [float(x) for x in host[: 2 * case.get("steps", 4) : 2]],
    }


def unset() -> None:
    """Leave it to each communicator which network it takes, and whether it has CollNet."""
    for name in ("NCCL_NET", "NCCL_COLLNET_ENABLE"):
        os.environ.pop(name, None)  # before NCCL reads them


def beside(case: dict[str, Any]) -> dict[str, Any]:
    """Gather and reduce over FSDP's two communicators while the default group keeps to its ring.

    The counts of windows tell which collectives are in flight: the ones with some windows handed to CollNet,
    and others not yet.
    """
    unset()
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=DEVICE)
    theirs = torch.full((case["count"],), float(RANK), device=DEVICE)  # tensor parallelism's, say
    dist.all_reduce(theirs)
    mesh = dist.device_mesh.init_device_mesh("cuda", (SIZE,))
    model: Any = nn.Linear(8, 8).cuda()
    fully_shard(model, mesh=mesh)
    handle = torch_mcast.fsdp.enable(model)
    assert handle.groups is not None, handle.why_serial
    mine = torch.full((case["elements"],), float(RANK), device=DEVICE)
    whole = torch.full((SIZE * case["elements"],), -1.0, device=DEVICE)
    send = torch.ones_like(whole)
    part = torch.empty_like(mine)

    def run(gather: Any, reduce: Any, want: Sequence[str]) -> tuple[int, int, int]:
        """Return how many windows each took, and in how many readings both were under way."""
        torch.cuda.synchronize()
        dist.barrier()
        start = handed()
        works: list[Any] = []
        if "allgather" in want:
            works.append(dist.all_gather_into_tensor(whole, mine, group=gather, async_op=True))
        if "reduce_scatter" in want:
            works.append(dist.reduce_scatter_tensor(part, send, group=reduce, async_op=True))
        readings = []
        while not all(work.is_completed() for work in works):
            readings.append(handed())
        torch.cuda.synchronize()
        end = handed()
        both = sum(all(a < b < c for a, b, c in zip(start, now, end, strict=True)) for now in readings)
        return end[0] - start[0], end[1] - start[1], both

    gather, reduce = handle.groups
    alone = [run(gather, reduce, [one]) for one in KINDS]
    together = [run(gather, reduce, KINDS) for _ in range(case["turns"])]
    behind = [run(gather, gather, KINDS) for _ in range(case["turns"])]
    assert torch.equal(whole.view(SIZE, -1)[:, 0].cpu(), torch.arange(SIZE).float())
    assert float(part.sum()) == SIZE * case["elements"]
    dist.all_reduce(theirs)
    return {
        "alone": alone,
        "together": together,
        "behind": behind,
        "communicators": [(c.collnet, windows(c)) for c in torch_mcast.nccl.communicators()],
        "theirs": float(theirs[-1]),
    }


def phases(case: dict[str, Any]) -> dict[str, Any]:
    """Return how many windows CollNet had of a forward and of a backward, where the tuner chooses."""
    unset()
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=DEVICE)
    mesh = dist.device_mesh.init_device_mesh("cuda", (SIZE,))
    model: Any = nn.Sequential(nn.Linear(case["width"], case["width"])).cuda()
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    handle = torch_mcast.fsdp.enable(model)
    assert handle.groups is not None, handle.why_serial
    counts = [handed()]
    for _ in range(2):
        loss = model(torch.ones(2, case["width"], device=DEVICE)).sum()
        torch.cuda.synchronize()
        counts.append(handed())
        loss.backward()
        torch.cuda.synchronize()
        counts.append(handed())
    return {"steps": [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(counts)]}


def handed() -> tuple[int, int]:
    """Return how many windows of each collective NCCL has handed to CollNet, over all communicators."""
    all_of = [windows(c) for c in torch_mcast.nccl.communicators()]
    return sum(w[0] for w in all_of), sum(w[1] for w in all_of)


def refusal(case: dict[str, Any]) -> dict[str, Any]:
    """Ask for two groups where there cannot be two with CollNet, and train nevertheless."""
    del case
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=DEVICE)
    mesh = dist.device_mesh.init_device_mesh("cuda", (SIZE,))
    dist.barrier()
    before = len(torch_mcast.nccl.communicators())
    said = ""
    try:
        torch_mcast.nccl.groups()
    except torch_mcast.UnavailableError as e:
        said = str(e)
    kept = len(torch_mcast.nccl.communicators()) - before
    serial: dict[str, Any] = {}
    for name, group in (("mesh", None), ("one", dist.new_group()), ("separate", None)):
        model: Any = nn.Linear(8, 8).cuda()
        fully_shard(model, mesh=mesh)
        if name == "separate" and hasattr(model, "set_separate_reduce_scatter_group"):
            model.set_separate_reduce_scatter_group()
        handle = torch_mcast.fsdp.enable(model, group=group)  # type: ignore[arg-type]
        model(torch.ones(2, 8, device=DEVICE)).sum().backward()
        assert float(model.bias.grad.full_tensor().sum()) == 16
        serial[name] = handle.why_serial
    return {"said": said, "kept": kept, **serial}


def missing(case: dict[str, Any]) -> dict[str, Any]:
    """Ask for two groups where NCCL does not find the plugin, and train nevertheless."""
    del case
    unset()  # the default group then takes NCCL's Socket
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=DEVICE)
    mesh = dist.device_mesh.init_device_mesh("cuda", (SIZE,))
    said = ""
    try:
        torch_mcast.nccl.groups()
    except torch_mcast.UnavailableError as e:
        said = str(e)
    model: Any = nn.Linear(8, 8).cuda()
    fully_shard(model, mesh=mesh)
    handle = torch_mcast.fsdp.enable(model)
    model(torch.ones(2, 8, device=DEVICE)).sum().backward()
    assert float(model.bias.grad.full_tensor().sum()) == 16
    return {"said": said, "mesh": handle.why_serial}


def lists(case: dict[str, Any]) -> dict[str, Any]:
    """Use a group of all ranks, a group split from it, and an Allgather of a list."""
    del case
    dist.init_process_group("nccl", device_id=DEVICE)
    mine = torch.full((1024,), float(RANK), device=DEVICE)
    outcome: dict[str, Any] = {}
    for name, group in (("default", dist.group.WORLD), ("split", dist.new_group())):
        whole = torch.empty(SIZE * 1024, device=DEVICE)
        try:
            dist.all_gather_into_tensor(whole, mine, group=group)  # type: ignore[arg-type]
            outcome[name] = whole.cpu().view(SIZE, 1024)[:, 0].tolist()
        except RuntimeError as e:
            outcome[name] = str(e)
    parts = [torch.empty_like(mine) for _ in range(SIZE)]
    try:
        dist.all_gather(parts, mine)
        outcome["list"] = [float(p.cpu()[0]) for p in parts]
    except RuntimeError as e:
        outcome["list"] = str(e)
    return outcome


def death(case: dict[str, Any]) -> dict[str, Any]:
    """Gather and reduce until a rank is killed."""
    dist.init_process_group("gloo")
    groups = torch_mcast.nccl.groups()
    mine = torch.ones(1 << 18, device=DEVICE)
    whole = torch.empty(SIZE << 18, device=DEVICE)
    part = torch.empty(1 << 18, device=DEVICE)
    turn = 0
    while True:
        if turn == 5 and case["victim"] == RANK:
            os.kill(os.getpid(), signal.SIGKILL)
        gathered = dist.all_gather_into_tensor(whole, mine, group=groups.allgather, async_op=True)
        reduced = dist.reduce_scatter_tensor(part, whole, group=groups.reduce_scatter, async_op=True)
        gathered.wait()  # type: ignore[union-attr]
        reduced.wait()  # type: ignore[union-attr]
        torch.cuda.synchronize()
        turn += 1


TASKS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "training": training,
    "beside": beside,
    "refusal": refusal,
    "lists": lists,
    "missing": missing,
    "phases": phases,
    "death": death,
}


def main() -> None:
    torch.set_num_threads(1)
    torch.cuda.set_device(DEVICE)
    result = TASKS[sys.argv[1]](json.loads(sys.argv[2]))
    print("RESULT", json.dumps({"rank": RANK} | result), flush=True)
    if sys.argv[1] in ("training", "beside", "refusal", "missing", "phases"):
        dist.barrier()
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
