"""The backend on real ranks; expectations are computed, not taken from another backend, where they can be."""

from __future__ import annotations

import functools
import re
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

import torch_mcast
from torch_mcast.registry import backend_of
from torch_mcast.tensor import require_dense

from .values import OPAQUE, SIZES, SUMMABLE, group_of, numbers, reduced, reductions, same_bytes
from .world import World

distributed: Any = dist  # with its private names


def gathers(fabric: str, size: int) -> None:
    group = group_of(fabric, size)
    rank = dist.get_rank()
    if rank >= size:
        return
    assert torch_mcast.info(group).fabric == fabric
    for dtype in SUMMABLE + OPAQUE:
        for n in SIZES if dtype is torch.float32 else [257]:
            want = torch.cat([numbers(n, dtype, r) for r in range(size)])
            out = torch.zeros(size * n, dtype=dtype)
            dist.all_gather_into_tensor(out, numbers(n, dtype, rank), group=group)
            assert same_bytes(out, want), (dtype, n)
            out = torch.zeros(size * n, dtype=dtype)  # in place, as FSDP does
            out[rank * n : (rank + 1) * n] = numbers(n, dtype, rank)
            dist.all_gather_into_tensor(out, out[rank * n : (rank + 1) * n], group=group)
            assert same_bytes(out, want), (dtype, n, "in place")
            parts = [torch.zeros(n, dtype=dtype) for _ in range(size)]
            dist.all_gather(parts, numbers(n, dtype, rank), group=group)
            assert same_bytes(torch.cat(parts), want), (dtype, n, "list")
            for root in range(size):
                t = numbers(n, dtype, rank, salt=root)
                dist.broadcast(t, src=root, group=group)
                assert same_bytes(t, numbers(n, dtype, root, salt=root)), (dtype, n, root)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_gathers_and_broadcasts_of_every_type(world: World, fabric: str, size: int) -> None:
    world.run(gathers, fabric, size)


def reduces(fabric: str, size: int) -> None:
    group = group_of(fabric, size)
    rank = dist.get_rank()
    if rank >= size:
        return
    for dtype, op, passed, n in reductions():
        inputs = [numbers(size * n, dtype, r) for r in range(size)]
        mine = slice(rank * n, (rank + 1) * n)
        want = reduced(op, dtype, [t[mine] for t in inputs], 0.5)
        out = torch.zeros(n, dtype=dtype)
        dist.reduce_scatter_tensor(out, inputs[rank], op=passed, group=group)
        assert same_bytes(out, want), (dtype, op, n)
        out = torch.zeros(n, dtype=dtype)
        dist.reduce_scatter(
            out, list(inputs[rank].chunk(size)) if n else [out] * size, op=passed, group=group
        )
        assert same_bytes(out, want), (dtype, op, n, "list")


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_reductions_of_every_type_and_operation(world: World, fabric: str, size: int) -> None:
    world.run(reduces, fabric, size)


def odd_shapes(fabric: str) -> None:
    group, rank = group_of(fabric, 4), dist.get_rank()
    whole = torch.zeros(6, 8).t()  # not contiguous
    dist.all_gather_into_tensor(whole, numbers(24, torch.float32, rank).view(4, 6)[:, ::2], group=group)
    want = torch.cat([numbers(24, torch.float32, r).view(4, 6)[:, ::2].reshape(-1) for r in range(4)])
    assert torch.equal(whole.reshape(-1), want)
    out = torch.zeros(2, 6)[:, ::2]
    dist.reduce_scatter_tensor(out, torch.arange(24.0).view(4, 6).t(), group=group)
    assert torch.equal(
        out.reshape(-1), 4 * torch.arange(24.0).view(4, 6).t().reshape(-1)[rank * 6 : rank * 6 + 6]
    )
    strided = numbers(10, torch.float32, rank)[::2]
    dist.broadcast(strided, src=2, group=group)
    assert torch.equal(strided, numbers(10, torch.float32, 2)[::2])
    parts = [torch.zeros(r + 1, 2) for r in range(4)]  # a shape of its own for each rank
    dist.all_gather(parts, numbers(2 * rank + 2, torch.float32, rank).view(-1, 2), group=group)
    for r, part in enumerate(parts):
        assert torch.equal(part, numbers(2 * r + 2, torch.float32, r).view(-1, 2))
    flat = torch.zeros(4, 5)
    dist.all_gather(list(flat.unbind()), numbers(5, torch.float32, rank), group=group)  # no staging
    assert torch.equal(flat[3], numbers(5, torch.float32, 3))


