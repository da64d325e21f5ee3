"""One rank of a run: checks, timings, training. gpu.py starts it.

Every rank prints NDJSON records, as many as the others and in the same order; one that finds a wrong byte
ends with a status that is not 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fsdp"))

from card import Products, pcie
from checks import check
from timings import OPERATIONS, Ranks, measure, operation
from training import train

SMALL = 64  # width of matrices, and KiB of copies, where times mean nothing


def emit(kind: str, **values: Any) -> None:
    """Print a record."""
    print(json.dumps({"record": kind, **values}), flush=True)


@contextmanager
def traced(file: Path | None, emulated: bool) -> Iterator[None]:
    """Write what happens meanwhile as a Chrome trace, on rank 0."""
    if file is None or dist.get_rank() != 0:
        yield
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available() and not emulated:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        yield
    profile.export_chrome_trace(str(file))


def main() -> None:
    """Run all parts, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--collnet", action="store_true", help="two groups that both go through CollNet")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--copies", action="store_true", help="this rank measures PCIe")
    parser.add_argument("--store", required=True, help="a file that all ranks meet by; absent before")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--matrix", type=int, required=True)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--bytes", type=int, nargs="+", required=True)
    args = parser.parse_args()
    device = torch.device("cpu") if args.cpu else torch.device("cuda", 0)
    torch.set_num_threads(1)
    if not args.cpu:
        torch.cuda.set_device(device)
    nccl = args.backend == "nccl"
    dist.init_process_group(
        args.backend,
        init_method=f"file://{args.store}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=120),
        device_id=device if nccl else None,
    )
    emit(
        "device",
        device="cpu" if args.cpu else "emulated" if args.emulated else torch.cuda.get_device_name(device),
        cuda=torch.version.cuda,
        nccl=".".join(map(str, torch.cuda.nccl.version())) if nccl else "",  # type: ignore[no-untyped-call]
    )
    ranks = Ranks(args.backend, args.collnet, device)
    small, products = args.cpu or args.emulated, None
    ranks.meet()
    if not args.cpu:  # one rank a GPU, while the others wait
        emit("pcie", **(pcie(device, SMALL << 10) if small else pcie(device)) if args.copies else {})
        ranks.meet()
        products = Products(SMALL if small else args.matrix, device)
    emit("check", **check(device, small))
    for nbytes in args.bytes:
        for name in OPERATIONS:
            emit("time", **measure(ranks, name, nbytes, args.rounds, products))
    # Not before the communicators are there: torch then sets NCCL_ALGO=^NVLS, and the tuner stays out.
    torch.use_deterministic_algorithms(True, warn_only=True)
    record, training = train(ranks, args.steps, small)
    emit("time", **record)
    if args.trace is not None:
        both = operation(ranks, "both", args.bytes[-1])
        ranks.meet()
        with traced(args.trace, args.emulated):
            both()
            training.step()
            ranks.meet()
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    if args.backend == "gloo":
        os._exit(0)  # a thread of its own that wants the interpreter while that ends aborts the process


if __name__ == "__main__":
    main()
