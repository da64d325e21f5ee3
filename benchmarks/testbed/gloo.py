"""gloo as a peer: Allgather, Reduce-Scatter, Broadcast, or the first two together, in f32.

Under a launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, this is one rank:

    mcast-lab testbed run .venv/bin/python benchmarks/testbed/gloo.py allgather --bytes 4M,16M

Alone it can be many: --namespaces=mcast-tb-h --ranks=188 imports torch once and forks, and rank r
enters the network namespace mcast-tb-h<r>, or mcast-tb-h<r div K> with --per-host=K. Ranks share the memory
of torch that way.

Bytes count a rank's shard, and times are measured, as in `mcast bench`: an iteration begins at a barrier
and takes as long as on the slowest rank. Results are checked number by number, once a size, outside of the
timed part. Rank 0 prints one JSON object a line; cpu_s is the processor time of all ranks for an iteration.

gloo's Reduce-Scatter is an Allreduce and a slice: it sends twice what a Reduce-Scatter must.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # no threads of others before a fork
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")
# Where no name server can be reached, torch waits for one to name its peers, and says that it has not.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[1] / "fsdp"))

from namespace import enter

COLLECTIVES = ("allgather", "reducescatter", "broadcast", "overlap")
PERIOD = 251  # of the numbers that are sent: a prime, and small, so that their sums are exact


def sizes(text: str) -> list[int]:
    """Return the bytes that "64K,4M" stands for; K, M and G are powers of 1024."""
    found = []
    for part in text.upper().split(","):
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(part[-1:], 1)
        digits = part[:-1] if factor > 1 else part
        if not digits.isdigit() or int(digits) * factor % 4 or int(digits) == 0:
            raise argparse.ArgumentTypeError(f"{part!r}: bytes are a positive multiple of 4, such as 4M")
        found.append(int(digits) * factor)
    return found


def numbers(rank: int, start: int, count: int) -> torch.Tensor:
    """Return a stretch of what a rank brings to a collective."""
    return ((torch.arange(start, start + count) + 31 * rank) % PERIOD).float()


class Case:
    """A size with its buffers. Each method that starts a collective returns what to wait for."""

    def __init__(self, rank: int, ranks: int, nbytes: int, collective: str) -> None:
        self.rank, self.ranks, self.n = rank, ranks, nbytes // 4
        both = collective == "overlap"
        if both or collective == "allgather":
            self.shard, self.gathered = numbers(rank, 0, self.n), torch.full((self.n * ranks,), -1.0)
        if both or collective == "reducescatter":
            self.whole, self.reduced = numbers(rank, 0, self.n * ranks), torch.full((self.n,), -1.0)
        if collective == "broadcast":
            self.message = numbers(rank, 0, self.n)

    def allgather(self) -> list[Any]:
        """Gather all shards on every rank."""
        return [dist.all_gather_into_tensor(self.gathered, self.shard, async_op=True)]

    def reducescatter(self) -> list[Any]:
        """Leave a shard of the sum on every rank."""
        return [dist.reduce_scatter_tensor(self.reduced, self.whole, async_op=True)]

    def broadcast(self) -> list[Any]:
        """Send rank 0's message to all."""
        return [dist.broadcast(self.message, 0, async_op=True)]

    def overlap(self) -> list[Any]:
        """Do an Allgather and a Reduce-Scatter together."""
        return self.allgather() + self.reducescatter()

    def wrong(self, collective: str) -> int:
        """Return how many elements of a result are wrong."""
        n, ranks = self.n, range(self.ranks)
        found = 0
        if collective in ("allgather", "overlap"):
            found += sum(int((self.gathered[r * n : (r + 1) * n] != numbers(r, 0, n)).sum()) for r in ranks)
        if collective in ("reducescatter", "overlap"):
            total = torch.zeros(n)
            for r in ranks:
                total += numbers(r, self.rank * n, n)
            found += int((self.reduced != total).sum())
        if collective == "broadcast":
            found += int((self.message != numbers(0, 0, n)).sum())
        return found


