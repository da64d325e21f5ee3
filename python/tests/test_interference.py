"""What compute and communication cost each other: the arithmetic, and a calibration of a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import torch_mcast
from torch_mcast.interference import Calibration, compare, spread
from torch_mcast.param_groups import param_groups
from torch_mcast.timeline import Summary

from .world import World


def step(compute: float, gathers: float = 0.0, reduces: float = 0.0) -> Summary:
    return Summary(compute + gathers + reduces, gathers, reduces, compute, 0.0, 0.0, 0.0, 0.0)


def test_effects_are_of_medians() -> None:
    calibration = Calibration(compute=(0.1, 0.1, 0.1, 9.0), communication=(0.04, 0.04, 0.04))
    got = compare(calibration, [step(0.125, 0.01, 0.02), step(0.125, 0.02, 0.01), step(7.0, 0.0, 0.03)])
    assert got.steps == 3
    assert (got.compute_alone, got.compute) == (0.1, 0.125)
    assert got.slowdown == pytest.approx(0.25)
    assert got.exposed == pytest.approx(0.03)
    assert got.exposed_share == pytest.approx(0.75)
    assert got.exposed_spread == pytest.approx(0.0)


def test_the_text_says_an_effect() -> None:
    said = str(compare(Calibration((0.1, 0.1), (0.04, 0.04)), [step(0.125, 0.03)] * 4))
    assert said == (
        "compute: 125.00 ms a step, 100.00 ms alone: 25.0% slower (varies by 0.0%)\n"
        "communication: 40.00 ms alone, 30.00 ms exposed: 75.0% of that (varies by 0.0%); medians of 4 steps"
    )


def test_the_text_claims_nothing_within_the_spread() -> None:
    calibration = Calibration((0.08, 0.1, 0.12), (0.02, 0.04, 0.06))
    got = compare(calibration, [step(0.09, 0.0), step(0.105, 0.01), step(0.12, 0.05)])
    assert got.slowdown_spread > got.slowdown > 0
    assert "no difference beyond the" in str(got)
    assert "10.00 ms exposed: no more than the" in str(got)


def test_one_step_has_no_spread_and_no_effect() -> None:
    assert spread([1.0]) == float("inf")
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == 2.0
    assert "no difference beyond the inf" in str(compare(Calibration((0.1, 0.1), (0.1, 0.1)), [step(0.5)]))


def test_without_communication_nothing_is_exposed() -> None:
    got = compare(Calibration((0.1, 0.1), (0.0, 0.0)), [step(0.1)] * 2)
    assert (got.exposed_share, got.exposed_spread) == (0.0, 0.0)


def calibrated() -> tuple[int, list[float], str]:
    torch.manual_seed(5)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(3)))
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for part in model:
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    handle = torch_mcast.fsdp.enable(model)
    with pytest.raises(torch_mcast.ArgumentError, match=r"call calibrate\(\)"):
        print(handle.interference)
    before = [p.full_tensor().clone() for p in model.parameters()]  # type: ignore[attr-defined]
    x = torch.ones(4, 32)
    sums: list[float] = []

    def train() -> None:
        model(x).sum().backward()

    def gradients() -> list[torch.Tensor]:
        train()
        return [p.grad.full_tensor() for p in model.parameters()]  # type: ignore[union-attr]

    want = gradients()
    model.zero_grad()
    with pytest.raises(torch_mcast.ArgumentError, match="trials is 1"):
        handle.interference.calibrate(train, trials=1)
    stats = torch_mcast.stats()
    found = handle.interference.calibrate(train, trials=3)
    counted = torch_mcast.stats() - stats
    assert len(found.compute) == len(found.communication) == 3
    assert all(seconds > 0 for seconds in (*found.compute, *found.communication))
    assert all(p.grad is None for p in model.parameters())
    for parameter, original in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.full_tensor(), original)  # type: ignore[attr-defined]
    for _ in range(3):
        with handle.interference.step():
            got = gradients()
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
        model.zero_grad()
        sums.append(handle.interference.steps[-1].span)
    assert handle.interference.result().steps == 3
    return counted.reduce_ops, sums, repr(handle)


def test_a_model_is_calibrated_and_the_handle_says_what_was_found(world: World) -> None:
    for reduce_ops, spans, said in world.run(calibrated):
        # One step, its collectives four times over, and the step that ends it: three Reduce-Scatters each.
        assert reduce_ops == 3 * (1 + 4 + 1)
        assert all(span > 0 for span in spans)
        assert "ms alone" in said
        assert "medians of 3 steps" in said


Settings = list[tuple[bool, bool, bool, bool]]


def sharded() -> Any:
    torch.manual_seed(5)
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(4)))
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for part in model:
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def settings(model: Any) -> Settings:
    return [
        (g.reduce_grads, g.all_reduce_grads, g.reshard_after_backward, g.post_forward_mesh_info is not None)
        for part in model
        for g in param_groups(part)
    ]


def calibrated_as_set() -> tuple[Settings, Settings]:
    """Return settings before and after a calibration; check the gradients that follow it."""
    model = sharded()
    handle = torch_mcast.fsdp.enable(model)
    x = torch.ones(4, 32)

    def train() -> None:
        model(x).sum().backward()

    train()
    want = [p.grad.full_tensor() for p in model.parameters()]
    model.zero_grad()
    model[0].set_reshard_after_backward(False)
    model[1].set_requires_all_reduce(False)
    model[2].set_requires_gradient_sync(False)
    model[3].set_reshard_after_forward(False)
    before = settings(model)
    handle.interference.calibrate(train, trials=2)
    after = settings(model)
    for part in model:
        part.set_reshard_after_backward(True)
        part.set_requires_gradient_sync(True)
    train()
    got = [p.grad.full_tensor() for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))

    del param_groups(model[1])[0].reshard_after_backward
    with pytest.raises(torch_mcast.UnsupportedError, match="does not show them, to be set back"):
        handle.interference.calibrate(lambda: pytest.fail("it began"))
    return before, after


def test_the_settings_of_fsdp_are_restored(world: World) -> None:
    for before, after in world.run(calibrated_as_set):
        assert before == [
            (True, True, False, True),
            (True, False, True, True),
            (False, False, True, True),
            (True, True, True, False),
        ]
        assert after == before
