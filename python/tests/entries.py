"""What the public functions of torch.distributed must do on four ranks: collectives, point to point."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import torch
import torch.distributed as distributed_module

from torch_mcast.group_in_python import TAKES_BACKENDS

from .limits import LIMIT

dist: Any = distributed_module  # torch has types for a part only

Check = Callable[[int, int], None]
ENTRIES: dict[str, Check] = {}


def entry(check: Check) -> Check:
    """Take the check of the function of the same name."""
    ENTRIES[check.__name__] = check
    return check


def own(rank: int, n: int = 3) -> torch.Tensor:
    return torch.full((n,), float(rank + 1))


def everybody(size: int, n: int = 3) -> torch.Tensor:
    return torch.cat([own(r, n) for r in range(size)])


# ---- collectives


@entry
def all_gather(rank: int, size: int) -> None:
    parts = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(parts, own(rank, rank + 1))
    assert all(torch.equal(part, own(r, r + 1)) for r, part in enumerate(parts))


def gathers_into(call: Callable[..., Any], rank: int, size: int) -> None:
    out = torch.zeros(3 * size)
    call(out, own(rank))
    assert torch.equal(out, everybody(size))


@entry
def all_gather_into_tensor(rank: int, size: int) -> None:
    gathers_into(dist.all_gather_into_tensor, rank, size)


@entry
def all_gather_single(rank: int, size: int) -> None:
    gathers_into(dist.all_gather_single, rank, size)


@entry
def all_gather_coalesced(rank: int, size: int) -> None:
    lists = [[torch.zeros(2), torch.zeros(5)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [own(rank, 2), own(rank, 5)])
    assert all(torch.equal(lists[r][i], own(r, n)) for r in range(size) for i, n in enumerate((2, 5)))


@entry
def all_gather_object(rank: int, size: int) -> None:
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]


@entry
def all_reduce(rank: int, size: int) -> None:
    ops = dist.ReduceOp
    terms = [r + 1 for r in range(size)]
    for op, want in {
        ops.SUM: sum(terms), ops.PRODUCT: 24, ops.MIN: 1, ops.MAX: size,
        ops.BAND: reduce(operator.and_, terms), ops.BOR: reduce(operator.or_, terms),
        ops.BXOR: reduce(operator.xor, terms),
    }.items():  # fmt: skip
        values = torch.full((3,), rank + 1)
        dist.all_reduce(values, op=op)
        assert values.tolist() == [want] * 3, op
    mean = own(rank)
    dist.all_reduce(mean, op=ops.AVG)
    assert mean.tolist() == [2.5] * 3
    scaled = own(rank)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    assert scaled.tolist() == [5.0] * 3


@entry
def all_reduce_coalesced(rank: int, size: int) -> None:
    tensors = [own(rank, 2), own(rank, 5)]
    dist.all_reduce_coalesced(tensors)
    assert [t.tolist() for t in tensors] == [[10.0] * 2, [10.0] * 5]


@entry
def all_to_all(rank: int, size: int) -> None:
    got = [torch.zeros(1) for _ in range(size)]
    dist.all_to_all(got, list(torch.arange(float(size)).add(10 * rank).chunk(size)))
    assert [float(t) for t in got] == [10.0 * r + rank for r in range(size)]


@entry
def all_to_all_single(rank: int, size: int) -> None:
    got = torch.zeros(size * (rank + 1))
    counts = [r + 1 for r in range(size)]
    dist.all_to_all_single(got, own(rank, sum(counts)), [rank + 1] * size, counts)
    assert torch.equal(got, everybody(size, rank + 1))


@entry
def barrier(rank: int, size: int) -> None:
    dist.barrier()
    work = dist.barrier(async_op=True)
    assert work.wait(LIMIT)


@entry
def broadcast(rank: int, size: int) -> None:
    for root in range(size):
        tensor = own(rank)
        dist.broadcast(tensor, src=root)
        assert torch.equal(tensor, own(root))


@entry
def broadcast_object_list(rank: int, size: int) -> None:
    objects = ["a", {1: 2}] if rank == 1 else [None, None]
    dist.broadcast_object_list(objects, src=1)
    assert objects == ["a", {1: 2}]


@entry
def gather(rank: int, size: int) -> None:
    parts = [torch.zeros(3) for _ in range(size)] if rank == 1 else None
    dist.gather(own(rank), parts, dst=1)
    assert parts is None or torch.equal(torch.cat(parts), everybody(size))


@entry
def gather_object(rank: int, size: int) -> None:
    objects: list[Any] | None = [None] * size if rank == 2 else None
    dist.gather_object(f"rank {rank}", objects, dst=2)
    assert objects is None or objects == [f"rank {r}" for r in range(size)]


def refuses(call: Callable[..., Any], rank: int, size: int) -> None:
    with pytest.raises(RuntimeError, match="Backend mcast does not support gather_single"):
        call(own(rank), torch.zeros(3 * size) if rank == 0 else None, dst=0)


@entry
def gather_single(rank: int, size: int) -> None:
    refuses(dist.gather_single, rank, size)


@entry
def gather_into_tensor(rank: int, size: int) -> None:
    refuses(dist.gather_into_tensor, rank, size)


@entry
def monitored_barrier(rank: int, size: int) -> None:
    if TAKES_BACKENDS:
        dist.monitored_barrier(timeout=LIMIT, wait_all_ranks=True)
    else:
        with pytest.raises(ValueError, match="only implemented for GLOO"):
            dist.monitored_barrier()


def reduces_to(call: Callable[..., Any], rank: int, size: int) -> None:
    out = torch.zeros(3)
    call(out, torch.arange(3.0 * size) * (rank + 1))
    assert torch.equal(out, 10 * torch.arange(3.0 * size)[3 * rank : 3 * rank + 3])


@entry
def reduce_scatter_tensor(rank: int, size: int) -> None:
    reduces_to(dist.reduce_scatter_tensor, rank, size)


@entry
def reduce_scatter_single(rank: int, size: int) -> None:
    reduces_to(dist.reduce_scatter_single, rank, size)


@entry
def reduce_scatter(rank: int, size: int) -> None:
    reduces_to(lambda out, whole: dist.reduce_scatter(out, list(whole.chunk(size))), rank, size)


@entry
def scatter(rank: int, size: int) -> None:
    got = torch.zeros(3)
    dist.scatter(got, [own(r) for r in range(size)] if rank == 3 else None, src=3)
    assert torch.equal(got, own(rank))


@entry
def scatter_object_list(rank: int, size: int) -> None:
    got: list[Any] = [None]
    dist.scatter_object_list(got, [{"for": r} for r in range(size)] if rank == 0 else None, src=0)
    assert got == [{"for": rank}]


@entry
def record_comm(rank: int, size: int) -> None:
    with dist.record_comm("named"):
        gathers_into(dist.all_gather_into_tensor, rank, size)


def reduce_to_one(rank: int, size: int) -> None:
    tensor = own(rank)
    dist.reduce(tensor, dst=2)
    assert rank != 2 or tensor.tolist() == [10.0] * 3


ENTRIES["reduce"] = reduce_to_one

# ---- point to point


def exchange(rank: int, size: int, tag: int) -> None:
    left, right = (rank - 1) % size, (rank + 1) % size
    got = torch.zeros(3)
    works = [dist.isend(own(rank), right, tag=tag), dist.irecv(got, left, tag=tag)]
    for work in works:
        work.wait()
    assert torch.equal(got, own(left))


@entry
def isend(rank: int, size: int) -> None:
    exchange(rank, size, 1)


@entry
def irecv(rank: int, size: int) -> None:
    exchange(rank, size, 2)


def pass_on(rank: int, size: int, tag: int, source: int | None) -> None:
    got = torch.zeros(3)
    if rank == 0:
        dist.send(own(rank), 1, tag=tag)
    elif rank == 1:
        assert dist.recv(got, source, tag=tag) == 0
        assert torch.equal(got, own(0))


@entry
def send(rank: int, size: int) -> None:
    pass_on(rank, size, 3, 0)


@entry
def recv(rank: int, size: int) -> None:
    pass_on(rank, size, 4, None)  # from any rank


@entry
def batch_isend_irecv(rank: int, size: int) -> None:
    left, right = (rank - 1) % size, (rank + 1) % size
    got = torch.zeros(3)
    ops = [dist.P2POp(dist.irecv, got, left), dist.P2POp(dist.isend, own(rank), right)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(got, own(left))


def pass_objects(rank: int, size: int) -> None:
    objects = ["a", {1: 2}] if rank == 0 else [None, None]
    if rank == 0:
        dist.send_object_list(objects, dst=3)
    elif rank == 3:
        assert dist.recv_object_list(objects, src=0) == 0
        assert objects == ["a", {1: 2}]


ENTRIES["send_object_list"] = ENTRIES["recv_object_list"] = pass_objects
