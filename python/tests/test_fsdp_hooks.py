"""A gradient is finished for any reader, in the middle of a backward or after one that raised."""

from __future__ import annotations

import contextlib
import copy
import ctypes
import io
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import Work

from torch_mcast.in_flight import Reduction

from .situations import BLOCKS, batch, build, change_unseen, differ, gradients, local, trained
from .values import ENABLE
from .world import World

pytestmark = ENABLE

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
    """A function with a backward that raises."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        raise ValueError("a check in the backward")


def raises(net: Any) -> None:
    late(net)
    with contextlib.suppress(ValueError):
        hook = net.blocks[0].register_forward_hook(lambda _, __, out: Check.apply(out))
        loss = net(batch(width=WIDTH)).sum()
        hook.remove()
        loss.backward()


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


def trained_after_one_that_raised(net: Any) -> Result:
    """FSDP2 goes on with gathers that were not used; it wants reset_iter_state() to be called first."""
    raises(net)
    change_unseen(net)
    return trained(net, width=WIDTH)


def trained_after_a_reset(net: Any) -> Result:
    raises(net)
    net.reset_iter_state()
    change_unseen(net)
    return trained(net, width=WIDTH)


def accumulated(net: Any) -> Result:
    seen: Result = []
    for block in net.blocks:
        block.register_full_backward_hook(lambda *_: seen.extend(gradients(net)))
    for number in range(3):
        net.set_requires_gradient_sync(number != 1)
        net(batch(number, WIDTH).requires_grad_()).sum().backward()
    return [*seen, *gradients(net)]


def read_by_a_thread(net: Any) -> Result:
    late(net)
    weight, seen, go = net.blocks[3].linear.weight, [], threading.Event()

    def read() -> None:
        go.wait()
        seen.append(local(weight.grad).clone())

    thread = threading.Thread(target=read)
    thread.start()
    net.blocks[2].register_full_backward_hook(lambda *_: go.set())
    net(batch(width=WIDTH)).sum().backward()
    go.set()
    thread.join()
    return [*seen, *gradients(net)]


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
    trained_after_one_that_raised,
    trained_after_a_reset,
    accumulated,
    read_by_a_thread,
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


class InterruptedWork(Work):
    """A work: ^C ends its first wait, the second one waits."""

    def __init__(self, output: torch.Tensor) -> None:
        super().__init__()
        self.output = output
        self.interrupts = 1

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        self.interrupts -= 1
        if self.interrupts >= 0:
            raise KeyboardInterrupt
        self.output.fill_(1)
        return True


def test_a_wait_that_was_interrupted_is_not_the_end() -> None:
    output = torch.zeros(3)
    reduction = Reduction(InterruptedWork(output), output, lambda: None, lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        reduction.wait()
    reduction.wait()
    assert output.tolist() == [1, 1, 1]


class FailedWork(Work):
    """A work that fails."""

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        raise RuntimeError("rank 3 is lost")


def test_each_reader_hears_of_a_reduction_that_failed() -> None:
    reduction = Reduction(FailedWork(), torch.zeros(3), lambda: None, lambda _: None)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="rank 3 is lost"):
            reduction.wait()
