"""Whatever reads a gradient in the middle of a backward, or after one that raised, finds it finished."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import io
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .situations import BLOCKS, batch, build, differ, gradients, local, trained
from .world import World

WIDTH = 256  # enough for a Reduce-Scatter to be in flight when the next hook runs
Result = list[torch.Tensor]
Read = Callable[[Any], torch.Tensor]


def late(net: Any) -> None:
    """Have the last rank be late, so that something is in flight on the others."""
    if dist.get_rank() == dist.get_world_size() - 1:
        for block in net.blocks:
            block.register_full_backward_pre_hook(lambda *_: time.sleep(0.005))


def saved(p: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(p.grad.to_local(), buffer)
    buffer.seek(0)
    loaded: torch.Tensor = torch.load(buffer)
    return loaded


def summed(p: Any) -> torch.Tensor:
    total = local(p.grad).clone()
    dist.all_reduce(total)
    dist.all_reduce(p.grad._local_tensor)  # in place
    return total + local(p.grad)


def clipped(p: Any) -> torch.Tensor:
    return local(nn.utils.clip_grad_norm_([p], 0.1))


def doubled(p: Any) -> torch.Tensor:
    p.grad.mul_(2)
    return local(p.grad).clone()


def zeroed(p: Any) -> torch.Tensor:
    p.grad.zero_()
    return torch.ones(1)


def replaced(p: Any) -> torch.Tensor:
    seen = local(p.grad).clone()
    p.grad = None
    return seen


READS: dict[str, Read] = {
    "shard": lambda p: local(p.grad).clone(),
    "whole": lambda p: p.grad.full_tensor().clone(),
    "norm": lambda p: local(p.grad.norm()),
    "numpy": lambda p: torch.from_numpy(p.grad._local_tensor.numpy().copy()),
    "pointer": lambda p: torch.tensor(
        list(ctypes.string_at(p.grad._local_tensor.data_ptr(), p.grad._local_tensor.nbytes)[:64])
    ),
    "list": lambda p: torch.tensor(p.grad._local_tensor.tolist()),
    "deep copy": lambda p: local(copy.deepcopy(p.grad)),
    "through data": lambda p: local(p.grad.data).clone(),
    "saved": saved,
    "summed": summed,
    "clipped": clipped,
    "doubled": doubled,
    "zeroed": zeroed,
    "replaced": replaced,
    "finite": lambda p: local(torch.isfinite(p.grad)).all(),
    "optimizer": lambda p: (torch.optim.SGD([p], lr=0.1).step(), local(p).clone())[1],
    "foreach": lambda p: torch._foreach_norm([p.grad._local_tensor])[0],
}


def read_in_hooks(read: Read) -> Callable[[Any], Result]:
    def program(net: Any) -> Result:
        """Read each gradient, as soon as it is there, in hooks of modules and of activations."""
        late(net)
        seen: Result = []
        shards: list[Any] = list(net.parameters())
        new: set[int] = set(range(len(shards)))

        def look(*_: Any) -> None:
            for i in sorted(new):
                if shards[i].grad is not None:
                    new.discard(i)
                    seen.append(read(shards[i]))

        for block in net.blocks:
            block.register_full_backward_hook(look)
        net.blocks[1].register_forward_hook(lambda _, __, out: out.register_hook(look) and None)
        net(batch(width=WIDTH).requires_grad_()).sum().backward()
        return [*seen, *gradients(net), *(local(p).clone() for p in shards)]

    return program


def held(net: Any) -> Result:
    """What a hook has kept is an ordinary tensor's worth afterwards."""
    late(net)
    kept: list[Any] = []
    weight: Any = net.blocks[BLOCKS - 1].linear.weight
    net.blocks[2].register_full_backward_hook(lambda *_: kept.append(weight.grad.to_local()))
    net(batch(width=WIDTH)).sum().backward()
    return [kept[0] + 1, torch.from_numpy(kept[0].numpy()), weight.grad.to_local()]


class Check(torch.autograd.Function):
    """Whose backward raises."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        raise ValueError("a check in the backward")


def raises(net: Any) -> None:
    late(net)
    with contextlib.suppress(ValueError):
        net.blocks[0].register_forward_hook(lambda _, __, out: Check.apply(out))
        net(batch(width=WIDTH)).sum().backward()


def read_after_one_that_raised(net: Any) -> Result:
    raises(net)
    return gradients(net)


def clipped_after_one_that_raised(net: Any) -> Result:
    raises(net)
    return [local(nn.utils.clip_grad_norm_(net.parameters(), 1.0)).clone(), *gradients(net)]


def stepped_after_one_that_raised(net: Any) -> Result:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    raises(net)
    optimizer.step()
    net.reset_iter_state()
    return [local(p).clone() for p in net.parameters()]


def zeroed_after_one_that_raised(net: Any) -> Result:
    raises(net)
    net.zero_grad(set_to_none=False)
    return gradients(net)


def dropped_after_one_that_raised(net: Any) -> Result:
    raises(net)
    net.zero_grad()
    return [local(p).clone() for p in net.parameters()]


def all_reads() -> dict[str, str]:
    programs = {name: read_in_hooks(read) for name, read in READS.items()}
    found = {name: differ(program, width=WIDTH) for name, program in programs.items()}
    return {name: said for name, said in found.items() if said}


def test_a_gradient_that_a_hook_reads_is_there(world: World) -> None:
    for differences in world.run(all_reads):
        assert not differences


SITUATIONS = [
    held,
    read_after_one_that_raised,
    clipped_after_one_that_raised,
    stepped_after_one_that_raised,
    zeroed_after_one_that_raised,
    dropped_after_one_that_raised,
]


def all_situations() -> dict[str, str]:
    found = {program.__name__: differ(program, width=WIDTH) for program in SITUATIONS}
    return {name: said for name, said in found.items() if said}


def test_gradients_are_there_after_a_backward_that_raised(world: World) -> None:
    for differences in world.run(all_situations):
        assert not differences


def ordinary_afterwards() -> bool:
    net = build(True)
    trained(net)
    assert net.handle.deferred > 0
    return all(type(p.grad._local_tensor) is torch.Tensor for p in net.parameters())


def test_after_a_backward_gradients_are_ordinary_tensors(world: World) -> None:
    assert all(world.run(ordinary_afterwards))
