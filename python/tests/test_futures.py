"""Callbacks of futures may wait for any future, and futures are completed in posting order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook, quantization

from torch_mcast.group import Lane

from .host import pair
from .limits import LIMIT_S
from .test_group import Operation
from .values import SINCE_2_15
from .world import World


def posted(kind: str, value: float, group: Any = None) -> Any:
    size, mine = dist.get_world_size(group), torch.full((4,), value)
    if kind == "reduce":
        work = dist.reduce_scatter_tensor(mine, torch.full((4 * size,), value), group=group, async_op=True)
    elif kind == "gather":
        work = dist.all_gather_into_tensor(torch.zeros(4 * size), mine, group=group, async_op=True)
    elif kind == "barrier":
        work = dist.barrier(group=group, async_op=True)
    elif kind == "coalesced":
        return dist.all_reduce_coalesced([mine, mine.clone()], group=group, async_op=True)
    else:
        work = dist.all_reduce(mine, group=group, async_op=True)
    assert work is not None
    return work.get_future()


KINDS = ("both", "reduce", "gather", "barrier", "coalesced")


def waits(kinds: tuple[str, ...], group: Any = None) -> list[str]:
    """Wait for an operation in the callback of the one before, as deep as there are kinds."""
    done: list[str] = []

    def deeper(left: tuple[str, ...]) -> Callable[[Any], None]:
        def callback(_: Any) -> None:
            done.append(left[0])
            if left[1:]:
                posted(left[1], 1.0, group).then(deeper(left[1:])).wait()

        return callback

    posted(kinds[0], 1.0, group).then(deeper(kinds)).wait()
    return done


def nested() -> None:
    pairs = [(a, b) for a in KINDS for b in KINDS]
    for kinds in [*pairs, KINDS, ("both",) * 10]:
        assert waits(kinds) == list(kinds)
    odd = dist.new_group([1, 3])
    even = dist.new_group([0, 2])
    mine = odd if dist.get_rank() % 2 else even
    assert waits(KINDS, mine) == list(KINDS)
    inner: list[list[str]] = []
    posted("both", 1.0).then(lambda _: inner.append(waits(KINDS, mine))).wait()
    assert inner == [list(KINDS)]
    dist.destroy_process_group(mine)


def test_a_callback_waits_for_later_operations(world: World) -> None:
    world.run(nested)


def in_order() -> None:
    order: list[int] = []
    futures = [posted("both", float(n)) for n in range(200)]
    told = [future.then(lambda _, n=n: order.append(n)) for n, future in enumerate(futures)]
    torch.futures.wait_all(told)
    assert sorted(order) == list(range(200))
    failing = posted("both", 1.0).then(lambda _: [0][3])
    with pytest.raises(RuntimeError, match="IndexError"):
        failing.wait()
    posted("both", 1.0).wait()


def test_callbacks_that_raise_and_many_of_them(world: World) -> None:
    world.run(in_order)


def test_a_callback_waits_for_the_callback_of_a_later_operation() -> None:
    lane, later, ended = Lane(), threading.Event(), threading.Event()
    told: list[str] = []

    class Blocking(Operation):
        def complete_future(self, tell: Callable[[], None]) -> None:
            tell()
            if later.wait(LIMIT_S):
                told.append("first")
            ended.set()

    lane.watch(Blocking())
    lane.watch(Operation(later.set))
    assert ended.wait(LIMIT_S)
    assert told == ["first"]
    lane.clear()


def test_futures_are_complete_in_posting_order() -> None:
    lane, ended = Lane(), threading.Event()
    told: list[int] = []

    class Numbered(Operation):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def complete_future(self, tell: Callable[[], None]) -> None:
            told.append(self.number)
            tell()
            if self.number == 499:
                ended.set()

    for number in range(500):
        lane.watch(Numbered(number))
    assert ended.wait(LIMIT_S)
    assert told == list(range(500))
    lane.clear()


def complete_after_wait() -> None:
    for work in (dist.all_reduce(torch.ones(4), async_op=True), dist.barrier(async_op=True)):
        assert work is not None
        work.wait()
        assert work.get_future().done()
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4, bias=False))
    with model.join(divide_by_initial_world_size=False):
        for _ in range(3 + dist.get_rank()):
            model(torch.ones(1, 4)).sum().backward()
            assert torch.equal(model.module.weight.grad, torch.ones(4, 4))
            model.zero_grad()


def test_the_future_of_an_operation_that_is_done_is_complete(world: World) -> None:
    world.run(complete_after_wait)


QUANTIZED = (quantization.quantization_pertensor_hook, quantization.quantization_perchannel_hook)


def trained() -> None:
    def hooks() -> list[tuple[Any, Any]]:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        everyone = dist.group.WORLD
        return [
            (state, powerSGD_hook.powerSGD_hook),
            # Those of torch before 2.15 fail by themselves.
            *((everyone, hook) for hook in QUANTIZED if SINCE_2_15),
        ]

    for state, hook in hooks():
        torch.manual_seed(0)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)))
        model.register_comm_hook(state, hook)
        for step in range(3):
            model(torch.full((2, 64), float(dist.get_rank() + step))).sum().backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_torchs_own_hooks_that_wait(world: World) -> None:
    world.run(trained)


@pytest.mark.parametrize("turn", range(3))  # the program and the callback race to their ends
def test_a_callback_leaves_the_group(turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair(
        """
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
        future.then(lambda _: dist.destroy_process_group()).wait()
        assert not dist.is_initialized()
        if RANK == 0:
            assert peer.wait(LIMIT_S) == 0
        """,
        monkeypatch,
    )


def test_a_program_that_fails_ends_beside_a_callback_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pair(
        """
        store = dist.distributed_c10d._get_default_store()
        if RANK == 0:
            store.wait(["has a callback"], LIMIT)
            dist.all_reduce(torch.ones(3))
            assert peer.wait(LIMIT_S) == 3
        else:
            running = threading.Event()
            future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
            future.then(lambda _: (running.set(), time.sleep(2 * LIMIT_S)))
            store.set("has a callback", "")
            assert running.wait(LIMIT_S)
            sys.exit(3)
        """,
        monkeypatch,
    )
