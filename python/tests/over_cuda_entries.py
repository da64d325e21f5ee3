"""Scenarios of over_cuda.py: every collective on CUDA tensors gives the bits that it gives on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as distributed_module
import torch.distributed._functional_collectives as functional_module

from tests.over_cuda_rank import CUDA, RANK, SIZE, same, values
from tests.values import OPAQUE, SUMMABLE, reductions
from torch_mcast import errors

dist: Any = distributed_module  # torch types a part of them only
functional: Any = functional_module

Maker = Callable[[torch.Tensor], torch.Tensor]
Lister = Callable[[torch.Tensor], list[torch.Tensor]]


def strided(t: torch.Tensor) -> torch.Tensor:
    return torch.zeros(t.numel() * 2, dtype=t.dtype, device=CUDA)[::2].copy_(t)


def transposed(t: torch.Tensor) -> torch.Tensor:
    return torch.zeros(t.numel() // 2, 2, dtype=t.dtype, device=CUDA).t().copy_(t.view(2, -1))


def behind_others(t: torch.Tensor) -> torch.Tensor:
    return torch.zeros(t.numel() + 3, dtype=t.dtype, device=CUDA)[3:].copy_(t)


# How a tensor lies on the device, and how the equal parts of one do.
LAYOUTS: dict[str, tuple[Maker, Lister]] = {
    "contiguous": (lambda t: t.to(CUDA), lambda t: [part.to(CUDA) for part in t.chunk(SIZE)]),
    "strided": (strided, lambda t: [strided(part) for part in t.chunk(SIZE)]),
    "transposed": (transposed, lambda t: [transposed(part) for part in t.chunk(SIZE)]),
    "views of one buffer": (behind_others, lambda t: list(behind_others(t).chunk(SIZE))),
}


class Checked:
    """How many results were compared."""

    def __init__(self) -> None:
        self.results = 0

    def __call__(self, got: torch.Tensor | list[torch.Tensor], want: torch.Tensor, what: str) -> None:
        if isinstance(got, list):
            got = torch.cat([t.cpu().flatten() for t in got])
        assert same(got, want), what
        self.results += 1


def entries() -> int:
    """Compare every form, type and layout; return how many results were."""
    check = Checked()
    for dtype in (*SUMMABLE, *OPAQUE):
        for layout in LAYOUTS:
            moved(check, 38, dtype, layout)
            if dtype in SUMMABLE:
                summed(check, 38, dtype, layout)
    for count in (1, 37, 20_000):
        for layout in ("contiguous", "strided"):
            moved(check, count, torch.float32, layout)
            summed(check, count, torch.float32, layout)
    every_reduction(check)
    reduced_to_one(check)
    uneven(check)
    sparse(check)
    pieces(check)
    return check.results


def moved(check: Checked, count: int, dtype: torch.dtype, layout: str) -> None:
    """Compare what moves elements without looking into them."""
    on, parts_on = LAYOUTS[layout]
    text = f"{count} of {dtype}, {layout}"
    mine, nothing = values(RANK, count, dtype), torch.zeros(count * SIZE, dtype=dtype)
    want = torch.cat([values(r, count, dtype) for r in range(SIZE)])

    out = on(nothing)
    dist.all_gather_into_tensor(out, on(mine))
    check(out, want, f"all_gather_into_tensor, {text}")

    outs = parts_on(nothing)
    dist.all_gather(outs, on(mine))
    check(outs, want, f"all_gather, {text}")

    root = count % SIZE
    got = on(mine)
    dist.broadcast(got, root)
    check(got, values(root, count, dtype), f"broadcast, {text}")


def summed(check: Checked, count: int, dtype: torch.dtype, layout: str) -> None:
    on, parts_on = LAYOUTS[layout]
    text = f"{count} of {dtype}, {layout}"
    mine, whole = values(RANK, count, dtype), values(RANK, count * SIZE, dtype, 1)
    nothing, want, total = torch.zeros(count, dtype=dtype), torch.zeros(count, dtype=dtype), mine.clone()
    dist.reduce_scatter_tensor(want, whole)
    dist.all_reduce(total)

    out = on(nothing)
    dist.reduce_scatter_tensor(out, on(whole))
    check(out, want, f"reduce_scatter_tensor, {text}")

    out = on(nothing)
    dist.reduce_scatter(out, parts_on(whole))
    check(out, want, f"reduce_scatter, {text}")

    got = on(mine)
    dist.all_reduce(got)
    check(got, total, f"all_reduce, {text}")


def every_reduction(check: Checked) -> None:
    for dtype, op, passed, count in reductions():
        text = f"{op} of {count} of {dtype}"
        mine, whole = values(RANK, count, dtype, 2), values(RANK, count * SIZE, dtype, 3)
        got, total = mine.to(CUDA), mine.clone()
        dist.all_reduce(got, op=passed)
        dist.all_reduce(total, op=passed)
        check(got, total, f"all_reduce, {text}")
        out, want = torch.zeros(count, dtype=dtype, device=CUDA), torch.zeros(count, dtype=dtype)
        dist.reduce_scatter_tensor(out, whole.to(CUDA), op=passed)
        dist.reduce_scatter_tensor(want, whole, op=passed)
        check(out, want, f"reduce_scatter_tensor, {text}")


def reduced_to_one(check: Checked) -> None:
    for number, (dtype, op, passed, count) in enumerate(reductions()):
        root, on = number % SIZE, (behind_others, strided)[number % 2]
        mine = values(RANK, count, dtype, 4)
        got, want = on(mine), mine.clone()
        dist.reduce(got, root, passed)
        dist.reduce(want, root, passed)
        check(got, want, f"reduce to {root}, {op} of {count} of {dtype}")
    big = values(RANK, 70_000_000 // SIZE, torch.uint8, 5)  # in pieces
    got, want = big.to(CUDA), big.clone()
    work = dist.reduce(got, SIZE - 1, dist.ReduceOp.BXOR, async_op=True)
    assert work is not None
    work.wait()
    dist.reduce(want, SIZE - 1, dist.ReduceOp.BXOR)
    check(got, want, "reduce in pieces")


def uneven(check: Checked) -> None:
    """Compare a reduce_scatter of different sizes: apart, in place, and where the result overlaps inputs."""
    sizes = [1000 * r + 1 for r in range(SIZE)]
    for dtype in (torch.float32, torch.bfloat16, torch.bool):
        whole = values(RANK, sum(sizes), dtype, 6)
        want = torch.zeros(sizes[RANK], dtype=dtype)
        dist.reduce_scatter(want, list(whole.split(sizes)))
        for where in ("apart", "in place", "strided", "across inputs"):
            memory = torch.zeros(2 * sum(sizes), dtype=dtype, device=CUDA)
            parts = list(memory[: sum(sizes)].copy_(whole).split(sizes))
            out = {
                "apart": torch.zeros_like(want, device=CUDA),
                "in place": parts[RANK],
                "strided": memory[::2][: sizes[RANK]],
                "across inputs": memory[SIZE // 2 :][: sizes[RANK]],
            }[where]
            dist.reduce_scatter(out, parts)
            check(out, want, f"reduce_scatter of different sizes of {dtype}, {where}")


def sparse(check: Checked) -> None:
    """Compare sums of sparse tensors, of a rank with no elements as well."""
    for dtype in (torch.float32, torch.int64):
        for shape in ([40], [40, 3]):
            count = 50 * RANK
            places = values(RANK, count, torch.int64, 7)[None]
            elements = values(RANK, count, dtype, 8).view(count, *[1] * (len(shape) - 1)).expand(count, *shape[1:])
            mine = torch.sparse_coo_tensor(places, elements, shape, check_invariants=True)
            got = mine.to(CUDA)
            dist.all_reduce(got)
            dist.all_reduce(mine)
            assert got.is_coalesced()
            check(got.indices(), mine.indices(), f"indices of a sparse sum of {dtype}")
            check(got.values(), mine.values(), f"values of a sparse sum of {dtype}")


def pieces(check: Checked) -> None:
    """Compare operations that are larger than a piece of staging memory, and of different sizes."""
    big = 3_000_000
    whole = values(RANK, big * SIZE, torch.float32)
    part, wanted = torch.zeros(big, device=CUDA), torch.zeros(big)
    dist.reduce_scatter_tensor(part, whole.cuda(), op=dist.ReduceOp.AVG)
    dist.reduce_scatter_tensor(wanted, whole, op=dist.ReduceOp.AVG)
    check(part, wanted, "reduce_scatter_tensor in pieces")
    place = torch.zeros(big * SIZE, device=CUDA)
    own = place[RANK * big : (RANK + 1) * big].copy_(part)
    dist.all_gather_into_tensor(place, own)
    want = torch.zeros(big * SIZE)
    dist.all_gather_into_tensor(want, wanted)
    check(place, want, "all_gather_into_tensor in place, in pieces")
    uneven = [torch.zeros(r + 1, device=CUDA) for r in range(SIZE)]
    dist.all_gather(uneven, torch.full((RANK + 1,), float(RANK), device=CUDA))
    for r, t in enumerate(uneven):
        check(t, torch.full((r + 1,), float(r)), "all_gather of different sizes")


COUNTS = (5, 0, 1000)  # of the coalesced tensors


def coalesced() -> int:
    """Compare what does several operations as one work; return how many results were."""
    check = Checked()
    mine = [values(RANK, n, torch.float32, n) for n in COUNTS]
    wide = [values(RANK, n * SIZE, torch.float32, n + 1) for n in COUNTS]
    gathered = [torch.cat([values(r, n, torch.float32, n) for r in range(SIZE)]) for n in COUNTS]
    total, scattered = [t.clone() for t in mine], [torch.zeros(n) for n in COUNTS]
    for t, out, whole in zip(total, scattered, wide, strict=True):
        dist.all_reduce(t)
        dist.reduce_scatter_tensor(out, whole)

    def given(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [t.to(CUDA) for t in tensors]

    def room(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.zeros_like(t, device=CUDA) for t in tensors]

    def compare(got: list[torch.Tensor], want: list[torch.Tensor], what: str) -> None:
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            check(g, w, f"{what}, {COUNTS[i]} elements")

    lists = [room(mine) for _ in range(SIZE)]
    dist.all_gather_coalesced(lists, given(mine))
    compare([torch.cat(of_all) for of_all in zip(*lists, strict=True)], gathered, "all_gather_coalesced")
    sums = given(mine)
    dist.all_reduce_coalesced(sums)
    compare(sums, total, "all_reduce_coalesced")

    for name, args, want in (
        ("all_gather_into_tensor_coalesced", (given(mine),), gathered),
        ("reduce_scatter_tensor_coalesced", (given(wide), "sum", [0] * len(COUNTS)), scattered),
        ("all_reduce_coalesced", (given(mine), "sum"), total),
    ):
        got = getattr(functional, name)(*args, dist.group.WORLD)
        compare([functional.wait_tensor(t) for t in got], want, f"functional.{name}")

    for call, outs, ins, want in (
        (dist.all_gather_into_tensor, room(gathered), given(mine), gathered),
        (dist.reduce_scatter_tensor, room(mine), given(wide), scattered),
    ):
        with dist._coalescing_manager(device=CUDA, async_ops=True) as together:
            for out, t in zip(outs, ins, strict=True):
                call(out, t)
        together.wait()
        compare(outs, want, f"_coalescing_manager, {call.__name__}")
    sums = given(mine)
    with dist._coalescing_manager(device=CUDA):
        for t in sums:
            dist.all_reduce(t)
    compare(sums, total, "_coalescing_manager, all_reduce")
    return check.results


def empty() -> None:
    """Do all with no elements."""

    def nothing() -> torch.Tensor:
        return torch.zeros(0, device=CUDA)

    dist.all_gather_into_tensor(nothing(), nothing())
    dist.all_gather([nothing() for _ in range(SIZE)], nothing())
    dist.reduce_scatter_tensor(nothing(), nothing())
    dist.reduce_scatter(nothing(), [nothing() for _ in range(SIZE)])
    dist.all_reduce(nothing())
    dist.reduce(nothing(), SIZE - 1)
    dist.broadcast(nothing(), SIZE - 1)
    torch.cuda.synchronize()


def messages() -> int:
    """Compare what goes from rank to rank, of tensors that the stream is still to fill; return how many were."""
    check = Checked()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        for layout in LAYOUTS:
            for count in (2, 20_000):
                exchanged(check, count, dtype, layout)
    return check.results


def exchanged(check: Checked, count: int, dtype: torch.dtype, layout: str) -> None:
    on, parts_on = LAYOUTS[layout]
    text = f"{count} of {dtype}, {layout}"

    def given(source: int, to: int) -> torch.Tensor:
        return values(source, count, dtype, 1 + to)

    row = torch.cat([given(RANK, to) for to in range(SIZE)])
    column = torch.cat([given(source, RANK) for source in range(SIZE)])
    nothing = torch.zeros_like(column)

    if layout != "transposed":  # of 2 rows, which not every number of ranks can share
        got = on(nothing)
        dist.all_to_all_single(got, on(row))
        check(got, column, f"all_to_all_single, {text}")

    outs = parts_on(nothing)
    dist.all_to_all(outs, parts_on(row))
    check(outs, column, f"all_to_all, {text}")

    root = count % SIZE
    outs = parts_on(nothing)
    dist.gather(on(given(RANK, root)), outs if root == RANK else None, root)
    if root == RANK:
        check(outs, column, f"gather, {text}")
    else:
        check(outs, nothing, f"gather elsewhere, {text}")

    got = on(nothing[:count])
    dist.scatter(got, parts_on(row) if root == RANK else None, root)
    check(got, given(root, RANK), f"scatter, {text}")

    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    got = on(nothing[:count])
    sent = dist.isend(on(given(RANK, to)), to)
    received = dist.irecv(got, source)
    assert sent is not None
    assert received is not None
    received.wait()
    sent.wait()
    check(got, given(source, RANK), f"isend and irecv, {text}")


def refused() -> dict[str, str]:
    """Return the messages for wrong arguments; none of the errors ends the group."""

    def on(device: Any, count: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(count, device=device, dtype=dtype)

    def recorded() -> None:
        with patch.object(torch.cuda, "is_current_stream_capturing", lambda: True):
            dist.all_reduce(on(CUDA))

    def waited() -> None:
        work = dist.all_reduce(on(CUDA), async_op=True)
        try:
            with patch.object(torch.cuda, "is_current_stream_capturing", lambda: True):
                work.wait()
        finally:
            work.wait()

    calls: dict[str, Callable[[], Any]] = {
        "CPU and CUDA": lambda: dist.all_gather_into_tensor(on(CUDA, 3 * SIZE), on("cpu")),
        "CUDA in a list of CPU": lambda: dist.all_gather([on("cpu")] * (SIZE - 1) + [on(CUDA)], on("cpu")),
        "Allgather's size": lambda: dist.all_gather_into_tensor(on(CUDA, 5), on(CUDA)),
        "Reduce-Scatter's size": lambda: dist.reduce_scatter_tensor(on(CUDA), on(CUDA, 7)),
        "a list's length": lambda: dist.all_gather([on(CUDA)] * (SIZE + 1), on(CUDA)),
        "a list's sizes": lambda: dist.all_gather([on(CUDA, 2)] * SIZE, on(CUDA)),
        "inputs' sizes": lambda: dist.reduce_scatter(on(CUDA), [on(CUDA, 4)] * SIZE),
        "types": lambda: dist.all_gather_into_tensor(on(CUDA, 3 * SIZE), on(CUDA, 3, torch.int32)),
        "BAND": lambda: dist.all_reduce(on(CUDA), op=dist.ReduceOp.BAND),
        "AVG of integers": lambda: dist.reduce(on(CUDA, 3, torch.int32), 0, op=dist.ReduceOp.AVG),
        "a CUDA graph": recorded,
        "a wait in a CUDA graph": waited,
    }
    if torch.cuda.device_count() > 1:
        calls["two devices"] = lambda: dist.all_gather_into_tensor(on(CUDA, 3 * SIZE), on("cuda:1"))
    said = {}
    for what, call in calls.items():
        try:
            call()
            said[what] = "nothing"
        except (errors.UnsupportedError, errors.ArgumentError) as e:
            said[what] = str(e)
    after = torch.full((3,), 1.0, device=CUDA)
    dist.all_reduce(after)
    said["after"] = str(after.tolist())
    return said
