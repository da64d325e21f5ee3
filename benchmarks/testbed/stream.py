"""One message between two ranks of this machine, by turns beside a plain TCP stream and a copy of memory.

    .venv/bin/python benchmarks/testbed/stream.py --bytes 67108864

A line of JSON for each: medians of a message, and the share of what it is held to: a TCP stream of one connection
over loopback for udp, a copy by one core for shm. Every message is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.multiprocessing.spawn import spawn

from torch_mcast.options import Options

sys.path.append(str(Path(__file__).resolve().parents[1] / "fsdp"))
from machine import shared_machine


def rank_of_two(rank: int, nbytes: int, rounds: int, scratch: str) -> None:
    """Send from rank 0 to rank 1 by every way in turn; rank 1 prints the rows."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(f"{scratch}/store", 2), rank=rank, world_size=2)
    groups: dict[str, Any] = {
        fabric: dist.new_group(backend="mcast", pg_options=Options(fabric=fabric)) for fabric in ("udp", "shm")
    }
    data = (torch.arange(nbytes // 8, dtype=torch.int64) * 7).view(torch.uint8)
    got = torch.empty_like(data)
    plain = connected(rank, f"{scratch}/port")

    def tcp() -> None:
        if rank == 0:
            plain.sendall(memoryview(data.numpy().data))
            return
        rest = memoryview(got.numpy().data)
        while rest:
            rest = rest[plain.recv_into(rest) :]

    def message(group: Any) -> None:
        if rank == 0:
            dist.send(data, 1, group=group)
        else:
            dist.recv(got, 0, group=group)

    ways: dict[str, Any] = {
        "plain TCP stream": tcp, "gloo": lambda: message(None),
        "udp": lambda: message(groups["udp"]), "shm": lambda: message(groups["shm"]),
        "copy of memory": lambda: got.copy_(data) if rank == 1 else None,
    }  # fmt: skip
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(-2, rounds):
        for way, run in ways.items():
            got.fill_(0)
            dist.barrier()
            begin = time.perf_counter()
            run()
            took = time.perf_counter() - begin
            if rank == 1:
                assert torch.equal(got, data), way
                if turn >= 0:
                    seconds[way].append(took)
    if rank == 1:
        p50 = {way: statistics.median(took) for way, took in seconds.items()}
        held = {"gloo": "plain TCP stream", "udp": "plain TCP stream", "shm": "copy of memory"}
        where = {"command": f"stream.py --bytes {nbytes} --rounds {rounds}", **shared_machine()}
        for way, took in p50.items():
            row: dict[str, Any] = {"way": way, "bytes": nbytes, "p50_ms": round(took * 1e3, 3)}
            row |= {"min_ms": round(min(seconds[way]) * 1e3, 3), "gb_s": round(nbytes / took / 1e9, 2)}
            if way in held:
                row |= {"of": held[way], "share": round(p50[held[way]] / took, 3)}
            print(json.dumps(row | where), flush=True)
    dist.destroy_process_group()


def connected(rank: int, where: str) -> socket.socket:
    """Return a connection between the two ranks, which meet at a file."""
    if rank == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        with open(where + ".new", "w") as out:
            out.write(str(listener.getsockname()[1]))
        os.replace(where + ".new", where)
        return listener.accept()[0]
    while not os.path.exists(where):
        time.sleep(0.01)
    with open(where) as port:
        return socket.create_connection(("127.0.0.1", int(port.read())))


def main() -> None:
    """Start the two ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        spawn(  # type: ignore[no-untyped-call]
            rank_of_two, args=(args.bytes, args.rounds, scratch), nprocs=2
        )


if __name__ == "__main__":
    main()
