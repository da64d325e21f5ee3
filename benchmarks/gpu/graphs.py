"""An Allgather and a Reduce-Scatter in one CUDA graph, over NCCL and the plugin: captured once, replayed with new data.

Every byte of every replay is compared, and after every third one both run outside of the graph. Two ranks on one
GPU, each a node of its own to NCCL. Status: 0 all right, 1 not, 77 there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checks import anything, bits, compare, whole
from contenders import environment, missing

RANKS = 2
REPLAYS = 12
COUNTS = (1000, 1 << 20)  # elements a rank; the second takes several windows
WAYS = ("nccl-net", "nccl-collnet")
LIMIT_S = 60


class Buffers:
    """What both operations read and write: a graph keeps the addresses."""

    def __init__(self, count: int) -> None:
        """Make buffers for count elements a rank."""
        self.count = count
        self.shard = torch.zeros(count, device="cuda")
        self.gathered = torch.zeros(RANKS * count, device="cuda")
        self.given = torch.zeros(RANKS * count, device="cuda")
        self.sums = torch.zeros(count, device="cuda")

    def run(self) -> None:
        """Run both."""
        dist.all_gather_into_tensor(self.gathered, self.shard)
        dist.reduce_scatter_tensor(self.sums, self.given)

    def fill(self, seed: int) -> None:
        """Give both new data, and spoil the results of before."""
        rank = dist.get_rank()
        self.shard.copy_(self._shard(seed, rank))
        self.given.copy_(self._given(seed, rank))
        self.gathered.fill_(-1)
        self.sums.fill_(-1)

    def check(self, seed: int, what: str) -> None:
        """Compare every byte of both results."""
        shards = [bits(self._shard(seed, rank)) for rank in range(RANKS)]
        compare(f"Allgather, {what}", self.gathered, torch.cat(shards))
        total = torch.stack([self._given(seed, rank) for rank in range(RANKS)]).sum(0)
        mine = slice(dist.get_rank() * self.count, (dist.get_rank() + 1) * self.count)
        compare(f"Reduce-Scatter, {what}", self.sums, total[mine])

    def _shard(self, seed: int, rank: int) -> torch.Tensor:
        return anything(torch.float32, self.count, seed * RANKS + rank)

    def _given(self, seed: int, rank: int) -> torch.Tensor:
        return whole(torch.float32, RANKS * self.count, RANKS, seed * RANKS + rank).float()


def replays(count: int) -> None:
    """Capture both operations once and replay them with new data."""
    buffers = Buffers(count)
    buffers.run()  # makes the communicator, which a capture cannot
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        buffers.run()
    for n in range(REPLAYS):
        buffers.fill(n)
        graph.replay()
        buffers.check(n, f"{count} a rank, replay {n}")
        if n % 3 == 2:
            buffers.fill(REPLAYS + n)
            buffers.run()
            buffers.check(REPLAYS + n, f"{count} a rank, after replay {n}")
    torch.cuda.synchronize()


def run(store: str) -> None:
    """Run one rank."""
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    rank = int(os.environ["RANK"])
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=RANKS, device_id=device)
    for count in COUNTS:
        replays(count)
    dist.destroy_process_group()


def tried(way: str) -> dict[str, Any]:
    """Start the ranks of one way; return its row."""
    args = argparse.Namespace(ranks=RANKS, testbed=None, cpu=False, devices=["0"], env=[])
    with tempfile.TemporaryDirectory(prefix="mcast-graphs-") as folder:
        command = [sys.executable, __file__, "--store", f"{folder}/store"]
        ranks = [
            subprocess.Popen(command, env=environment(way, rank, args, Path(folder)), stderr=subprocess.PIPE, text=True)
            for rank in range(RANKS)
        ]
        errors = []
        for process in ranks:
            try:
                _, text = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                text = f"not done within {LIMIT_S} s\n" + process.communicate()[1]
            if process.returncode:
                errors.append(text.strip().splitlines()[-1] if text.strip() else f"status {process.returncode}")
    what = f"Allgather and Reduce-Scatter in one CUDA graph, {way}"
    said = "; ".join(errors) or f"{REPLAYS} replays each of {len(COUNTS)} sizes, every byte right"
    return {"record": "semantics", "what": what, "right": not errors, "said": said}


def main() -> None:
    """Try each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--store", help="run one rank, which meets the others by this file")
    args = parser.parse_args()
    if args.store:
        run(args.store)
        return
    if (lack := missing([*WAYS], cpu=False, emulated=False)) is not None:
        print(f"missing: {lack}")
        sys.exit(77)
    wrong = 0
    for way in WAYS:
        row = tried(way)
        wrong += not row["right"]
        print(row, flush=True)
        if args.out is not None:
            with args.out.open("a") as rows:
                rows.write(json.dumps(row) + "\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