def test_tensors_that_are_not_contiguous_and_shapes_that_differ(world: World, fabric: str) -> None:
    world.run(odd_shapes, fabric)


def asynchronous(fabric: str) -> None:
    group, rank = group_of(fabric, 4), dist.get_rank()
    works, outs = [], []
    for i in range(100):  # more than the library holds: posting waits for the oldest
        outs.append(torch.zeros(4 * 50))
        works.append(
            dist.all_gather_into_tensor(
                outs[-1], numbers(50, torch.float32, rank, salt=i), group=group, async_op=True
            )
        )
    for i, (work, out) in enumerate(zip(works, outs, strict=True)):
        assert work is not None
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None
        assert torch.equal(out, torch.cat([numbers(50, torch.float32, r, salt=i) for r in range(4)]))
    out = torch.zeros(5)
    work = dist.reduce_scatter_tensor(out, torch.ones(20), group=group, async_op=True)
    assert work is not None
    future = work.get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((5,), 8.0))
    assert work.result()[0] is out or torch.equal(work.result()[0], out)
    polled = dist.barrier(group=group, async_op=True)
    while not polled.is_completed():
        pass
    # tensors without any reference left must live until the operation is done
    for _ in range(10):
        dist.all_gather_into_tensor(torch.empty(4 * 100_000), torch.ones(100_000), group=group, async_op=True)
    dist.barrier(group=group)
    timed = dist.barrier(group=group, async_op=True) if rank == 0 else None
    if timed is not None:
        with pytest.raises(
            torch_mcast.WaitTimeoutError, match=r"barrier was not done within its timeout of 0\.3 s"
        ):
            timed.wait(timedelta(seconds=0.3))
    dist.barrier()  # the others have not come to the group's barrier before rank 0 gave up once
    if timed is None:
        dist.barrier(group=group)
    else:
        timed.wait()


def test_asynchronous_works(world: World, fabric: str) -> None:
    world.run(asynchronous, fabric)


def coalesced(fabric: str) -> None:
    group, rank = group_of(fabric, 4), dist.get_rank()
    backend = backend_of(group)
    assert backend is not None
    outs = [torch.zeros(4 * n) for n in (3, 70)]
    ins = [numbers(n, torch.float32, rank) for n in (3, 70)]
    with c10d._coalescing_manager(group=group):
        for out, tensor in zip(outs, ins, strict=True):
            dist.all_gather_into_tensor(out, tensor, group=group)
    for n, out in zip((3, 70), outs, strict=True):
        assert torch.equal(out, torch.cat([numbers(n, torch.float32, r) for r in range(4)]))
    shards = [torch.zeros(n) for n in (3, 70)]
    with c10d._coalescing_manager(group=group, async_ops=True) as manager:
        for shard in shards:
            dist.reduce_scatter_tensor(shard, torch.arange(4.0 * shard.numel()), group=group)
    manager.wait()
    for shard in shards:
        n = shard.numel()
        assert torch.equal(shard, 4 * torch.arange(4.0 * n)[rank * n : rank * n + n])


def test_coalesced_operations(world: World, fabric: str) -> None:
    world.run(coalesced, fabric)


