"""Collectives timed: the GPU's time, the host's, bytes over PCIe, and what compute beside them loses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from card import Clock, Products

import torch_mcast

WARM = 2  # operations that connect and allocate
OPERATIONS = ("allgather", "reduce_scatter", "both")


class Ranks:
    """This rank among those of a contender.

    Attributes:
        device: of this rank.
        mcast: whether torch_mcast counts the bytes over PCIe.
        gather: the group of Allgathers.
        reduce: the group of Reduce-Scatters, which do not wait for Allgathers where a backend allows that.
    """

    def __init__(self, backend: str, collnet: bool, device: torch.device) -> None:
        self.device = device
        self.mcast = backend == "mcast"
        world: Any = dist.group.WORLD
        if collnet:
            both: Any = torch_mcast.nccl.groups()
        else:  # a group of "mcast" runs both at once
            both = world, world if self.mcast else dist.new_group(backend=backend)
        self.gather: dist.ProcessGroup = both[0]
        self.reduce: dist.ProcessGroup = both[1]

    def meet(self) -> None:
        """Wait for all ranks and for the device."""
        dist.barrier()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def passed(self) -> tuple[int, int] | None:
        """Return the bytes from and to the GPU so far, or None where nobody counts them."""
        if not self.mcast:
            return None
        stats = torch_mcast.stats()
        return stats.device_out_bytes, stats.device_in_bytes

    def timed(self, run: Callable[[], object], rounds: int) -> dict[str, Any]:
        """Return the seconds of each round, the host's CPU seconds and bytes over PCIe of one."""
        clock, times, cpu_s = Clock(self.device), [], 0.0
        for turn in range(WARM + rounds):
            if turn == WARM:
                before = self.passed()
            self.meet()
            busy = time.process_time()
            clock.start()
            run()
            took = clock.stop()
            if turn >= WARM:
                times.append(took)
                cpu_s += time.process_time() - busy
        self.meet()
        after = self.passed()
        measured: dict[str, Any] = {"times_s": times, "rounds": rounds, "cpu_s": cpu_s / rounds}
        if before is not None and after is not None:
            out, into = (b - a for a, b in zip(before, after, strict=True))
            measured |= {"out_bytes": out / rounds, "in_bytes": into / rounds}
        return measured


def operation(ranks: Ranks, name: str, nbytes: int) -> Callable[[], None]:
    """Return what runs one collective, or both at once, of float32 shards of nbytes a rank."""
    size, count = dist.get_world_size(), nbytes // 4
    shard, gathered = (torch.ones(n * count, device=ranks.device) for n in (1, size))
    part, send = torch.empty_like(shard), torch.ones_like(gathered)

    def run() -> None:
        works: list[Any] = []
        if name != "reduce_scatter":
            works.append(dist.all_gather_into_tensor(gathered, shard, group=ranks.gather, async_op=True))
        if name != "allgather":
            works.append(dist.reduce_scatter_tensor(part, send, group=ranks.reduce, async_op=True))
        for work in works:
            work.wait()

    return run


def measure(ranks: Ranks, name: str, nbytes: int, rounds: int, products: Products | None) -> dict[str, Any]:
    """Time one operation, alone and with products of matrices beside it."""
    run = operation(ranks, name, nbytes)
    measured = ranks.timed(run, rounds)
    if products is not None:
        count = products.as_long_as(sum(measured["times_s"]))
        ranks.meet()
        alone_s = products.time(count)
        ranks.meet()
        products.start(count)
        for _ in range(rounds):
            run()
        measured["slowed"] = products.wait() / alone_s - 1
        ranks.meet()
    return {"operation": name, "bytes_per_rank": nbytes, **measured}
