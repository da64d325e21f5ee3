"""Ranks that end in many ways, and what the others report.

Run as a program with cases, FABRIC/ENDING/OPERATION each, it prints a JSON object for each. One
process forks all ranks, so that torch is loaded once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import torch_mcast
from tests.limits import LIMIT_S

RANKS, VICTIM = 4, 2


def kill() -> None:
    """End as the machine does it when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_parent() -> None:
    """End, but for a child that does not notice, as a worker of a DataLoader may."""
    if os.fork() == 0:
        time.sleep(LIMIT_S)
        os._exit(0)
    kill()


def abort() -> None:
    """Abort, and live on."""
    world: Any = dist.group.WORLD
    world.abort()
    time.sleep(LIMIT_S)


def destroy() -> None:
    """Leave, and live on."""
    dist.destroy_process_group()
    time.sleep(LIMIT_S)


def destroy_finally() -> None:
    """Fail, and destroy the group before any other code hears of the failure."""
    try:
        [0][3]
    finally:
        dist.destroy_process_group()


def destroy_exit() -> None:
    """Destroy the group, then end as one that has failed."""
    dist.destroy_process_group()
    sys.exit(1)


ENDINGS: dict[str, Callable[[], object]] = {
    "raise": lambda: [0][3],
    "exit": lambda: sys.exit(1),
    "finally": destroy_finally,
    "destroy-exit": destroy_exit,
    "good-exit": lambda: sys.exit(0),
    "_exit": lambda: os._exit(1),
    "kill": kill,
    "kill-parent": kill_parent,
    "abort": abort,
    "destroy": destroy,
}


def operations() -> dict[str, Callable[[], Any]]:
    """Return what posts what the others do meanwhile."""
    small, large = torch.ones(1 << 10), torch.zeros(RANKS << 10)
    return {
        "all_gather": lambda: dist.all_gather_into_tensor(large, small, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(small, large, async_op=True),
        "all_reduce": lambda: dist.all_reduce(torch.ones(1 << 20), async_op=True),
    }


def play(rank: int, store: str, ending: str, operation: str, out: int) -> None:
    """Be a rank; the ranks that live on write the errors that they get."""
    torch.set_num_threads(1)
    keys = FileStore(store, RANKS)
    dist.init_process_group("mcast", store=keys, rank=rank, world_size=RANKS)
    known = operations()
    for post in known.values():
        post().wait()
    if rank == VICTIM:
        keys.wait([f"in flight on {other}" for other in range(RANKS) if other != VICTIM])
        ENDINGS[ending]()
        return
    try:
        work = known[operation]()  # which the victim never does
        keys.set(f"in flight on {rank}", "")
        work.wait()
    except torch_mcast.McastError as e:
        os.write(out, json.dumps({"kind": type(e).__name__, "rank": e.rank, "text": str(e)}).encode())
    os._exit(0)


def end(fabric: str, ending: str, operation: str) -> bool:
    """Play a case, and print its outcome; return whether this process is one of its ranks."""
    os.environ["MCAST_FABRIC"] = fabric
    store = tempfile.mktemp(prefix="mcast-test-")
    ranks, pipes = [], []
    for rank in range(RANKS):
        mine, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            play(rank, store, ending, operation, theirs)  # an exception ends this program, as it does any
            return True
        os.close(theirs)
        ranks.append(pid)
        pipes.append(mine)
    said = []
    for rank, pipe in enumerate(pipes):
        ready = rank != VICTIM and select.select([pipe], [], [], LIMIT_S)[0]
        said.append(os.read(pipe, 4096) if ready else b"")
        os.close(pipe)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.unlink(store)
    reports = [json.loads(line) if line else {} for rank, line in enumerate(said) if rank != VICTIM]
    print(json.dumps({"case": f"{fabric}/{ending}/{operation}", "reports": reports}), flush=True)
    return False


def main() -> None:
    """Play the cases of the command line."""
    for case in sys.argv[1:]:
        if end(*case.split("/")):
            return


if __name__ == "__main__":
    main()
