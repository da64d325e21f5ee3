"""Train the byte GPT with FSDP2; start it with torchrun.

    torchrun --nproc-per-node 4 benchmarks/fsdp/train.py --backend mcast --steps 50 --out run.ndjson

MCAST_FABRIC chooses the fabric, MCAST_SWITCH the switch. Rank 0 writes NDJSON: one "run" record, one "step"
record a step, with --trace one "trace" record (the step of median time: when collectives were in flight,
when the training waited, the bytes at the interface), with --memory one "memory" record (the memory of each
rank before the steps, at most in one more step, and after it), one "end" record.

Schedules, over any backend: "plain" is FSDP2 as it comes, "serial" the same with its waits timed,
"overlap" torch_mcast.fsdp.enable.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import shlex
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import moe
import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import batch, load
from machine import commit
from memory import Memory, held
from model import GPT, Mlp, Shape
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from tracer import Tracer, interfaces, passed

import torch_mcast

SCHEDULES = ("overlap", "serial", "plain")
MODELS = ("dense", "moe", "moe-nested")  # see moe.py
PRECISIONS = {
    "f32": MixedPrecisionPolicy(),
    # What FSDP2's documentation and torchtitan use: weights travel as bf16, gradients are summed in f32.
    "bf16": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
}


@record  # torchrun then knows which rank failed first, and why
def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("mcast", "gloo"), default="mcast")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=2, help="windows of text a rank and step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--schedule", choices=SCHEDULES, default="overlap")
    parser.add_argument("--ahead", type=int, default=1, help="modules that --schedule overlap prefetches")
    parser.add_argument("--keep", action="store_true", help="do not reshard after the forward")
    parser.add_argument("--precision", choices=PRECISIONS, default="f32")
    parser.add_argument("--model", choices=MODELS, default="dense")
    parser.add_argument("--blocks", type=int, default=Shape.blocks)
    parser.add_argument("--width", type=int, default=Shape.width)
    parser.add_argument("--context", type=int, default=Shape.context, help="bytes of a window")
    parser.add_argument(
        "--block-ms",
        type=float,
        default=0,
        help="what a block takes on an emulated accelerator, forward; twice that backward",
    )
    parser.add_argument("--trace", action="store_true", help="write what happened in one step")
    parser.add_argument(
        "--profile",
        type=Path,
        help="folder for a trace of torch.profiler of each rank, all steps but the first two",
    )
    parser.add_argument(
        "--memory", action="store_true", help="take one more step, and write what memory ranks hold in it"
    )
    args = parser.parse_args()

    torch.set_num_threads(1)  # a rank is a core or less
    dist.init_process_group(args.backend, timeout=timedelta(seconds=120))
    rank, shape = dist.get_rank(), Shape(context=args.context, blocks=args.blocks, width=args.width)
    torch.manual_seed(args.seed)
    model = GPT(shape, args.block_ms / 1000, Mlp if args.model == "dense" else moe.Moe)
    over = moe.meshes() if args.model != "dense" else None
    if over is not None:
        moe.spread(model, over)
    options: dict[str, Any] = {"mp_policy": PRECISIONS[args.precision]}
    for block in model.blocks:
        # The backward begins with the last block: to free it after its forward would only gather it twice.
        options["reshard_after_forward"] = not args.keep and block is not model.blocks[-1]
        if over is None:
            fully_shard(block, **options)
        else:
            moe.shard(block, over, args.model == "moe-nested", **options)
    fully_shard(model, mp_policy=PRECISIONS[args.precision], mesh=over.dense if over is not None else None)
    handle = schedule(model, args)
    tracer = Tracer(handle.timeline if handle and args.trace and rank == 0 else None)
    clip = torch.nn.utils.clip_grad_norm_ if over is None else moe.clip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    text, held_out = load()
    memory = Memory()

    with (
        args.out.open("w") if rank == 0 else open(os.devnull, "w") as out,
        profiled(args.profile, args.steps, rank) as profiler,
    ):
        emit(out, "run", **describe(args, shape, len(text)))
        for step in range(args.steps + args.memory):
            timed = step < args.steps
            if not timed:
                memory.watch(model.blocks)  # type: ignore[arg-type]  # which takes time
            generator = torch.Generator().manual_seed((args.seed * 1_000_003 + step) * 1_009 + rank)
            tokens, following = batch(text, args.batch, shape.context, generator)
            before = counters(args.backend)
            dist.barrier()
            if handle is not None:
                handle.timeline.start()
            if timed:
                tracer.start()
            link = interfaces()
            start, cpu, busy = time.perf_counter(), time.process_time(), time.thread_time()
            loss = loss_of(model, tokens, following)
            forward_s = time.perf_counter() - start
            loss.backward()  # type: ignore[no-untyped-call]
            backward_s = time.perf_counter() - start - forward_s
            clip(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step_s = time.perf_counter() - start
            cpu_s, busy_s = time.process_time() - cpu, time.thread_time() - busy
            link_bytes = passed(link, interfaces())
            if timed:
                tracer.stop(step, start, step_s)
            spent = asdict(handle.timeline.stop()) if handle is not None else {}
            after = counters(args.backend)
            if profiler is not None:
                profiler.step()
            if not timed:
                ranks: list[Any] = [None] * dist.get_world_size()
                dist.all_gather_object(ranks, {"begin": memory.begin, "most": memory.most, "end": held()})
                emit(out, "memory", ranks=ranks)
                break
            emit(
                out,
                "step",
                step=step,
                loss=mean(loss.detach()),
                step_s=step_s,
                forward_s=forward_s,
                backward_s=backward_s,
                cpu_s=cpu_s,
                busy_s=busy_s,
                link=link_bytes,
                **{f"{name}_s": seconds for name, seconds in spent.items() if name != "span"},
                counters={name: after[name] - before[name] for name in after},
            )
        if tracer.on:
            emit(out, "trace", **tracer.median())
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
    if args.backend == "gloo":
        # A thread of its own that wants the interpreter while that ends aborts the process.
        sys.stdout.flush()
        os._exit(0)


def schedule(model: GPT, args: argparse.Namespace) -> torch_mcast.fsdp.Handle | None:
    """Have a model communicate as asked; return what times it, if anything does."""
    if args.schedule == "plain":
        return None
    if args.schedule == "serial":
        return torch_mcast.fsdp.enable(model, prefetch=False, defer_reduce_scatter=False)
    return torch_mcast.fsdp.enable(model, prefetch=args.ahead)


def profiled(
    folder: Path | None, steps: int, rank: int
) -> contextlib.AbstractContextManager[torch.profiler.profile | None]:
    """Return torch.profiler, which writes RANK.json to a folder; nothing, if there is none."""
    if folder is None:
        return contextlib.nullcontext()
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        record_shapes=True,
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=steps - 2, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(folder / f"{rank}.json")),
    )


def loss_of(model: GPT, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy, in nats a byte."""
    return F.cross_entropy(model(tokens).flatten(0, 1).float(), following.flatten())


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
    return {
        "backend": args.backend,
        "schedule": args.schedule,
        "model": args.model,
        "ahead": args.ahead,
        "keep": args.keep,
        "precision": args.precision,
        "fabric": os.environ.get("MCAST_FABRIC", "auto") if args.backend == "mcast" else "tcp",
        "switch": bool(os.environ.get("MCAST_SWITCH")) and args.backend == "mcast",
        "loss_injected": float(os.environ.get("MCAST_LOSS", "0")),
        "ranks": dist.get_world_size(),
        "steps": args.steps,
        "batch": args.batch,
        "block_ms": args.block_ms,
        "seed": args.seed,
        "shape": asdict(shape),
        "text_bytes": text_bytes,
        "commit": commit(),
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
