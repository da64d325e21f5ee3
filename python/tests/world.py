"""Processes that stay up over many tests, and start from one that has imported torch, which takes seconds.

It has not loaded the library, which each rank does by itself.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from .limits import LIMIT, LIMIT_S

# What ranks import one by one otherwise; FSDP2 and profilers import dynamo when they begin.
PRELOADED = ["pytest", "torch", "torch.distributed.fsdp", "torch._dynamo", "torch_mcast.fsdp"]


class TaskError(AssertionError):
    """A task failed on a rank; the message holds its traceback."""


class World:
    """`size` ranks, each a process that runs the functions sent to it."""

    def __init__(self, size: int, backend: str = "mcast", **env: str) -> None:
        self.size = size
        self.scratch = tempfile.mkdtemp(prefix="mcast-test-")
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(rank, size, backend, self.scratch, {**os.environ, **env}, theirs),
                daemon=True,
            )
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(process)
        self.broken = False

    def start(self, task: Callable[..., Any], *args: Any) -> None:
        for pipe in self.pipes:
            pipe.send((task, args))

    def collect(self, ranks: list[int] | None = None) -> list[Any]:
        """Return what the task returned on each of the ranks; raise the first failure."""
        results: list[Any] = []
        failures: list[str] = []
        deadline = time.monotonic() + LIMIT_S
        for rank in range(self.size) if ranks is None else ranks:
            try:
                if not self.pipes[rank].poll(max(0.0, deadline - time.monotonic())):
                    failures.append(f"rank {rank}: no answer after {LIMIT_S:g} s")
                    continue
                ok, value = self.pipes[rank].recv()
            except EOFError:
                failures.append(f"rank {rank}: its process ended")
                continue
            (results if ok else failures).append(value if ok else f"rank {rank}: {value}")
        if failures:
            self.broken = True
            raise TaskError("\n".join(failures))
        return results

    def run(self, task: Callable[..., Any], *args: Any) -> list[Any]:
        """Run task(*args) on every rank."""
        self.start(task, *args)
        return self.collect()

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        stuck = []
        for rank, process in enumerate(self.processes):
            if not self.broken:
                process.join(LIMIT_S)
                if process.is_alive():
                    stuck.append(rank)
            process.kill()
            process.join()
        shutil.rmtree(self.scratch)
        assert not stuck, f"ranks {stuck} did not end"


def _serve(rank: int, size: int, backend: str, scratch: str, env: dict[str, str], pipe: Connection) -> None:
    traces = f"{scratch}/trace_rank_"
    os.environ.update({"GLOO_SOCKET_IFNAME": "lo", "TORCH_FR_DUMP_TEMP_FILE": traces, **env})
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore

    torch.set_num_threads(1)
    dist.init_process_group(
        backend, store=FileStore(f"{scratch}/store", size), rank=rank, world_size=size, timeout=LIMIT
    )
    while True:
        try:
            task, args = pipe.recv()
        except (EOFError, ConnectionResetError):
            break
        try:
            answer = (True, task(*args))
        except BaseException:
            answer = (False, traceback.format_exc())
        pipe.send(answer)
    dist.destroy_process_group()
