"""FSDP2 over RDMA devices: ranks of scripts/rdma-guest, a device each, train as over gloo.

Prints the losses of each way, and exits with 0 if all losses, gradients and weights over verbs are those
over gloo but for the order of sums. torch is imported once, and ranks are forked from that: an emulated
processor takes long for it.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import sys
import tempfile
import time
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

WAYS = {"verbs": ("mcast", "verbs"), "gloo": ("gloo", "")}
STEPS = 2


def local(tensor: torch.Tensor | None) -> torch.Tensor:
    """Return a copy of what this rank has of a sharded tensor."""
    assert isinstance(tensor, DTensor)
    return tensor.to_local().detach().clone()


def train() -> list[torch.Tensor]:
    """Return the loss, the gradients and the weights of this rank, step by step."""
    torch.manual_seed(0)
    width = 64
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(3)), nn.Linear(width, 8)
    )
    for part in list(model)[:3]:
        fully_shard(part)
    fully_shard(model)
    if dist.get_backend() == "mcast":
        import torch_mcast.fsdp

        torch_mcast.fsdp.enable(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    kept = []
    for step in range(STEPS):
        x = torch.randn(16, width, generator=torch.Generator().manual_seed(97 * step + dist.get_rank()))
        loss = model(x).pow(2).mean()
        loss.backward()
        kept += [loss.detach().clone()] + [local(p.grad) for p in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        kept += [local(p) for p in model.parameters()]
    return kept


def rank_main(rank: int, size: int, way: str, scratch: str, pipe: Connection) -> None:
    backend, fabric = WAYS[way]
    torch.set_num_threads(1)
    if fabric:
        os.environ.update(MCAST_FABRIC=fabric, MCAST_IFACE=f"h{rank + 1}")
        import torch_mcast
    else:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = FileStore(f"{scratch}/{way}", size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(minutes=5))
    kept = train()
    carried = torch_mcast.info().fabric if fabric else backend
    pipe.send((carried, [t.numpy() for t in kept]))
    dist.destroy_process_group()


def run(way: str, size: int, scratch: str) -> list[list[torch.Tensor]]:
    """Return what each rank has trained."""
    context = mp.get_context("fork")
    pipes, processes, results = [], [], []
    for rank in range(size):
        mine, theirs = context.Pipe()
        processes.append(context.Process(target=rank_main, args=(rank, size, way, scratch, theirs)))
        processes[-1].start()
        theirs.close()
        pipes.append(mine)
    for pipe in pipes:
        carried, kept = pipe.recv()
        assert carried == (WAYS[way][1] or "gloo"), f"{way}: went over {carried}"
        results.append([torch.from_numpy(a) for a in kept])
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return results


def main() -> int:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    kept = {}
    with tempfile.TemporaryDirectory() as scratch:
        for way in WAYS:
            start = time.monotonic()
            kept[way] = run(way, size, scratch)
            losses = [float(loss) for loss in kept[way][0][:: len(kept[way][0]) // STEPS]]
            print(
                f"{way}: {size} ranks, losses of rank 0 {losses}, {time.monotonic() - start:.0f} s",
                flush=True,
            )
    for verbs, gloo in zip(*kept.values(), strict=True):
        for a, b in zip(verbs, gloo, strict=True):
            torch.testing.assert_close(a, b)
    same = all(
        torch.equal(a, c)
        for v, g in zip(kept["verbs"], kept["gloo"], strict=True)
        for a, c in zip(v, g, strict=True)
    )
    order = "bit for bit" if same else "but for the order of sums"
    print(f"{len(kept['verbs'][0])} tensors a rank: verbs and gloo agree {order}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
