"""Train the byte GPT with FSDP2; start it with torchrun.

    torchrun --nproc-per-node 4 benchmarks/fsdp/train.py --backend mcast --steps 50 --out run.ndjson

The fabric is chosen by MCAST_FABRIC, an aggregation node by MCAST_SWITCH. Rank 0 writes NDJSON: one
"run" record, one "step" record a step, one "end" record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import batch, load
from model import GPT, Shape
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard

import torch_mcast


@record  # torchrun then knows which rank failed first, and why
def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("mcast", "gloo"), default="mcast")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=2, help="windows of text a rank and step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plain", action="store_true", help="FSDP2 as it comes, without torch_mcast.fsdp")
    args = parser.parse_args()

    torch.set_num_threads(1)  # a rank is a core or less
    dist.init_process_group(args.backend, timeout=timedelta(seconds=120))
    rank, shape = dist.get_rank(), Shape()
    torch.manual_seed(args.seed)
    model = GPT(shape)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    handle = None if args.plain else torch_mcast.fsdp.enable(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    text, held_out = load()

    with args.out.open("w") if rank == 0 else open(os.devnull, "w") as out:
        emit(out, "run", **describe(args, shape, len(text)))
        for step in range(args.steps):
            generator = torch.Generator().manual_seed((args.seed * 1_000_003 + step) * 1_009 + rank)
            tokens, following = batch(text, args.batch, shape.context, generator)
            before = counters(args.backend)
            dist.barrier()
            if handle is not None:
                handle.timeline.start()
            start = time.perf_counter()
            loss = loss_of(model, tokens, following)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step_s = time.perf_counter() - start
            spent = asdict(handle.timeline.stop()) if handle is not None else {}
            after = counters(args.backend)
            emit(
                out,
                "step",
                step=step,
                loss=mean(loss.detach()),
                step_s=step_s,
                **{f"{name}_s": seconds for name, seconds in spent.items() if name != "span"},
                counters={name: after[name] - before[name] for name in after},
            )
        weights = fingerprint(model)
        generator = torch.Generator().manual_seed(args.seed * 1_009 + rank)
        with torch.no_grad():
            final = mean(loss_of(model, *batch(held_out, 16, shape.context, generator)))
        emit(
            out,
            "end",
            validation_loss=final,
            weights_sha256=weights,
            deferred=handle.deferred if handle else 0,
            blocked=handle.blocked if handle else 0,
            reasons=handle.reasons if handle else {},
            fabric=asdict(torch_mcast.info()) if args.backend == "mcast" else {"fabric": "tcp"},
            counters=counters(args.backend),
        )
    dist.destroy_process_group()


def loss_of(model: GPT, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy, in nats a byte."""
    return F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())


def mean(loss: torch.Tensor) -> float:
    """Return the mean over ranks, added in rank order: the same bits on every backend."""
    losses = torch.empty(dist.get_world_size(), dtype=torch.float64)
    dist.all_gather_into_tensor(losses, loss.double().reshape(1))
    return float(sum(losses.tolist()) / len(losses))


def fingerprint(model: GPT) -> str:
    """Return a hash of all weights, all ranks' shards in rank order."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        shard: Any = parameter  # a DTensor
        digest.update(shard.to_local().detach().contiguous().view(torch.uint8).numpy().tobytes())
    shards: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shards, digest.hexdigest())
    return hashlib.sha256("".join(shards).encode()).hexdigest()


def counters(backend: str) -> dict[str, int]:
    """Return this rank's network counters so far; gloo has none."""
    return asdict(torch_mcast.stats()) if backend == "mcast" else {}


def describe(args: argparse.Namespace, shape: Shape, text_bytes: int) -> dict[str, Any]:
    """Return what one needs to know to repeat the run."""
    git = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "backend": args.backend,
        "plain": args.plain,
        "fabric": os.environ.get("MCAST_FABRIC", "auto") if args.backend == "mcast" else "tcp",
        "switch": bool(os.environ.get("MCAST_SWITCH")) and args.backend == "mcast",
        "loss_injected": float(os.environ.get("MCAST_LOSS", "0")),
        "ranks": dist.get_world_size(),
        "steps": args.steps,
        "batch": args.batch,
        "seed": args.seed,
        "shape": asdict(shape),
        "text_bytes": text_bytes,
        "commit": git.stdout.strip() or "unknown",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "command": shlex.join(Path(a).name if "/" in a else a for a in sys.argv),
    }


def emit(out: TextIO, kind: str, **values: Any) -> None:
    """Write one record."""
    print(json.dumps({"record": kind, **values}), file=out, flush=True)


if __name__ == "__main__":
    main()
