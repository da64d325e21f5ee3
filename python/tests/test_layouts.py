"""Tensors of any layout and type: the right elements, and nothing beside them, from library and gloo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, AllreduceCoalescedOptions

import torch_mcast
from torch_mcast import collectives, tensor, work
from torch_mcast.group_in_python import ErrorType

from .values import SINCE_2_15, distributed, impl
from .world import World

GAP = 7
BITS = dist.ReduceOp.BOR


def column(values: torch.Tensor) -> torch.Tensor:
    """Return a column of a matrix of two; the other column is to stay as it is."""
    whole = torch.full((len(values), 2), GAP).to(values.dtype)
    whole[:, 0] = values
    return whole[:, 0]


def values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.arange(count) % 4 == rank
    return (torch.arange(count) + 10 * rank).to(dtype)


def check(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    gap = torch.as_strided(got, got.shape, got.stride(), got.storage_offset() + 1)
    assert got.tolist() == want.tolist(), what
    assert gap.tolist() == torch.full(gap.shape, GAP).to(gap.dtype).tolist(), f"{what}: beside it"


def movements(dtype: torch.dtype) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()

    def empty(count: int) -> torch.Tensor:
        return column(torch.zeros(count, dtype=dtype))

    def mine(count: int) -> torch.Tensor:
        return column(values(rank, count, dtype))

    lists = [empty(3) for _ in range(size)]
    dist.gather(mine(3), lists if rank == 1 else None, dst=1)
    if rank == 1:
        for other in range(size):
            check(lists[other], values(other, 3, dtype), "gather")
    got = empty(3)
    dist.scatter(got, [column(values(r, 3, dtype)) for r in range(size)] if rank == 1 else None, src=1)
    check(got, values(rank, 3, dtype), "scatter")
    got = empty(2 * size)
    dist.all_to_all_single(got, mine(2 * size))
    rows = [values(r, 2 * size, dtype)[2 * rank : 2 * rank + 2] for r in range(size)]
    check(got, torch.cat(rows), "all_to_all_single")
    got = empty(size * (rank + 1))
    whole = size * (size + 1) // 2
    dist.all_to_all_single(got, mine(whole), [rank + 1] * size, list(range(1, size + 1)))
    first = rank * (rank + 1) // 2
    rows = [values(r, whole, dtype)[first : first + rank + 1] for r in range(size)]
    check(got, torch.cat(rows), "all_to_all_single of uneven sizes")
    lists = [empty(rank + 1) for _ in range(size)]
    dist.all_to_all(lists, [mine(r + 1) for r in range(size)])
    for other in range(size):
        check(lists[other], values(other, rank + 1, dtype), "all_to_all")
    lists = [empty(r + 1) for r in range(size)]
    dist.all_gather(lists, mine(rank + 1))
    for other in range(size):
        check(lists[other], values(other, other + 1, dtype), "all_gather of uneven sizes")
    if rank == 0:
        dist.send(mine(5), 1)
    elif rank == 1:
        got = empty(5)
        dist.recv(got, 0)
        check(got, values(0, 5, dtype), "recv")
        received = dist.irecv(empty(5))
        assert received is not None
        received.wait()
        (got,) = received.result()
        check(got, values(2, 5, dtype), "recv from any rank")
        assert received._source_rank() == 2
    elif rank == 2:
        dist.send(mine(5), 1)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bool, torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn],
    ids=str,
)
def test_movements_of_strided_tensors(world: World, dtype: torch.dtype) -> None:
    world.run(movements, dtype)


def complex_movements() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex64) * (rank + 1)
    lists = [torch.zeros(2, dtype=torch.complex64) for _ in range(size)]
    dist.gather(mine.conj(), lists if rank == 0 else None)
    if rank == 0:
        assert torch.stack(lists).tolist() == [[(1 - 2j) * r, (3 + 1j) * r] for r in range(1, size + 1)]


def test_elements_that_are_not_what_memory_holds(world: World) -> None:
    world.run(complex_movements)
    conjugate = torch.tensor([1 + 2j]).conj()
    assert tensor.sending(conjugate).tolist() == [1 - 2j]
    assert tensor.sending(conjugate.imag).tolist() == [-2.0]  # negated as it is read
    memory, finish = tensor.receiving(conjugate.imag)
    memory.fill_(5)
    assert finish is not None
    finish()
    assert conjugate.tolist() == [1 + 5j]


def bits_and_bools() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, every = torch.tensor([1 << rank] * 4, dtype=torch.int32), (1 << size) - 1
    want = torch.full((4,), every, dtype=torch.int32)
    got = column(mine)
    dist.all_reduce(got, BITS)
    check(got, want, "all_reduce of bits")
    flags = column(values(rank, 4, torch.bool))
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    check(flags, torch.ones(4, dtype=torch.bool), "all_reduce of bool")
    sums = torch.ones(4, dtype=torch.bool)
    dist.all_reduce(sums)
    assert sums.view(torch.uint8).tolist() == [1] * 4, "true and true is true, not 2"
    for op, result in ((BITS, [every] * 4), (dist.ReduceOp.SUM, [every] * 4)):
        got = column(mine)
        dist.reduce(got, 1, op)
        if rank == 1:
            check(got, torch.tensor(result, dtype=torch.int32), f"reduce {op}")
    got = column(torch.zeros(4, dtype=torch.int32))
    dist.reduce_scatter(got, [column(mine) for _ in range(size)], BITS)
    check(got, want, "reduce_scatter of a list of bits")
    got = column(torch.zeros(4, dtype=torch.int32))
    dist.reduce_scatter_tensor(got, column(mine.repeat(size)), BITS)
    check(got, want, "reduce_scatter_tensor of bits")
    got = column(torch.zeros(rank + 1))
    dist.reduce_scatter(got, [column(values(rank, r + 1, torch.float32)) for r in range(size)])
    total = sum(values(r, rank + 1, torch.float32) for r in range(size))
    assert isinstance(total, torch.Tensor)
    check(got, total, "reduce_scatter of uneven sizes")


def test_reductions_of_strided_tensors(world: World) -> None:
    world.run(bits_and_bools)


def overlaps() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size - 1) // 2 * 100

    def whole() -> torch.Tensor:
        return torch.arange(4.0 * size) + 100 * rank

    def want(r: int) -> list[float]:
        return [size * (4.0 * r + i) + total for i in range(4)]

    for place in range(size):
        memory = whole()
        chunks = list(memory.chunk(size))
        dist.reduce_scatter(chunks[place], chunks)
        assert chunks[place].tolist() == want(rank)
        memory = whole()
        dist.reduce_scatter_tensor(memory[4 * place : 4 * place + 4], memory)
        assert memory[4 * place : 4 * place + 4].tolist() == want(rank)
        memory = whole()
        dist.all_gather_into_tensor(memory, memory[4 * place : 4 * place + 4])
        assert memory.tolist() == [4.0 * place + i + 100 * r for r in range(size) for i in range(4)]
        memory = whole()
        chunks = list(memory.chunk(size))
        dist.all_gather(chunks, chunks[place])
        assert memory.tolist() == [4.0 * place + i + 100 * r for r in range(size) for i in range(4)]
    memory = whole()
    dist.all_to_all_single(memory, memory)
    assert memory.tolist() == [4.0 * rank + i + 100 * r for r in range(size) for i in range(4)]
    memory = torch.arange(10.0) + 100 * rank
    parts = list(memory[: size * (size + 1) // 2].split(list(range(1, size + 1))))
    dist.all_gather(parts, memory[1 : 2 + rank])
    assert [part.tolist() for part in parts] == [
        [1.0 + i + 100 * r for i in range(r + 1)] for r in range(size)
    ]


def test_inputs_and_outputs_that_overlap(world: World) -> None:
    world.run(overlaps)


def refuse(call: Callable[[], object], words: str) -> None:
    with pytest.raises(torch_mcast.ArgumentError, match=words):
        call()


def mistakes() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    same = torch.zeros(1).expand(4)
    mine, lists = torch.ones(4), [torch.zeros(4) for _ in range(size - 1)]
    calls: list[Callable[[], object]] = [
        lambda: dist.all_reduce(same),
        lambda: dist.all_reduce(same, dist.ReduceOp.MAX),
        lambda: dist.all_reduce_coalesced([mine, same]),
        lambda: dist.broadcast(same, 0),
        lambda: dist.reduce(same, 0),
        lambda: dist.all_gather([*lists, same], mine),
        lambda: dist.all_gather_into_tensor(torch.zeros(1).expand(4 * size), mine),
        lambda: dist.reduce_scatter_tensor(same, torch.ones(4 * size)),
        lambda: dist.reduce_scatter(same, [mine] * size),
        lambda: dist.all_to_all([*lists, same], [mine] * size),
        lambda: dist.all_to_all_single(same, mine),
        lambda: dist.scatter(same, [mine] * size if rank == 0 else None),
        lambda: dist.recv(same, (rank + 1) % size),
    ]
    for call in calls:
        refuse(call, "share memory")
    refuse(
        lambda: dist.all_to_all_single(torch.zeros(5), torch.zeros(5)), "5 rows, which 4 ranks cannot share"
    )
    refuse(
        lambda: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [1, 1, 1, 2]), "sum must be the rows"
    )
    if rank == 0:
        refuse(lambda: dist.gather(mine, [torch.zeros(3)] * size), "3 elements")
    # The second of two is wrong: the first does not begin on some ranks alone.
    if rank == 0:
        everyone: Any = dist.group.WORLD
        opts = AllgatherOptions()
        both = [torch.zeros(4 * size), torch.zeros(4)], [mine, mine]
        refuse(lambda: everyone.all_gather_single_coalesced(*both, opts), "4 elements")
    assert impl().get_error() == ErrorType.SUCCESS
    dist.barrier()
    dist.all_reduce(mine)
    assert mine.tolist() == [size] * 4


def test_a_mistake_in_an_argument_leaves_the_group_as_it_is(world: World) -> None:
    world.run(mistakes)


def no_memory(*_: torch.Tensor) -> None:
    raise MemoryError


def lost_copy() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    got = column(torch.ones(4))
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1:
            patch.setattr(collectives, "write", no_memory)
        pending = dist.all_reduce(got, async_op=True)
    assert pending is not None
    if rank == 1:
        with pytest.raises(MemoryError):
            pending.wait()
    else:
        pending.wait()
        assert got.tolist() == [size] * 4
    assert impl().get_error() == ErrorType.SUCCESS
    dist.barrier()


def test_a_copy_that_fails_is_this_ranks_affair(world: World) -> None:
    world.run(lost_copy)


def modes() -> None:
    size = dist.get_world_size()
    with torch.inference_mode():
        inference = torch.ones(4, 2)
    leaf = torch.ones(4, 2, requires_grad=True)
    for memory in (inference, leaf):
        for call in (
            lambda t: dist.all_reduce(t, async_op=True),
            lambda t: dist.all_reduce(t, dist.ReduceOp.MAX, async_op=True),
            lambda t: dist.broadcast(t, 0, async_op=True),
            lambda t: dist.all_to_all_single(t, torch.full((4,), float(size)), async_op=True),
            lambda t: dist.scatter(
                t, [torch.full((4,), 4.0)] * size if not dist.get_rank() else [], async_op=True
            ),
        ):
            pending = call(memory[:, 0])
            assert pending is not None
            pending.get_future().wait()
        assert memory[:, 0].tolist() == [float(size)] * 4
        assert memory[:, 1].tolist() == [1.0] * 4


def test_outputs_in_any_mode_are_written(world: World) -> None:
    world.run(modes)


def coalesced() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()

    def reduced(tensors: list[torch.Tensor], op: Any = dist.ReduceOp.SUM) -> Any:
        opts = AllreduceCoalescedOptions()
        opts.reduceOp = op
        everyone: Any = dist.group.WORLD
        return everyone.allreduce_coalesced(tensors, opts)

    def together(post: Callable[[], Any], operations: int) -> None:
        pending = post()
        ours = work.unwrap(pending)
        assert isinstance(ours, work.JoinedWork)
        assert len(ours._works) == operations
        pending.wait()

    tensors = [column(torch.full((n,), rank + 1.0)) for n in range(50)]
    together(lambda: reduced(tensors), 1)
    for n, t in enumerate(tensors):
        check(t, torch.full((n,), size * (size + 1) / 2), "all_reduce_coalesced")
    large = torch.ones(1 << 18)
    together(lambda: reduced([large, *tensors]), 2)
    assert large.unique().tolist() == [size]
    together(lambda: reduced([torch.ones(3, dtype=torch.int32)] * 3, BITS), 1)

    def managed(call: Callable[..., Any], outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> Any:
        with distributed._coalescing_manager(async_ops=True) as manager:
            for pair in zip(outputs, inputs, strict=True):
                call(*pair)
        (pending,) = manager.works
        return pending

    inputs = [torch.full((n,), float(rank)) for n in range(5)]
    outputs = [column(torch.zeros(n * size)) for n in range(5)]
    together(lambda: managed(dist.all_gather_into_tensor, outputs, inputs), 1)
    for n, t in enumerate(outputs):
        check(t, torch.arange(float(size)).repeat_interleave(n), "all_gather_into_tensor_coalesced")
    outputs = [column(torch.zeros(n)) for n in range(5)]
    inputs = [torch.arange(float(size)).repeat_interleave(n) + rank for n in range(5)]
    together(lambda: managed(dist.reduce_scatter_tensor, outputs, inputs), 1)
    for n, t in enumerate(outputs):
        check(t, torch.full((n,), size * rank + size * (size - 1) / 2), "reduce_scatter_tensor_coalesced")


def test_coalesced_operations_are_one(world: World) -> None:
    world.run(coalesced)


def bound() -> None:
    """Bind the group to a device as init_process_group(device_id=...) does."""
    everyone: Any = dist.group.WORLD
    everyone.bound_device_id = torch.device("cpu", 0)
    try:
        backend: Any = impl()
        backend.eager_connect_single_device(everyone.bound_device_id)
        first: Any = dist.new_group([0])
    finally:
        everyone.bound_device_id = None
    assert (first is dist.GroupMember.NON_GROUP_MEMBER) == (dist.get_rank() != 0)
    if dist.get_rank() == 0:
        assert first is not None
        dist.all_reduce(torch.ones(2), group=first)
        dist.destroy_process_group(first)


@pytest.mark.skipif(not SINCE_2_15, reason="before torch 2.15 groups are bound to accelerators alone")
def test_a_group_that_is_bound_to_a_device_has_groups_without_a_rank(world: World) -> None:
    world.run(bound)