def from_rank_to_rank() -> None:
    rank = dist.get_rank()
    t = torch.full((3,), float(rank))
    work = dist.all_reduce(t, async_op=True)
    assert work is not None
    work.wait()
    assert work.is_completed()
    assert t.tolist() == [6.0] * 3
    peer = rank ^ 1
    got = torch.zeros(2)
    works = [dist.isend(torch.full((2,), float(rank)), peer), dist.irecv(got, peer)]
    for each in works:
        assert each is not None
        each.wait()
    assert got.tolist() == [float(peer)] * 2
    lists = [torch.zeros(1) for _ in range(4)] if rank == 1 else None
    dist.gather(torch.tensor([float(rank)]), lists, dst=1)
    assert lists is None or [float(x) for x in lists] == [0, 1, 2, 3]
    piece = torch.zeros(1)
    dist.scatter(piece, [torch.tensor([float(i)]) for i in range(4)] if rank == 0 else None, src=0)
    assert float(piece) == rank
    swapped = torch.zeros(4)
    dist.all_to_all_single(swapped, torch.full((4,), float(rank)))
    assert swapped.tolist() == [0, 1, 2, 3]
    objects: list[Any] = [None] * 4
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(4)]
    bits = torch.zeros(1, dtype=torch.int32)
    dist.reduce_scatter_tensor(bits, torch.full((4,), 1 << rank, dtype=torch.int32), op=dist.ReduceOp.BOR)
    assert int(bits) == 15


def means() -> None:
    rank = dist.get_rank()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        t = torch.full((3,), rank + 1, dtype=dtype)
        dist.all_reduce(t, op=dist.ReduceOp.AVG)
        assert t.tolist() == [2.5] * 3, dtype
        t = torch.full((3,), rank + 1, dtype=dtype)
        dist.reduce(t, dst=1, op=dist.ReduceOp.AVG)
        assert rank != 1 or t.tolist() == [2.5] * 3, dtype
    for dtype in (torch.int32, torch.uint8, torch.int64):
        t = torch.full((3,), rank, dtype=dtype)
        scattered = functools.partial(dist.reduce_scatter_tensor, t, t.repeat(4))
        for call in (functools.partial(dist.reduce, t, 1), functools.partial(dist.all_reduce, t), scattered):
            with pytest.raises(torch_mcast.ArgumentError, match=rf"AVG of {dtype}: .* use SUM"):
                call(op=dist.ReduceOp.AVG)
        assert t.tolist() == [rank] * 3  # refused before anything was summed
        dist.all_reduce(t, op=dist.ReduceOp.SUM)
        assert t.tolist() == [6] * 3


def test_means(world: World) -> None:
    world.run(means)


def in_background(fabric: str) -> None:
    rank = dist.get_rank()
    options = torch_mcast.Options(fabric=fabric, class_="background")
    assert options.lines().splitlines()[-1] == "MCAST_CLASS=background"
    behind: Any = dist.new_group(backend="mcast", pg_options=options)
    front = group_of(fabric, 4)
    mine = numbers(2_000_000, torch.float32, rank)
    out = torch.zeros(4 * mine.numel())
    saved = dist.all_gather_into_tensor(out, mine, group=behind, async_op=True)
    for _ in range(20):
        t = torch.ones(500_000)
        dist.all_reduce(t, group=front)
        assert float(t.min()) == float(t.max()) == 4
    assert saved is not None
    saved.wait()
    assert same_bytes(out, torch.cat([numbers(2_000_000, torch.float32, r) for r in range(4)]))
    waited = torch_mcast.stats(behind)
    # a rank that yields to the end has waited for its turn only
    assert waited.gather_turn_ns + waited.gather_transfer_ns > 0
    dist.destroy_process_group(behind)


def test_a_group_in_the_background(world: World, fabric: str) -> None:
    world.run(in_background, fabric)


def documented_options() -> None:
    said = re.search(r"`(Options\(.*?\))` is\s+(\S+) and (\S+);", torch_mcast.Options.__doc__ or "")
    assert said is not None
    options = eval(said[1], {"Options": torch_mcast.Options})
    assert options.lines().splitlines() == [said[2], said[3]]
    group: Any = dist.new_group(backend="mcast", pg_options=options)
    dist.barrier(group=group)
    assert torch_mcast.info(group).fabric == options.settings["MCAST_FABRIC"]
    dist.destroy_process_group(group)
    for name in options.settings:  # the library knows each of the names
        wrong = torch_mcast.Options(**{name.removeprefix("MCAST_").lower(): "wrong"})
        with pytest.raises(torch_mcast.ArgumentError, match=rf"\b{name}\b"):
            dist.new_group(backend="mcast", pg_options=wrong)


