"""The order that CUDA streams promise, tried with "mcast" by two ranks on one GPU: a row for each promise.

An input that a late kernel writes is waited for; a result that is read right after wait() is there, and the
host was not blocked meanwhile; while a CUDA graph is recorded, a call, and a wait for an earlier one, are refused in
words, and the graph goes on without them.
Status: 0 all as promised, 1 not, 77 there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

import torch_mcast

RANKS = 2
CYCLES = 500_000_000  # of the late kernel: a fraction of a second
COUNT = 1 << 20


def late_input(rank: int) -> dict[str, Any]:
    """Gather what a kernel writes that is queued behind a long one."""
    mine = torch.zeros(COUNT, device="cuda")
    out = torch.zeros(RANKS * COUNT, device="cuda")
    torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
    mine.fill_(rank + 1)
    began = time.perf_counter()
    work: Any = dist.all_gather_into_tensor(out, mine, async_op=True)
    work.wait()
    blocked_s = time.perf_counter() - began
    result = out * 1  # on the current stream, without a wait of the host
    want = torch.arange(1, RANKS + 1).repeat_interleave(COUNT).float()
    right = torch.equal(result.cpu(), want)
    return {"what": "late kernel before, read after", "right": right, "host_blocked_s": blocked_s}


def other_stream(rank: int) -> dict[str, Any]:
    """Reduce on a stream of its own, and read on the default one behind an event."""
    stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    send = torch.full((RANKS * COUNT,), float(rank + 1), device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)  # type: ignore[no-untyped-call]
        part = torch.zeros(COUNT, device="cuda")
        dist.reduce_scatter_tensor(part, send)
    torch.cuda.current_stream().wait_stream(stream)
    right = torch.equal((part * 1).cpu(), torch.full((COUNT,), float(sum(range(1, RANKS + 1)))))
    return {"what": "on another stream", "right": right}


def in_a_graph(_rank: int) -> dict[str, Any]:
    """Record a graph: a collective in it, and a wait for one before it, are refused, and graph and group go on."""
    mine, out = torch.ones(8, device="cuda"), torch.zeros(RANKS * 8, device="cuda")
    doubled, said = torch.zeros(8, device="cuda"), []
    graph: Any = torch.cuda.CUDAGraph()
    before: Any = dist.all_gather_into_tensor(out, mine, async_op=True)
    with torch.cuda.graph(graph):
        for call in (lambda: dist.all_gather_into_tensor(out, mine), before.wait):
            try:
                call()
                said.append("was recorded")
            except torch_mcast.ArgumentError as e:
                said.append(str(e))
        torch.mul(mine, 2, out=doubled)
    before.wait()
    graph.replay()
    dist.all_gather_into_tensor(out, doubled)
    right = all("recording a CUDA graph" in text for text in said) and bool((out == 2).all())
    return {"what": "in a CUDA graph", "right": right, "said": "; ".join(said)}


def run(rank: int, store: str, file: str) -> None:
    """Try all on one rank; rank 0 writes the rows."""
    torch.cuda.set_device(0)
    dist.init_process_group("mcast", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    wrong = 0
    for trial in (late_input, other_stream, in_a_graph):
        row = trial(rank)
        wrong += not row["right"]
        if rank == 0:
            with Path(file).open("a") as rows:
                rows.write(json.dumps({"record": "semantics", **row}) + "\n")
            print(row, flush=True)
    dist.destroy_process_group()
    if wrong:
        sys.exit(1)


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"missing: a GPU that torch {torch.__version__} can use")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="mcast-semantics-") as folder:
        spawn(run, (f"{folder}/store", str(args.out)), nprocs=RANKS)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
