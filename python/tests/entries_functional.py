"""What the functional collectives must do on four ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed._functional_collectives as functional_module

from .entries import ENTRIES, Check, dist, everybody, own

functional: Any = functional_module  # torch has types for a part only


def entry(check: Check) -> Check:
    """Take the check of the functional collective of the same name."""
    ENTRIES[f"functional.{check.__name__}"] = check
    return check


def by_name(name: str) -> Callable[..., Any]:
    """Return the functional collective, which an older torch may lack; then its check is not run."""
    return lambda *args: getattr(functional, name)(*args)


def gathers(call: Callable[..., Any]) -> Check:
    def check(rank: int, size: int) -> None:
        got = call(own(rank), 0, dist.group.WORLD)
        assert torch.equal(functional.wait_tensor(got), everybody(size))

    return check


def scatters(call: Callable[..., Any]) -> Check:
    def check(rank: int, size: int) -> None:
        got = functional.wait_tensor(call(torch.arange(3.0 * size), "sum", 0, dist.group.WORLD))
        assert torch.equal(got, size * torch.arange(3.0 * rank, 3.0 * rank + 3))

    return check


def gathers_pairs(call: Callable[..., Any]) -> Check:
    def check(rank: int, size: int) -> None:
        got = call([own(rank, 2), own(rank, 5)], dist.group.WORLD)
        for tensor, n in zip(got, (2, 5), strict=True):
            assert torch.equal(functional.wait_tensor(tensor), everybody(size, n))

    return check


def scatters_pairs(call: Callable[..., Any]) -> Check:
    def check(rank: int, size: int) -> None:
        got = call([torch.ones(2 * size), torch.ones(5 * size)], "sum", [0, 0], dist.group.WORLD)
        assert [functional.wait_tensor(t).tolist() for t in got] == [[4.0] * 2, [4.0] * 5]

    return check


for _name in (
    "all_gather_tensor", "all_gather_tensor_autograd", "all_gather_single", "all_gather_single_autograd",
):  # fmt: skip
    ENTRIES[f"functional.{_name}"] = gathers(by_name(_name))
for _name in (
    "reduce_scatter_tensor", "reduce_scatter_tensor_autograd", "reduce_scatter_single",
    "reduce_scatter_single_autograd",
):  # fmt: skip
    ENTRIES[f"functional.{_name}"] = scatters(by_name(_name))
for _name in ("all_gather_into_tensor_coalesced", "all_gather_single_coalesced"):
    ENTRIES[f"functional.{_name}"] = gathers_pairs(by_name(_name))
for _name in ("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"):
    ENTRIES[f"functional.{_name}"] = scatters_pairs(by_name(_name))


@entry
def all_reduce(rank: int, size: int) -> None:
    got = functional.all_reduce(own(rank), "sum", dist.group.WORLD)
    assert functional.wait_tensor(got).tolist() == [10.0] * 3


@entry
def all_reduce_coalesced(rank: int, size: int) -> None:
    got = functional.all_reduce_coalesced([own(rank, 2), own(rank, 5)], "max", dist.group.WORLD)
    assert [functional.wait_tensor(t).tolist() for t in got] == [[4.0] * 2, [4.0] * 5]


@entry
def broadcast(rank: int, size: int) -> None:
    got = functional.broadcast(own(rank), 3, dist.group.WORLD)
    assert torch.equal(functional.wait_tensor(got), own(3))


def swaps(call: Callable[..., Any]) -> Check:
    def check(rank: int, size: int) -> None:
        got = call(own(rank, size), [1] * size, [1] * size, dist.group.WORLD)
        assert torch.equal(functional.wait_tensor(got), everybody(size, 1))

    return check


for _name in ("all_to_all_single", "all_to_all_single_autograd"):
    ENTRIES[f"functional.{_name}"] = swaps(by_name(_name))


@entry
def permute_tensor(rank: int, size: int) -> None:
    got = functional.permute_tensor(own(rank), [(r + 1) % size for r in range(size)], dist.group.WORLD)
    assert torch.equal(functional.wait_tensor(got), own((rank - 1) % size))


@entry
def wait_tensor(rank: int, size: int) -> None:
    pending = [functional.all_reduce(own(rank), "sum", dist.group.WORLD) for _ in range(3)]
    assert [functional.wait_tensor(t).tolist() for t in pending] == [[10.0] * 3] * 3


@entry
def wait_tensors(rank: int, size: int) -> None:
    pending = [functional.all_reduce(own(rank), "sum", dist.group.WORLD) for _ in range(3)]
    assert [t.tolist() for t in functional.wait_tensors(pending)] == [[10.0] * 3] * 3