def test_the_example_in_the_documentation_of_options_works(world: World) -> None:
    world.run(documented_options)


def test_messages_between_ranks_and_what_is_made_of_them(world: World) -> None:
    world.run(from_rank_to_rank)


def bad_arguments(fabric: str) -> None:
    group = group_of(fabric, 4)
    ones = torch.ones
    with pytest.raises(torch_mcast.ArgumentError, match=r"output has 7 elements.*4 \(ranks\) times the 2"):
        dist.all_gather_into_tensor(ones(7), ones(2), group=group)
    with pytest.raises(torch_mcast.ArgumentError, match=r"input has 9 elements"):
        dist.reduce_scatter_tensor(ones(2), ones(9), group=group)
    with pytest.raises(torch_mcast.ArgumentError, match=r"3 tensors, and there are 4 ranks"):
        dist.all_gather([ones(1)] * 3, ones(1), group=group)
    with pytest.raises(torch_mcast.ArgumentError, match=r"torch_mcast.Options"):
        dist.new_group(backend="mcast", pg_options=object())
    with pytest.raises(torch_mcast.ArgumentError, match=r"MCAST_FABRIC"):
        dist.new_group(backend="mcast", pg_options=torch_mcast.Options(fabric="pigeon"))


def test_wrong_arguments_are_named(world: World, fabric: str) -> None:
    world.run(bad_arguments, fabric)


def test_only_dense_tensors_are_taken() -> None:
    with pytest.raises(torch_mcast.ArgumentError, match="only dense tensors on the CPU or on a CUDA device"):
        require_dense(torch.ones(2).to_sparse())
    with pytest.raises(torch_mcast.ArgumentError, match="meta"):
        require_dense(torch.ones(2, device="meta"))


def mismatched(fabric: str) -> str:
    group, rank = group_of(f"{fabric}", 3), dist.get_rank()
    if rank >= 3:
        return "MismatchError"
    n = 10 if rank == 1 else 11
    try:
        dist.all_gather_into_tensor(torch.zeros(3 * n), torch.ones(n), group=group)
    except torch_mcast.McastError as e:
        return f"{type(e).__name__}"
    return "nothing"


def test_sizes_that_differ_are_an_error_on_every_rank(fabric: str) -> None:
    broken = World(3, MCAST_FABRIC=fabric)  # its groups are of no use afterwards
    try:
        assert broken.run(mismatched, fabric) == ["MismatchError"] * 3
    finally:
        broken.close()


def counts(fabric: str) -> None:
    group, n = group_of(fabric, 4), 1 << 20
    before = torch_mcast.stats(group)
    dist.all_gather_into_tensor(
        torch.zeros(4 * n, dtype=torch.uint8), torch.ones(n, dtype=torch.uint8), group=group
    )
    delta = torch_mcast.stats(group) - before
    assert delta.gather_ops == 1
    assert delta.gather_bytes == n
    assert n <= delta.gather_sent_bytes <= 1.03 * n
    info = torch_mcast.info(group)
    assert (info.rank, info.size, info.fabric) == (dist.get_rank(), 4, fabric)
    gloo: Any = dist.new_group(backend="gloo")
    with pytest.raises(torch_mcast.ArgumentError, match="gloo"):
        torch_mcast.stats(gloo)


def test_counters_and_information(world: World, fabric: str) -> None:
    world.run(counts, fabric)


def functional() -> None:
    import torch.distributed._functional_collectives as fc

    gathered = fc.all_gather_tensor(torch.full((2,), float(dist.get_rank())), 0, dist.group.WORLD)
    assert gathered.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    summed = fc.reduce_scatter_tensor(torch.ones(8), "sum", 0, dist.group.WORLD)
    assert summed.tolist() == [4, 4]


def test_functional_collectives(world: World) -> None:
    world.run(functional)


def destroyed(fabric: str) -> None:
    for _ in range(3):  # names of groups and keys in the store come again
        group: Any = dist.new_group(backend="mcast", pg_options=torch_mcast.Options(fabric=fabric))
        dist.barrier(group=group)
        dist.destroy_process_group(group)


def test_groups_come_and_go(world: World, fabric: str) -> None:
    world.run(destroyed, fabric)
