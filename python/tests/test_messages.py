"""Sends, receives and the collectives made of them: order, tags, any source, threads, futures, what stays in flight."""

from __future__ import annotations

import gc
import threading
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as distributed_module

import torch_mcast

from .values import group_of
from .world import World

dist: Any = distributed_module


def out_of_order(fabric: str) -> None:
    """Tags are matched in any order, and messages of one tag in theirs."""
    group = group_of(fabric, 4)
    rank, size = dist.get_rank(), dist.get_world_size()
    to, source = (rank + 1) % size, (rank - 1) % size
    sends = [
        dist.isend(torch.full((n,), float(100 * tag + k)), to, group=group, tag=tag)
        for k, n in enumerate((3, 50_000))
        for tag in (1, 2)
    ]
    for tag in (2, 1):
        for k, n in enumerate((3, 50_000)):
            got = torch.zeros(n)
            dist.recv(got, source, group=group, tag=tag)
            assert (got == 100 * tag + k).all()
    for sent in sends:
        sent.wait()


def test_tags_are_matched_in_any_order(world: World, fabric: str) -> None:
    world.run(out_of_order, fabric)


def unmatched(fabric: str) -> None:
    """A send is done when it is matched, as over gloo, and a shorter one leaves the rest as it was."""
    group = group_of(fabric, 4)
    rank = dist.get_rank()
    if rank == 0:
        sent = dist.isend(torch.ones(4), 1, group=group)
        with pytest.raises(torch_mcast.WaitTimeoutError, match="send of 16 bytes to rank 1 with tag 0 was not done"):
            sent.wait(timedelta(milliseconds=50))
        assert not sent.is_completed()
        dist.barrier(group=group)
        sent.wait()
    else:
        dist.barrier(group=group)
    if rank == 1:
        got = torch.zeros(6)
        dist.recv(got, 0, group=group)
        assert got.tolist() == [1.0] * 4 + [0.0] * 2
    for view in (torch.zeros(3, 4).t()[:2], torch.zeros(3, 4, dtype=torch.complex64).t()[::2]):
        if rank == 0:
            dist.send(torch.full((3,), 7, dtype=view.dtype), 1, group=group)
        if rank == 1:
            view.copy_(torch.arange(6).view(view.shape))
            dist.recv(view, 0, group=group)
            assert view.flatten().tolist() == [7, 7, 7, 3, 4, 5]


def test_a_send_waits_for_its_receive(world: World, fabric: str) -> None:
    world.run(unmatched, fabric)


def many() -> int:
    """Return how many works are kept of sends that nobody waits for, behind a receive that waits for long."""
    rank, size = dist.get_rank(), dist.get_world_size()
    to, source = (rank + 1) % size, (rank - 1) % size
    last = torch.zeros(1)
    pending = dist.irecv(last, source, tag=99)
    got = torch.zeros(1)
    for k in range(2000):
        dist.isend(torch.full((1,), float(k)), to, tag=1)
        dist.recv(got, source, tag=1)
        assert got.item() == k
    gc.collect()
    lane = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).group.messages
    kept = len(lane._inflight)
    dist.isend(torch.ones(1), to, tag=99).wait()
    pending.wait()
    return kept


def test_works_that_are_done_are_not_kept(world: World) -> None:
    assert max(world.run(many)) < 100


def all_first() -> None:
    """More receives than the library has room for collectives are posted before a message comes."""
    rank, size = dist.get_rank(), dist.get_world_size()
    to, source = (rank + 1) % size, (rank - 1) % size
    got = torch.zeros(1500)
    receives = [dist.irecv(got[k : k + 1], source, tag=k) for k in range(1500)]
    sends = [dist.isend(torch.full((1,), float(k)), to, tag=k) for k in reversed(range(1500))]
    for work in [*receives, *sends]:
        work.wait()
    assert torch.equal(got, torch.arange(1500.0))


def test_many_receives_come_before_their_messages(world: World) -> None:
    world.run(all_first)


def by_threads() -> list[Any]:
    """Return what several threads and a future learn of one receive."""
    rank, size = dist.get_rank(), dist.get_world_size()
    to, source = (rank + 1) % size, (rank - 1) % size
    for _ in range(50):
        got = torch.zeros(3)
        work = dist.irecv(got, tag=5)  # from any rank
        future = work.get_future()
        learned: list[int] = []

        def learn(work: Any = work, learned: list[int] = learned) -> None:
            work.wait()
            learned.append(work._source_rank())

        threads = [threading.Thread(target=learn) for _ in range(3)]
        for thread in threads:
            thread.start()
        dist.send(torch.full((3,), float(rank)), to, tag=5)
        for thread in threads:
            thread.join()
        assert learned == [source] * 3
        assert future.wait()[0].tolist() == [float(source)] * 3
    return []


def test_threads_and_futures_learn_of_a_receive(world: World) -> None:
    world.run(by_threads)


def bad() -> list[str]:
    """Return the words for wrong arguments."""
    rank, size = dist.get_rank(), dist.get_world_size()
    said = []
    for call in (
        lambda: dist.all_to_all_single(torch.zeros(size), torch.zeros(size), [1] * size, [2] * size),
        lambda: dist.all_to_all_single(torch.zeros(()), torch.zeros(())),
        lambda: dist.all_to_all([torch.zeros(1)] * (size - 1), [torch.zeros(1)] * size),
        lambda: dist.gather(torch.zeros(2), [torch.zeros(3)] * size if rank == 0 else None, 0)
        if rank == 0
        else dist.gather(torch.zeros(2), [torch.zeros(2)] * size, 0),
    ):
        with pytest.raises((torch_mcast.ArgumentError, ValueError)) as raised:
            call()
        said.append(str(raised.value))
    return said


def test_wrong_arguments_are_named(world: World) -> None:
    for sizes, scalar, short, lists in world.run(bad):
        assert "sizes [2, 2, 2, 2] of the input, which has 4 rows" in sizes
        assert "is a scalar" in scalar
        assert "3 outputs, 4 inputs, and there are 4 ranks" in short
        assert "must" in lists or "may" in lists