def processors() -> float:
    """Return the seconds that this process has taken of processors."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(start: Callable[[], list[Any]]) -> tuple[float, float]:
    """Return the seconds of a collective on this rank from its way out of a barrier on, and of processors."""
    dist.barrier()
    used, begin = processors(), time.perf_counter()
    for work in start():
        work.wait()
    return time.perf_counter() - begin, processors() - used


def measure(case: Case, collective: str, iters: int, warmup: int) -> dict[str, Any]:
    """Return the record of one collective of one size."""
    start = getattr(case, collective)
    timed(start)
    wrong = torch.tensor(case.wrong(collective))
    for _ in range(warmup - 1):
        timed(start)
    seconds, used = torch.tensor([timed(start) for _ in range(iters)], dtype=torch.float64).T.contiguous()
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    dist.all_reduce(used)
    dist.all_reduce(wrong)
    us = [round(s * 1e6, 1) for s in seconds.tolist()]
    return {
        "collective": collective,
        "backend": "gloo",
        "ranks": case.ranks,
        "bytes": case.n * 4,
        "type": "f32",
        "iters": iters,
        "time_us": statistics.median(us),
        "min_us": min(us),
        "max_us": max(us),
        "cpu_s": float(used.mean()),
        "wrong": int(wrong),
    }


def run(rank: int, ranks: int, args: argparse.Namespace) -> None:
    """Be one rank; exit with 1 if a number is wrong."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=timedelta(seconds=args.timeout))
    wrong = 0
    for nbytes in args.bytes:
        case = Case(rank, ranks, nbytes, args.collective)
        parts = ["allgather", "reducescatter"] if args.collective == "overlap" else []
        records = [measure(case, name, args.iters, args.warmup) for name in [*parts, args.collective]]
        if parts:
            alone = records[0]["time_us"] + records[1]["time_us"]
            records[2] |= {"sum_alone_us": alone, "speedup": alone / records[2]["time_us"]}
        for record in records:
            wrong += record["wrong"]
            if rank == 0:
                print(json.dumps(record), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    if wrong:
        sys.exit(f"{wrong} numbers are wrong")


def forked(rank: int, args: argparse.Namespace) -> None:
    """Be one rank of --namespaces."""
    enter(f"{args.namespaces}{rank // args.per_host}")
    run(rank, args.ranks, args)


def fork(args: argparse.Namespace) -> None:
    """Start all ranks, and end all with the first that fails."""
    for name in (f"{args.namespaces}{r // args.per_host}" for r in range(args.ranks)):
        if not Path("/run/netns", name).exists():
            sys.exit(f"there is no network namespace {name}: `mcast-lab testbed up` makes mcast-NAME-h0, ...")
    os.environ |= {"MASTER_ADDR": args.master, "MASTER_PORT": str(args.port)}
    context = multiprocessing.get_context("fork")
    left: dict[Any, Any] = {}
    for r in range(args.ranks):
        process = context.Process(target=forked, args=(r, args), name=f"rank {r}", daemon=True)
        process.start()
        left[process.sentinel] = process
    while left:
        for sentinel in multiprocessing.connection.wait(list(left)):
            process = left.pop(sentinel)
            process.join()
            if process.exitcode != 0:
                sys.exit(f"{process.name} (process {process.pid}) failed with exit code {process.exitcode}")


def main() -> None:
    """Read the command line and be a rank, or all of them."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("collective", choices=COLLECTIVES)
    parser.add_argument("--bytes", type=sizes, default="4M", help="of a rank's shard (default: %(default)s)")
    parser.add_argument("--iters", type=int, default=7, help="timed iterations a size (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=2, help="and before those (default: %(default)s)")
    parser.add_argument("--timeout", type=int, default=600, help="of an operation, in seconds")
    parser.add_argument("--namespaces", metavar="PREFIX", help="fork ranks, for PREFIX0, PREFIX1, ...")
    parser.add_argument("--ranks", type=int, help="of --namespaces")
    parser.add_argument("--per-host", type=int, default=1, help="ranks in each of --namespaces")
    parser.add_argument("--master", default="10.77.0.1", help="rank 0's address, of --namespaces")
    parser.add_argument("--port", type=int, default=29500, help="a free one there, of --namespaces")
    args = parser.parse_args()
    if args.iters < 1 or args.warmup < 1 or args.per_host < 1:
        parser.error("--iters, --warmup and --per-host are at least 1")
    if args.namespaces:
        if not args.ranks or args.ranks < 1:
            parser.error("--namespaces needs --ranks, at least 1")
        fork(args)
    elif "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), args)
    else:
        parser.error("RANK and WORLD_SIZE are not set: start this with a launcher, or with --namespaces")


if __name__ == "__main__":
    main()
