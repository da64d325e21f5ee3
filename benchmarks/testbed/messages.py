"""All-to-all and send-and-receive over links, by turns beside gloo's: a rank of `mcast-lab testbed run`.

    sudo bin/mcast-lab testbed up --hosts 4 --rate 500mbit
    sudo bin/mcast-lab testbed run -- .venv/bin/python benchmarks/testbed/messages.py --rate 500e6

Bytes are what a rank sends to each other rank (all-to-all), or to the next (shift). Times are the slowest rank's
medians. `share` is of what links allow: their rate, less the heads of full frames, which carry TCP with timestamps.
Rank 0 prints a line of JSON for each row. Every result is checked, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import torch_mcast

sys.path.append(str(Path(__file__).resolve().parents[1] / "fsdp"))
from machine import shared_machine

IN_PACKET, AROUND = 52, 14  # bytes of heads: of IP and TCP, and of Ethernet


def main() -> None:
    """Run all operations of all sizes, and print rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, required=True, help="bits a second of a host's link, e.g. 500e6")
    parser.add_argument("--bytes", type=int, nargs="+", default=[64 << 10, 1 << 20, 4 << 20, 16 << 20])
    parser.add_argument("--mtu", type=int, default=9000, help="of the links (default: %(default)s, as the testbed's)")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    dist.init_process_group("mcast")
    rank, size = dist.get_rank(), dist.get_world_size()
    groups: dict[str, Any] = {"mcast": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    fabrics = {"mcast": torch_mcast.info().fabric, "gloo": "tcp"}
    where = {"command": " ".join(["messages.py", *sys.argv[1:]]), **shared_machine()} if rank == 0 else {}
    allowed = args.rate * (args.mtu - IN_PACKET) / (args.mtu + AROUND)
    for nbytes in args.bytes:
        for name, run, crosses in OPERATIONS:
            seconds: dict[str, list[float]] = {backend: [] for backend in groups}
            for turn in range(-1, args.rounds):  # the first one makes connections
                for backend, group in groups.items():
                    took = slowest(run(nbytes, rank, size, turn, group))
                    if turn >= 0:
                        seconds[backend].append(took)
            if rank == 0:
                for backend, each in seconds.items():
                    p50 = statistics.median(each)
                    share = crosses(size) * nbytes * 8 / p50 / allowed
                    row = {"op": name, "backend": backend, "fabric": fabrics[backend], "ranks": size, "bytes": nbytes}
                    row |= {"rate": args.rate, "p50_ms": round(p50 * 1e3, 3), "min_ms": round(min(each) * 1e3, 3)}
                    row |= {"max_ms": round(max(each) * 1e3, 3), "share": round(share, 3)}
                    print(json.dumps(row | where), flush=True)
    dist.destroy_process_group()


def content(nbytes: int, turn: int, source: int, to: int) -> torch.Tensor:
    """Return what a rank sends to another in a turn."""
    return (torch.arange(nbytes, dtype=torch.int64) * 7 + turn * 31 + source * 5 + to).to(torch.uint8)


def all_to_all(nbytes: int, rank: int, size: int, turn: int, group: Any) -> float:
    """Return the seconds of an all-to-all."""
    send = torch.cat([content(nbytes, turn, rank, to) for to in range(size)])
    got = torch.empty_like(send)
    want = torch.cat([content(nbytes, turn, source, rank) for source in range(size)])
    dist.barrier()
    begin = time.perf_counter()
    dist.all_to_all_single(got, send, group=group)
    took = time.perf_counter() - begin
    assert torch.equal(got, want)
    return took


def shift(nbytes: int, rank: int, size: int, turn: int, group: Any) -> float:
    """Return the seconds of a send to the next rank and a receive from the one before."""
    to, source = (rank + 1) % size, (rank - 1) % size
    send, got = content(nbytes, turn, rank, to), torch.empty(nbytes, dtype=torch.uint8)
    dist.barrier()
    begin = time.perf_counter()
    sent = dist.isend(send, to, group=group)
    dist.recv(got, source, group=group)
    assert sent is not None
    sent.wait()
    took = time.perf_counter() - begin
    assert torch.equal(got, content(nbytes, turn, source, rank))
    return took


def slowest(seconds: float) -> float:
    """Return the most that a rank took."""
    most = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    return float(most)


Run = Callable[[int, int, int, int, Any], float]
# The name, what runs it, and how many times its bytes cross a rank's link.
OPERATIONS: list[tuple[str, Run, Callable[[int], int]]] = [
    ("all_to_all", all_to_all, lambda size: size - 1),
    ("shift", shift, lambda size: 1),
]


if __name__ == "__main__":
    main()
