"""What torch asks of the backend beside collectives: batches, splits, numbers, coalescing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

import torch_mcast
from torch_mcast.group_in_python import TAKES_BACKENDS, ErrorType

from .values import SPLITS, distributed, splittable
from .world import World

CPU = torch.device("cpu")


def batches() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    got = torch.zeros(2)
    ops = [
        dist.P2POp(dist.isend, torch.full((2,), float(rank)), right),
        dist.P2POp(dist.irecv, got, left),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got.tolist() == [float(left)] * 2


def test_a_batch_of_sends_and_receives(world: World) -> None:
    world.run(batches)


def splits() -> None:
    rank = dist.get_rank()
    pair = distributed.split_group(
        split_ranks=[[1, 0], [2, 3]],
        timeout=timedelta(seconds=44),
        pg_options=torch_mcast.Options(fabric="udp", class_="background"),
        group_desc="pairs",
    )
    assert torch_mcast.info(pair).fabric == "udp"
    assert pair.group_desc == "pairs"
    assert pair._get_backend(CPU).options._timeout == timedelta(seconds=44)
    ranks = [1, 0] if rank < 2 else [2, 3]
    if not TAKES_BACKENDS:  # torch sorts them
        ranks.sort()
    assert dist.get_process_group_ranks(pair) == ranks
    out = torch.zeros(2)
    dist.all_gather_into_tensor(out, torch.tensor([float(rank)]), group=pair)
    assert out.tolist() == [float(r) for r in ranks]
    alone = distributed.split_group(pair, split_ranks=[[0], [1]])  # with the settings of its parent
    assert torch_mcast.info(alone).fabric == "udp"
    dist.barrier(group=alone)
    dist.destroy_process_group(alone)
    dist.destroy_process_group(pair)


def unnamed() -> None:
    some = [[0, 1]]
    if dist.get_rank() < 2:
        dist.destroy_process_group(distributed.split_group(split_ranks=some))
    else:
        if not TAKES_BACKENDS:
            assert distributed.split_group(split_ranks=some) is None
            return
        with pytest.raises(torch_mcast.UnsupportedError, match=r"must name every rank.*use new_group"):
            distributed.split_group(split_ranks=some)


def bound(task: Callable[[], None]) -> None:
    with splittable():
        task()


@pytest.mark.skipif(not SPLITS, reason="torch before 2.9, and 2.12 to 2.14 without a GPU, does not split our groups")
def test_a_group_is_split(world: World) -> None:
    world.run(bound, splits)
    world.run(bound, unnamed)


def exchanged(group: Any) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    sent = dist.isend(torch.ones(4), (rank + 1) % size, group=group)
    dist.recv(torch.empty(4), (rank - 1) % size, group=group)
    assert sent is not None
    sent.wait()


def numbers_of_collectives() -> list[int]:
    group: Any = dist.new_group(backend="mcast")
    seen = [group._get_sequence_number_for_group()]
    tensor = torch.ones(4)
    for post in (
        lambda: dist.all_reduce(tensor, group=group),
        lambda: dist.reduce(tensor, 0, group=group),
        lambda: dist.all_gather_coalesced([[tensor, tensor]] * 4, [tensor, tensor], group=group),
        lambda: exchanged(group),
    ):
        post()
        seen.append(group._get_sequence_number_for_group())
    dist.destroy_process_group(group)
    return seen


def test_collectives_are_numbered(world: World) -> None:
    assert world.run(numbers_of_collectives) == [[0, 1, 2, 3, 3]] * 4


def coalesced() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    first, second, got = torch.ones(3), torch.ones(2), torch.zeros(3)
    with c10d._coalescing_manager(device=CPU):
        dist.all_reduce(first)
        dist.all_reduce(second)
    assert first.tolist() == [float(size)] * 3
    assert second.tolist() == [float(size)] * 2
    with c10d._coalescing_manager(device=CPU, async_ops=True) as manager:
        dist.broadcast(second, src=0, async_op=True)
        exchange = [dist.isend(first, (rank + 1) % size), dist.irecv(got, (rank - 1) % size)]
        dist.reduce(torch.ones(3), 0, async_op=True)
        backend: Any = dist.distributed_c10d._get_default_group()._get_backend(CPU)
        posted = len(backend._coalesced)
    manager.wait()
    assert len(exchange) == 2
    assert posted == 4
    assert got.tolist() == first.tolist()


def test_a_coalescing_manager_of_a_device(world: World) -> None:
    world.run(coalesced)


def answers() -> None:
    backend = dist.distributed_c10d._get_default_group()._get_backend(CPU)
    assert not backend.supports_coalescing
    assert backend.supports_splitting == hasattr(dist.ProcessGroup, "split_group")
    assert backend.options.backend.startswith("mcast")
    assert backend.get_error() == ErrorType.SUCCESS
    if not TAKES_BACKENDS:  # nor have they what follows
        return
    assert not distributed.distributed_c10d._supports_window()
    assert not distributed.distributed_c10d._supports_reconfigure()
    with pytest.raises(torch_mcast.UnsupportedError, match="use broadcast, or send and recv"):
        distributed.distributed_c10d._new_window()
    with pytest.raises(torch_mcast.UnsupportedError, match="another with new_group"):
        distributed.distributed_c10d._get_reconfigure_handle()


def test_what_the_backend_says_of_itself(world: World) -> None:
    world.run(answers)


def exchanged_unequally() -> None:
    """Rank 0 sends and receives equal tensors, which says nothing of those of the others."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def shape(source: int, to: int) -> list[int]:
        return [2, 1 if 0 in (source, to) else 1 + source * size + to]

    inputs = [torch.full(shape(rank, to), 10.0 * rank + to) for to in range(size)]
    outputs = [torch.zeros(shape(source, rank)[::-1]).t() for source in range(size)]  # not contiguous
    work = dist.all_to_all(outputs, inputs, async_op=True)
    assert work is not None
    work.get_future().wait()
    work.wait()  # gloo sets the future first, and then says that it has completed
    assert work.is_completed()
    for source, output in enumerate(outputs):
        assert torch.equal(output, torch.full(shape(source, rank), 10.0 * source + rank))


def test_all_to_all_takes_shapes_that_differ(world: World) -> None:
    world.run(exchanged_unequally)


def sparse() -> None:
    rank = dist.get_rank()
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank]]), torch.ones(1), (5,))
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [1, 1, 1, 1, 0]


def test_sparse_tensors_are_reduced(world: World) -> None:
    world.run(sparse)
