"""Which collectives explain() calls exposed, and by which compute it would hide them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import torch_mcast.fsdp
from torch_mcast.explain import Explanation, Setup, Shards, explain
from torch_mcast.timeline import Event, Wait

from .world import World

SETUP = Setup(prefetch=0, backend="mcast")
MB = 1 << 20


def causes(e: Explanation) -> list[str]:
    return [f.cause for f in e.findings]


def step(
    layers: int, took: float, compute: float, ahead: int, nbytes: int = MB
) -> tuple[list[Event], list[Wait], float]:
    """Return what a forward records that gathers so many layers ahead, and how long it takes."""
    events: list[Event] = []
    waits: list[Wait] = []
    now = free = 0.0
    ends: dict[int, float] = {}
    for layer in range(layers):
        for k in range(layer, min(layer + ahead + 1, layers)):
            if k not in ends:
                free = ends[k] = max(now, free) + took
                events.append(Event("allgather", now, ends[k], nbytes, f"block{k}"))
        if ends[layer] > now:
            waits.append(Wait("allgather", now, ends[layer], f"block{layer}"))
            now = ends[layer]
        now += compute
    return events, waits, now


def test_few_prefetches_and_what_more_would_gain() -> None:
    events, waits, end = step(layers=10, took=1, compute=2, ahead=0)
    e = explain(events, waits, 0, end, SETUP)
    (f,) = e.findings
    assert f.cause == "few-prefetches"
    assert set(f.modules) == {f"block{k}" for k in range(10)}
    assert "prefetch=1" in f.remedy
    assert f.gain == pytest.approx(1 / 3)  # more than the 9 of 30 s that one ahead hides, and not much
    _, _, shorter = step(layers=10, took=1, compute=2, ahead=1)
    assert end - f.gain * end <= shorter <= end
    assert e.layers[0].exposed == pytest.approx(1)
    assert "few-prefetches: block0" in str(e)


def test_what_is_hidden_needs_no_word() -> None:
    events, waits, end = step(layers=40, took=1, compute=2, ahead=1)
    e = explain(events, waits, 0, end, replace(SETUP, prefetch=1))
    assert e.findings == ()
    assert "No trouble was found." in str(e)
    assert e.exposed == pytest.approx(1 / end)


def test_who_gathers_early_enough_need_not_do_so_earlier() -> None:
    events, waits, end = step(layers=20, took=1, compute=2, ahead=1)
    for k in range(2, 20, 3):  # another rank comes late
        events.append(Event("allgather", end, end + 3, MB, f"block{k}"))
        waits.append(Wait("allgather", end + 1, end + 3, f"block{k}"))
        end += 4
    e = explain(events, waits, 0, end, replace(SETUP, prefetch=1))
    assert e.exposed > 0.1
    assert e.findings == ()
    assert "mcast explain" in str(e)


def test_nothing_hides_more_than_is_computed() -> None:
    events, waits, end = step(layers=10, took=5, compute=0.1, ahead=2)
    assert causes(explain(events, waits, 0, end, replace(SETUP, prefetch=2))) == ["network-bound"]


def test_the_first_gather_has_nothing_before_it() -> None:
    events, waits, end = step(layers=6, took=1, compute=1.2, ahead=1)
    (f,) = explain(events, waits, 0, end, replace(SETUP, prefetch=1)).findings
    assert (f.cause, f.modules) == ("first-gather", ("block0",))


def test_a_first_gather_that_is_late_once_is_not_the_models_fault() -> None:
    """Ranks begin to record apart; the steps after that begin with the same gather and do not wait."""
    events = [Event("allgather", t, t + 1, MB, "embed") for t in (0, 10, 20)]
    waits = [Wait("allgather", 0, 8, "embed"), *(Wait("allgather", t, t + 0.1, "embed") for t in (10, 20))]
    assert causes(explain(events, waits, 0, 30, SETUP)) == []


def test_a_first_module_that_is_the_smallest_is_not_to_be_smaller() -> None:
    events, waits, end = step(layers=4, took=4, compute=4, ahead=1)
    equal = {f"block{i}": Shards(100, 100, 4) for i in range(4)}
    (f,) = explain(events, waits, 0, end, replace(SETUP, prefetch=1, shards=equal)).findings
    assert f.cause == "first-gather"
    assert "smaller" not in f.remedy
    for parameters, smaller in ((2, True), (1, False)):
        larger = equal | {"block0": Shards(900, 900, 4, parameters)}
        (f,) = explain(events, waits, 0, end, replace(SETUP, prefetch=1, shards=larger)).findings
        assert ("smaller first module" in f.remedy) == smaller, "an embedding by itself has one parameter"


def test_small_messages() -> None:
    events, waits, end = step(layers=50, took=1, compute=1, ahead=0, nbytes=1000)
    assert causes(explain(events, waits, 0, end, SETUP)) == ["small-messages"]


def test_gloo_is_named_before_what_follows_from_it() -> None:
    events, waits, end = step(layers=10, took=1, compute=2, ahead=0)
    assert causes(explain(events, waits, 0, end, replace(SETUP, backend="gloo"))) == ["gloo"]


def test_uneven_shards() -> None:
    events, waits, end = step(layers=40, took=1, compute=2, ahead=1)
    shards = {"block1": Shards(500, 800, 4), "block2": Shards(400, 400, 4)}
    (f,) = explain(events, waits, 0, end, replace(SETUP, prefetch=1, shards=shards)).findings
    assert (f.cause, f.modules) == ("uneven-shards", ("block1",))
    even = {"block1": Shards(790, 800, 4)}
    assert not explain(events, waits, 0, end, replace(SETUP, prefetch=1, shards=even)).findings


def test_reductions_that_had_to_block() -> None:
    events = [Event("reduce_scatter", 1, 2, MB, "block0")]
    waits = [Wait("reduce_scatter", 1, 2, "block0")]
    for reason, remedy in {
        "CPU offload: the result is copied": "a model without",
        "gradient accumulation: the result is added to a gradient": "zero_grad()",
        "defer_reduce_scatter=False": 'enable(defer_reduce_scatter="auto")',
    }.items():
        (f,) = explain(events, waits, 0, 3, replace(SETUP, reasons={"block0": reason})).findings
        assert (f.cause, f.modules) == ("blocked-reduce", ("block0",))
        assert reason in f.what
        assert f.remedy.startswith(remedy), "it does not advise what is done"
    assert not explain(events, waits, 0, 3, SETUP).findings  # the last of a backward has nothing behind it


def test_streams_of_a_gpu_are_not_judged_by_the_host() -> None:
    events, waits, end = step(layers=10, took=1, compute=2, ahead=0)
    assert not explain(events, waits, 0, end, replace(SETUP, on_gpu=True)).findings


def trains(backend: str) -> None:
    group: Any = dist.new_group(backend=backend)
    model = nn.Sequential(nn.Linear(64, 5), nn.Linear(5, 64))  # 5 rows for 4 ranks
    mesh = dist.device_mesh.init_device_mesh("cpu", (4,))
    for part in model:
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    handle = torch_mcast.fsdp.enable(model, prefetch=False, group=group)
    with pytest.raises(RuntimeError, match=r"handle\.timeline\.start"):
        handle.explain()
    handle.timeline.start()
    model(torch.ones(2, 64)).sum().backward()
    handle.timeline.stop()
    e = handle.explain()
    assert {(x.module, x.kind) for x in e.layers} == {
        (m, k) for m in ("0", "1") for k in ("allgather", "reduce_scatter")
    }
    assert all(x.exposed > 0 for x in e.layers if x.kind == "allgather")
    uneven = [f for f in e.findings if f.cause == "uneven-shards"]
    assert [f.modules[0] for f in uneven] == ["0"]
    assert ("gloo" in causes(e)) == (backend == "gloo")


@pytest.mark.parametrize("backend", ["mcast", "gloo"])
def test_a_model_is_explained(world: World, backend: str) -> None:
    world.run(trains, backend)
