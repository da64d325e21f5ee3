"""Sums of sparse tensors."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllreduceCoalescedOptions

import torch_mcast
from torch_mcast.registry import backend_of

from .values import group_of, sparse_ones
from .world import World

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.complex64,
]  # fmt: skip


def drawn(rank: int, nnz: int, shape: list[int], sparse: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor with places that come up more than once, on a rank and on several."""
    made = torch.Generator().manual_seed(100 * rank + nnz)
    rows = [torch.randint(0, length, (nnz,), generator=made) for length in shape[:sparse]]
    values = torch.randint(0, 5, (nnz, *shape[sparse:]), generator=made).to(dtype)
    return torch.sparse_coo_tensor(torch.stack(rows), values, shape, check_invariants=True)


def sums(fabric: str, size: int) -> None:
    group, rank = group_of(fabric, size), dist.get_rank()
    if rank >= size:
        return
    for dtype in DTYPES:
        for shape, sparse in (([50], 1), ([7, 9], 2), ([20, 3, 2], 1), ([4, 5, 6, 2], 3)):
            for counts in ([3, 9, 0, 40], [0, 0, 0, 0], [5, 5, 5, 5]):
                inputs = [drawn(r, counts[r], shape, sparse, dtype) for r in range(size)]
                wide = torch.complex128 if dtype.is_complex else torch.float64
                want = torch.stack([t.to_dense().to(wide) for t in inputs]).sum(0).to(dtype)
                for mine in (inputs[rank].clone(), inputs[rank].coalesce()):
                    group.allreduce([mine]).wait()  # dist.all_reduce has a copy of complex ones reduced
                    assert mine.is_coalesced()
                    assert mine.shape == want.shape
                    assert torch.equal(mine.to_dense(), want), (dtype, shape, counts)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sums_of_sparse_tensors(world: World, fabric: str, size: int) -> None:
    world.run(sums, fabric, size)


def same_on_all_ranks(fabric: str) -> list[Any]:
    """Return the bits of sums that depend on the order of additions."""
    group, rank = group_of(fabric, 4), dist.get_rank()
    made = torch.Generator().manual_seed(rank)
    count = 1000 + 100 * rank
    values = torch.randn(count, 8, generator=made) * 10.0 ** torch.randint(-9, 9, (count, 1), generator=made)
    mine = torch.sparse_coo_tensor(torch.randint(0, 300, (1, count), generator=made), values, (300, 8))
    dist.all_reduce(mine, group=group)
    return [mine.indices().tolist(), mine.values().view(torch.int32).tolist()]


def test_all_ranks_get_the_same_bits(world: World, fabric: str) -> None:
    first, *others = world.run(same_on_all_ranks, fabric)
    assert all(other == first for other in others)


def joined() -> None:
    backend: Any = backend_of(None)  # torch's own all_reduce_coalesced takes no sparse tensors
    rank = dist.get_rank()
    a, c = (sparse_ones([[rank, 0]], n) for n in (4, 5))
    b = torch.full((2,), float(rank))
    work = backend.allreduce_coalesced([a, b, c], AllreduceCoalescedOptions())
    outputs = work.get_future().wait()
    assert [t.to_dense().tolist() for t in outputs] == [[5, 1, 1, 1], [6, 6], [5, 1, 1, 1, 0]]
    assert work.is_completed()
    leaf = sparse_ones([[rank]], 4).requires_grad_()
    with torch.inference_mode():
        kept = sparse_ones([[rank]], 4)
        first = dist.all_reduce(kept, async_op=True)
    second = dist.all_reduce(leaf, async_op=True)
    assert first is not None
    assert second is not None
    done: list[Any] = []
    first.get_future().then(lambda f: done.extend(f.value())).wait()
    assert done[0].to_dense().tolist() == [1.0] * 4
    second.wait()
    assert leaf.detach().to_dense().tolist() == [1.0] * 4


def test_sparse_tensors_among_others(world: World) -> None:
    world.run(joined)


def unlike() -> list[str]:
    rank, said = dist.get_rank(), []
    for t in (
        sparse_ones([[0]], 5 if rank == 2 else 6),
        sparse_ones([[0]], 6).double() if rank == 1 else sparse_ones([[0]], 6),
        sparse_ones([[0], [0]] if rank == 3 else [[0]], 6, 1),
    ):
        with pytest.raises(torch_mcast.ArgumentError) as caught:
            dist.all_reduce(t)
        said.append(str(caught.value))
    with pytest.raises(torch_mcast.ArgumentError, match="all_reduce: MAX of sparse tensors: they have SUM alone"):
        dist.all_reduce(sparse_ones([[0]], 6), dist.ReduceOp.MAX)
    after = sparse_ones([[rank]], 4)
    dist.all_reduce(after)
    assert after.to_dense().tolist() == [1.0] * 4
    return said


def test_tensors_that_differ_are_an_error_on_every_rank(world: World) -> None:
    said, *others = world.run(unlike)
    assert all(other == said for other in others)
    differ = ("rank 2 torch.float32 of shape [5]", "rank 1 torch.float64", "first 2 dimensions")
    for words, told in zip(differ, said, strict=True):
        assert words in told
        assert told.startswith("all_reduce: a sparse tensor on rank 0 is torch.float32 of shape [6")
        assert told.endswith("they must be alike")


class Words(torch.nn.Module):
    """An embedding with sparse gradients, and a layer with dense ones."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.EmbeddingBag(100, 8, sparse=True)
        self.out = torch.nn.Linear(8, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.embedding(words))
        return scores


def embeddings(fabric: str) -> None:
    from torch.nn.parallel import DistributedDataParallel

    group, rank = group_of(fabric, 4), dist.get_rank()
    torch.manual_seed(5)
    alone = Words()
    model = copy.deepcopy(alone)
    words = torch.randint(0, 100, (4, 6, 5))
    parallel = DistributedDataParallel(model, process_group=group)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, alone)]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        parallel(words[rank]).square().mean().backward()
        alone(words.view(-1, 5)).square().mean().backward()
        grad = model.embedding.weight.grad
        assert grad is not None
        assert grad.is_sparse
        for p, q in zip(model.parameters(), alone.parameters(), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            got, want = (g.to_dense() if g.is_sparse else g for g in (p.grad, q.grad))
            torch.testing.assert_close(got, want)
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_distributed_data_parallel_with_sparse_gradients(world: World, fabric: str) -> None:
    world.run(embeddings, fabric)
