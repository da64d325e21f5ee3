"""Reductions of every type: to one rank, to all ranks in parts of any size, of several tensors, and those refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceCoalescedOptions, AllreduceOptions

import torch_mcast

from .limits import LIMIT
from .values import group_of, numbers, reduced, reductions, same_bytes
from .world import World


def sizes_of(n: int, size: int) -> list[int]:
    """Return how many elements each rank gets where they get different numbers, none among them."""
    return [0 if r == 1 else n // size + r for r in range(size)]


def every_reduction(fabric: str, size: int) -> None:
    """Compare what the other tests of every type, of all_reduce and reduce_scatter_tensor, leave out."""
    group, rank = group_of(fabric, size), dist.get_rank()
    if rank >= size:
        return
    for count, (dtype, op, passed, n) in enumerate(reductions()):
        what, root = (dtype, op, n), count % size
        inputs = [numbers(n, dtype, r) for r in range(size)]
        total, mine = reduced(op, dtype, inputs, 0.5), inputs[rank].clone()
        dist.reduce(mine, root, passed, group)
        assert same_bytes(mine, total if rank == root else inputs[rank]), what

        for sizes in (sizes_of(n, size), [n // size] * size):
            wholes = [numbers(sum(sizes), dtype, r, salt=count) for r in range(size)]
            want = reduced(op, dtype, wholes, 0.5).split(sizes)[rank]
            out = torch.zeros(sizes[rank], dtype=dtype)
            dist.reduce_scatter(out, list(wholes[rank].split(sizes)), passed, group)
            assert same_bytes(out, want), (*what, sizes)

        one, several = AllreduceOptions(), AllreduceCoalescedOptions()
        one.reduceOp = several.reduceOp = passed
        own = inputs[rank].clone()  # torch's own functions make pairs of complex numbers
        group.allreduce([own], one).wait()
        assert same_bytes(own, total), what
        tensors = [inputs[rank].clone(), inputs[rank][::2].clone()]
        group.allreduce_coalesced(tensors, several).wait()
        assert same_bytes(tensors[0], total), what
        assert torch.equal(tensors[1].to(torch.complex128), tensors[0][::2].to(torch.complex128)), what


@pytest.mark.parametrize("size", [2, 3, 4])
def test_reductions_of_every_type(world: World, fabric: str, size: int) -> None:
    world.run(every_reduction, fabric, size)


def bits_of_any_length(fabric: str) -> None:
    group, rank = group_of(fabric, 4), dist.get_rank()
    for n in (1, 1000, 70_001, 1_000_003):
        made = [torch.Generator().manual_seed(n + r) for r in range(4)]
        inputs = [torch.randint(-(1 << 63), (1 << 63) - 1, (n,), generator=g) for g in made]
        a, b, c, d = inputs
        for op, want in (
            (dist.ReduceOp.BAND, a & b & c & d),
            (dist.ReduceOp.BOR, a | b | c | d),
            (dist.ReduceOp.BXOR, a ^ b ^ c ^ d),
        ):
            got = inputs[rank].clone()
            dist.all_reduce(got, op, group)
            assert torch.equal(got, want), (op, n)


def test_bits_of_any_length(world: World, fabric: str) -> None:
    world.run(bits_of_any_length, fabric)


def uneven_in_one_memory(fabric: str) -> None:
    """A result may lie where contributions to others lie, which are read at any time until all are done."""
    group, rank, sizes = group_of(fabric, 4), dist.get_rank(), [3000, 1, 0, 50_000]
    whole = torch.arange(float(sum(sizes)))
    want = whole.split(sizes)[rank] * 10
    for stride in (1, 2):
        for at in (0, 500, 3000):
            memory = torch.zeros(2 * sum(sizes), dtype=torch.float32)
            parts = list(memory[: sum(sizes)].copy_(whole * (rank + 1)).split(sizes))
            places = memory[at::stride][: sizes[rank]]
            work = dist.reduce_scatter(places, parts, group=group, async_op=True)
            assert work is not None
            assert torch.equal(work.get_future().wait()[0], want)
            assert torch.equal(places, want)
    memory = whole * (rank + 1)
    parts = list(memory.split(sizes))
    dist.reduce_scatter(parts[rank], parts, group=group)  # in place
    assert torch.equal(parts[rank], want)
    given = (whole * (rank + 1)).split(sizes)
    assert all(torch.equal(parts[r], given[r]) for r in range(4) if r != rank)


def test_uneven_parts_in_one_memory(world: World, fabric: str) -> None:
    world.run(uneven_in_one_memory, fabric)


def asked_and_waited_for(fabric: str) -> None:
    group, rank = group_of(fabric, 4), dist.get_rank()
    strided = torch.full((4, 6), rank + 1.0).t()[::2]
    work = dist.reduce(strided, 2, group=group, async_op=True)
    assert work is not None
    assert work.wait(timedelta(seconds=LIMIT.total_seconds()))
    assert work.is_completed()
    assert work.exception() is None
    assert strided.unique().tolist() == [10.0 if rank == 2 else rank + 1.0]
    total: list[torch.Tensor] = []
    t = torch.full((3,), rank + 1)
    later = dist.reduce(t, 0, group=group, async_op=True)
    assert later is not None
    later.get_future().then(lambda done: total.extend(done.value())).wait()
    assert total[0] is t
    assert rank or t.tolist() == [10] * 3


def test_a_reduce_is_asked_and_waited_for(world: World, fabric: str) -> None:
    world.run(asked_and_waited_for, fabric)


def refused() -> None:
    ops = dist.ReduceOp
    everybody: Any = dist.group.WORLD

    def reduces(dtype: torch.dtype, op: Any) -> list[Callable[[], Any]]:
        one, t = AllreduceOptions(), torch.ones(4).to(dtype)
        one.reduceOp = op
        return [
            lambda: everybody.allreduce([t.clone()], one).wait(),
            lambda: dist.reduce_scatter(t[:1].clone(), list(t.chunk(4)), op),
            lambda: dist.reduce_scatter_tensor(t[:1].clone(), t, op),
        ]

    for dtype, op, words in (
        (torch.float32, ops.BAND, r"BAND of torch.float32: want one of SUM, PRODUCT, MAX, MIN, AVG, PREMUL_SUM"),
        (torch.bfloat16, ops.BXOR, "BXOR of torch.bfloat16"),
        (torch.complex64, ops.PRODUCT, "PRODUCT of torch.complex64: want one of SUM, AVG, PREMUL_SUM"),
        (torch.complex128, ops.MAX, "MAX of torch.complex128"),
        (torch.complex64, ops.MIN, "MIN of torch.complex64"),
        (torch.bool, ops.AVG, "AVG of torch.bool: only .* have a mean here; convert it to a floating-point type"),
    ):
        for call in reduces(dtype, op):
            with pytest.raises((torch_mcast.ArgumentError, ValueError), match=rf"({words}|not support .*complex)"):
                call()
    after = torch.ones(2)
    dist.all_reduce(after)
    assert after.tolist() == [4.0] * 2


def test_reductions_that_have_no_meaning_are_refused_in_words(world: World) -> None:
    world.run(refused)


def mismatched(size: int) -> str:
    rank = dist.get_rank()
    try:
        dist.reduce(torch.ones(5 if rank == 1 else 6), 0)
        dist.barrier()
    except torch_mcast.McastError as e:
        return type(e).__name__
    return "nothing"


def test_sizes_that_differ_end_a_reduce_on_every_rank(fabric: str) -> None:
    broken = World(3, MCAST_FABRIC=fabric)
    try:
        assert broken.run(mismatched, 3) == ["MismatchError"] * 3
    finally:
        broken.close()
