"""A compiled model computes the same with enable() as without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo.testing

from .guesses import Result, evaluation_leaves_out, raised_and_reset
from .situations import WIDTH, batch, build, differ, gradients, trained
from .world import World


def steps(net: Any) -> Result:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    seen = []
    for number in range(2):
        seen += trained(net, number)
        optimizer.step()
    with torch.no_grad():
        seen.append(net(batch()))
    return seen


def read_in_hooks(net: Any) -> Result:
    seen: Result = []
    for block in net.blocks:
        block.register_full_backward_hook(lambda *_: seen.extend(gradients(net)))
    net(batch().requires_grad_()).sum().backward()
    return [*seen, *gradients(net)]


SITUATIONS = [steps, evaluation_leaves_out, raised_and_reset, read_in_hooks]


def compiled(program: Any, backend: str, whole: bool) -> Any:
    def run(net: Any) -> Result:
        torch._dynamo.reset()
        for module in [net] if whole else net.blocks:
            module.compile(backend=backend)
        result: Result = program(net)
        return result

    return run


def all_differences(backend: str, whole: bool) -> dict[str, str]:
    programs = SITUATIONS if backend == "eager" else [steps]
    found = {program.__name__: differ(compiled(program, backend, whole), width=WIDTH) for program in programs}
    return {name: said for name, said in found.items() if said}


@pytest.mark.parametrize(
    ("backend", "whole"), [("eager", False), ("eager", True), ("aot_eager", True), ("inductor", False)]
)
def test_a_compiled_model_computes_the_same(world: World, backend: str, whole: bool) -> None:
    for differences in world.run(all_differences, backend, whole):
        assert not differences


def graphs(enabled: bool) -> int:
    """Return into how many graphs a compiled model falls."""
    counted = torch._dynamo.testing.CompileCounter()
    torch._dynamo.reset()
    net = build(enabled)
    net.compile(backend=counted)
    trained(net)
    return int(counted.frame_count)


def test_enable_breaks_no_graph(world: World) -> None:
    plain, ours = world.run(graphs, False), world.run(graphs, True)
    assert plain == ours
    assert min(plain) > 0
