"""Results of Allgathers that lie once in memory that the ranks of a host share."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import torch_mcast
from torch_mcast import shared
from torch_mcast.registry import backend_of

from .limits import LIMIT_S
from .test_fsdp import CASES, train
from .world import World

RING = 64 << 10


@pytest.fixture(scope="module")
def sharing() -> Iterator[World]:
    """Four ranks that share a ring so small that FSDP's results go round it many times."""
    world = World(4, MCAST_FABRIC="shm", MCAST_OUTPUTS=str(RING), GLOO_SOCKET_IFNAME="")
    yield world
    world.close()


def the_same_with_shared_results(name: str) -> tuple[int, int, int]:
    case = CASES[name]
    plain, _ = train(case, None)
    before = torch_mcast.stats()
    kept, _ = train(case, "auto")
    assert len(plain) == len(kept) > 0
    for a, b in zip(plain, kept, strict=True):
        assert torch.equal(a, b)
    gc.collect()
    delta = torch_mcast.stats() - before
    return delta.shared_ops, delta.gather_ops, delta.warnings


@pytest.mark.parametrize(
    "name",
    [
        "f32",
        "bf16 parameters",
        *(
            pytest.param(name, marks=pytest.mark.more)
            for name in ("checkpointed", "two forwards", "three ahead", "validated")
        ),
    ],
)
def test_fsdp_gathers_into_shared_memory(sharing: World, name: str) -> None:
    for in_shared, gathers, warnings in sharing.run(the_same_with_shared_results, name):
        assert in_shared > 0
        assert gathers == in_shared + 3, "an Allreduce for the norm in each step"
        assert warnings == 0


def reserved(numel: int, seconds: float = LIMIT_S) -> torch.Tensor | None:
    backend = backend_of()
    assert backend is not None
    return shared.reserve(backend.group, numel, torch.float32, timedelta(seconds=seconds))


def gathered(out: torch.Tensor, value: float) -> torch.Tensor:
    n = out.numel() // 4
    mine = out[dist.get_rank() * n :][:n]
    mine.fill_(value + dist.get_rank())
    dist.all_gather_into_tensor(out, mine)
    return torch.arange(4).repeat_interleave(n).add(value).float()


def views_hold_the_place() -> None:
    """A place is used again once its last view is gone on all ranks, and no sooner."""
    n = RING // 4 // 2  # elements of half of the ring
    if dist.get_rank() == 0:
        time.sleep(0.05)
    for value in range(10):
        out = reserved(n)
        assert out is not None
        want = gathered(out, value)
        assert torch.equal(out, want)
        view = out[3:9].view(2, 3)
        del out
        gc.collect()
        if dist.get_rank() == value % 4:
            time.sleep(0.02)  # the others come back to this place sooner
        assert torch.equal(view.flatten(), want[3:9])
        del view


def test_views_hold_the_place(sharing: World) -> None:
    sharing.run(views_hold_the_place)


def too_large() -> None:
    assert reserved(RING) is None
    model: Any = nn.Linear(256, 256)  # 256 KiB
    fully_shard(model)
    torch_mcast.fsdp.enable(model)
    before = torch_mcast.stats()
    model(torch.ones(1, 256)).sum().backward()
    assert (torch_mcast.stats() - before).shared_ops == 0


def test_what_is_too_large_lies_in_memory_of_each_rank(sharing: World) -> None:
    sharing.run(too_large)


def waits_in_vain() -> str:
    """Rank 3 holds what the others want, and says nothing."""
    n = RING // 4 // 2
    held = [reserved(n), reserved(n)]
    assert all(out is not None for out in held)
    text = ""
    if dist.get_rank() != 3:
        held.clear()
        with pytest.raises(torch_mcast.errors.WaitTimeoutError) as caught:
            reserved(n, 0.3)
        text = str(caught.value)
    dist.barrier()
    return text


@pytest.mark.more
def test_a_wait_says_for_whom() -> None:
    world = World(4, MCAST_FABRIC="shm", MCAST_OUTPUTS=str(RING), GLOO_SOCKET_IFNAME="")
    try:
        for text in world.run(waits_in_vain)[:3]:
            assert "rank 3 holds the result of an Allgather" in text
            assert "MCAST_OUTPUTS" in text
    finally:
        world.close()


def resident(pages: int) -> tuple[int, int]:
    """Return how much of the memory that ranks share this rank has mapped, and its share, in KiB."""
    out = reserved(pages * 1024)
    assert out is not None
    gathered(out, 1)
    assert float(out.sum()) > 0
    dist.barrier()
    rss = pss = 0
    mine = False
    with open(f"/proc/{os.getpid()}/smaps") as lines:
        for line in lines:
            word = line.split()
            if "-" in word[0] and not word[0].endswith(":"):
                low, high = (int(x, 16) for x in word[0].split("-"))
                mine = low <= out.data_ptr() < high
            elif mine and word[0] == "Rss:":
                rss = int(word[1])
            elif mine and word[0] == "Pss:":
                pss = int(word[1])
    dist.barrier()
    return rss, pss


@pytest.mark.more
def test_a_host_holds_a_result_once() -> None:
    world = World(4, MCAST_FABRIC="shm", MCAST_OUTPUTS="64MiB", GLOO_SOCKET_IFNAME="")
    try:
        sizes = world.run(resident, 2048)  # 8 MiB
    finally:
        world.close()
    for rss, pss in sizes:
        assert 8192 <= rss <= 8192 + 64, "what is not written to takes no memory"
        assert pss <= rss // 4 + 64
