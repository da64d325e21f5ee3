"""Train a small model with FSDP2 over torch-mcast, and compare its weights with gloo's.

    torchrun --nproc-per-node 2 examples/train.py --checkpoint run.pt

The batch of a step is the same for any number of ranks, so a job that goes on with more or fewer of them
comes to the same weights. After each step rank 0 writes a checkpoint; a job that finds one goes on from
there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard

import torch_mcast

WIDTH, BATCH = 64, 24
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


def sharded(group: dist.ProcessGroup) -> nn.Sequential:
    """Return the model, with its parameters in shards over the ranks of a group."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)))
    mesh = DeviceMesh.from_group(group, "cpu")
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train_step(model: nn.Module, step: int) -> float:
    """Take one step on this rank's part of the step's batch, and return the loss of the whole batch."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(BATCH, WIDTH, generator=generator)
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    loss = F.mse_loss(model(inputs[mine]), inputs[mine].roll(1, dims=1))
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=0.5)
            parameter.grad = None
    total = loss.detach()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def save(path: Path, model: nn.Module, steps: int) -> None:
    """Write the file for `resume`; if the process is killed meanwhile, the previous file stays."""
    weights = get_model_state_dict(model, options=FULL)  # whole on rank 0, which all ranks help to make
    if dist.get_rank() == 0:
        being_written = path.with_suffix(".new")
        torch.save({"steps": steps, "weights": weights}, being_written)
        being_written.replace(path)


def resume(path: Path, model: nn.Module) -> int:
    """Return how many steps were done before, after loading their weights."""
    if not path.exists():
        return 0
    saved = torch.load(path)
    set_model_state_dict(model, saved["weights"], options=StateDictOptions(full_state_dict=True))
    return int(saved["steps"])


def lose(what: str) -> None:
    """Kill this rank, or its whole node: the agent that would start it again as well."""
    print(f"rank {dist.get_rank()}, process {os.getpid()}: killing this {what}", flush=True)
    if what == "node":
        os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def await_more(seconds: float = 120) -> None:
    """Stand still until torchrun ends this process, to start it again together with the joined hosts."""
    print("waiting for another host", flush=True)
    time.sleep(seconds)
    sys.exit(f"no host has joined within {seconds:g} s")


@record  # torchrun then knows which rank failed first, and why
def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--init", default="env://", help="launcher:// under mpirun and srun")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--checkpoint", type=Path, help="a file that all ranks can read")
    parser.add_argument(
        "--lose",
        choices=("rank", "node"),
        help="what to kill of the last rank in step --lose-at, unless the job goes on from there",
    )
    parser.add_argument("--lose-at", type=int, default=3, metavar="STEP")
    parser.add_argument(
        "--grow-at",
        type=int,
        metavar="STEP",
        help="wait there for another host, unless the job goes on from a checkpoint: one has joined",
    )
    args = parser.parse_args()
    torch.set_num_threads(1)  # ranks may share cores

    dist.init_process_group("mcast", init_method=args.init, timeout=timedelta(seconds=60))
    train(args)
    dist.destroy_process_group()


def train(args: argparse.Namespace) -> None:
    """Train over mcast, from the checkpoint on; then over gloo, from the start on; and compare."""
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.group.WORLD is not None
    model = sharded(dist.group.WORLD)
    torch_mcast.fsdp.enable(model)
    start = resume(args.checkpoint, model) if args.checkpoint else 0
    if rank == 0:
        info = torch_mcast.info()
        print(f"{size} ranks, fabric {info.fabric}, Allgather by {info.allgather}")
        print(f"{start} steps were done before", flush=True)
    for step in range(start, args.steps):
        if args.grow_at == step + 1 and start == 0 < step:
            await_more()
        if args.lose and args.lose_at == step + 1 and start < step and rank == size - 1:
            lose(args.lose)
        loss = train_step(model, step)
        if args.checkpoint:
            save(args.checkpoint, model, step + 1)
        if rank == 0:
            print(f"step {step + 1} of {args.steps}: loss {loss:.6f}", flush=True)

    gloo = dist.new_group(backend="gloo")
    assert isinstance(gloo, dist.ProcessGroup)  # every rank is in it
    peer = sharded(gloo)
    for step in range(args.steps):
        train_step(peer, step)
    furthest = max(
        (ours.to_local() - theirs.to_local()).abs().max()  # type: ignore[attr-defined]  # both are DTensors
        for ours, theirs in zip(model.parameters(), peer.parameters(), strict=True)
    )
    dist.all_reduce(furthest, dist.ReduceOp.MAX)
    if not furthest <= 1e-5:  # nor a NaN
        sys.exit(f"weights differ from gloo's by {furthest:g}, which is more than 1e-5")
    if rank == 0:
        print(f"weights are gloo's to {furthest:.1g}", flush=True)


if __name__ == "__main__":
    main()
