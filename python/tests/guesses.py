"""Programs in which what enable() has gathered ahead is a wrong guess."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import register_fsdp_forward_method

from .situations import BLOCKS, batch, change, change_unseen, gradients, local, trained

Result = list[torch.Tensor]


def forward_without_backward(net: Any) -> Result:
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(batch()).pow(2).sum().backward()
    net(batch(1)).pow(2).sum()
    optimizer.step()
    return trained(net)


def trial_and_load(net: Any) -> Result:
    net(batch())
    change_unseen(net)
    return trained(net)


def weights_changed_before_backward(net: Any) -> Result:
    out = net(batch()).pow(2).sum()
    change_unseen(net)
    out.backward()
    return [*gradients(net), *trained(net)]


def evaluation_leaves_out(net: Any) -> Result:
    with torch.no_grad():
        net(batch(), order=(0, 2))
    change_unseen(net)
    return trained(net)


def inference_leaves_out(net: Any) -> Result:
    trained(net)
    with torch.inference_mode():
        net(batch(), order=(0, 3))
    change_unseen(net)
    return trained(net)


def evaluation_before_step(net: Any) -> Result:
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net(batch()).sum().backward()
    with torch.no_grad():
        net(batch(), order=(0, 2))
    optimizer.step()
    return trained(net)


def training_leaves_out(net: Any) -> Result:
    net(batch(), order=(0, 3)).sum().backward()
    seen = gradients(net)
    change_unseen(net)
    return [*seen, *trained(net)]


def backward_that_is_not_the_last(net: Any) -> Result:
    net.set_is_last_backward(False)
    net(batch(), order=(0, 2)).sum().backward()
    net.set_is_last_backward(True)
    change_unseen(net)
    return trained(net)


def twice_in_a_backward_that_is_not_the_last(net: Any) -> Result:
    """FSDP2 gathers in a backward what comes before in the forward; here that is the block itself."""
    net.set_is_last_backward(False)
    net(batch(), order=(3, 1, 1)).pow(2).sum().backward()
    net.set_is_last_backward(True)
    change(net)
    return trained(net)


def no_backward_is_the_last(net: Any) -> Result:
    """FSDP2 then keeps the order of all forwards, and a later forward takes gathers that nothing uses."""
    net.set_is_last_backward(False)
    seen = []
    for i, order in enumerate([(0, 3, 1), range(BLOCKS), (1, 1, 1), (2, 0), (1,), range(BLOCKS)]):
        net(batch(i).requires_grad_(), order=order, reentrant=i == 2).pow(2).sum().backward()
        seen += gradients(net)
        change(net)
    return [*seen, net(batch()).detach()]


def raised(net: Any) -> Result:
    with contextlib.suppress(ValueError):
        net(batch(), order=(0, 1), fail=ValueError())
    change_unseen(net)
    with torch.no_grad():
        return [net(batch(1))]


def raised_and_reset(net: Any) -> Result:
    with contextlib.suppress(ValueError):
        net(batch(), order=(0, 1), fail=ValueError())
    net.reset_iter_state()
    change_unseen(net)
    return trained(net)


def interrupted(net: Any) -> Result:
    with contextlib.suppress(KeyboardInterrupt):
        net(batch(), order=(0,), fail=KeyboardInterrupt())
    change_unseen(net)
    with torch.no_grad():
        return [net(batch(1))]


def interrupted_then_a_part(net: Any) -> Result:
    with contextlib.suppress(KeyboardInterrupt):
        net(batch(), order=(0,), fail=KeyboardInterrupt())
    change(net)
    with torch.no_grad():
        return [net.blocks[1](batch(1))]


def parts_after_one_that_raised(net: Any) -> Result:
    with contextlib.suppress(ValueError):
        net(batch(), order=(0,), fail=ValueError())
    with torch.no_grad():
        net.blocks[1](batch())
        change_unseen(net)
        return [net.blocks[2](batch(1)), net(batch(1))]


def part_by_itself(net: Any) -> Result:
    with torch.no_grad():
        return [net.blocks[0](batch()), net.blocks[1](batch())]


def part_by_itself_trained(net: Any) -> Result:
    net.blocks[1](net.blocks[0](batch())).sum().backward()
    return gradients(net)


def part_after_the_whole(net: Any) -> Result:
    trained(net)
    with torch.no_grad():
        seen = [net.blocks[1](batch())]
    change_unseen(net)
    return [*seen, *trained(net)]


def changed_by_a_hook(net: Any) -> Result:
    """A hook of one block changes the next, which is in flight by then."""
    net.blocks[0].register_forward_hook(lambda *_: change(net.blocks[1]))
    return trained(net)


def method_leaves_out(net: Any) -> Result:
    register_fsdp_forward_method(net, "encode")
    trained(net)
    with torch.no_grad():
        seen = [net.encode(batch(), order=(0, 2))]
        change(net)
        return [*seen, net.encode(batch()), *trained(net)]


def method_leaves_out_unseen(net: Any) -> Result:
    register_fsdp_forward_method(net, "encode")
    with torch.no_grad():
        net.encode(batch(), order=(0, 2))
        change_unseen(net)
        return [net.encode(batch())]


def called_more_often_on_a_rank(net: Any) -> Result:
    """The root stays as it was gathered, so that plain FSDP2 has nothing to gather in the loop."""
    with torch.no_grad():
        net(batch())
        seen = [net(batch(), order=()) for _ in range(1 + dist.get_rank())]
    return [seen[0], *trained(net)]


def a_rank_raises_alone(net: Any) -> Result:
    """The others' forward has ended, and that rank's is running to FSDP2. The parts go on by themselves."""
    with contextlib.suppress(ValueError):
        net(batch(), fail=ValueError() if dist.get_rank() == 0 else None)
    change(net)
    with torch.no_grad():
        x = net.blocks[0](batch())
        return [net.blocks[2](net.blocks[1](x))]


def interrupted_and_reset(net: Any) -> Result:
    with contextlib.suppress(KeyboardInterrupt):
        net(batch(), order=(0,), fail=KeyboardInterrupt())
    net.reset_iter_state()
    with torch.no_grad():
        net(batch(), order=(0, 2))
    change_unseen(net)
    return trained(net)


def method_before_the_whole(net: Any) -> Result:
    register_fsdp_forward_method(net, "encode")
    return [net.encode(batch()), *trained(net)]


def generated(net: Any) -> Result:
    seen = []
    with torch.no_grad():
        x = batch()
        for length in range(BLOCKS):
            x = net(x, order=tuple(range(length)))
            change_unseen(net, 1.5)
            seen.append(x)
    return [*seen, *trained(net)]


def pipeline(net: Any) -> Result:
    losses = [net(batch(i)).pow(2).sum() for i in range(3)]
    for loss in losses:
        loss.backward()
    seen = gradients(net)
    change_unseen(net)
    return [*seen, *trained(net)]


def retained(net: Any) -> Result:
    loss = net(batch()).pow(2).sum()
    loss.backward(retain_graph=True)
    change_unseen(net)
    loss.backward()
    return [*gradients(net), *trained(net)]


def unused_in_backward(net: Any) -> Result:
    """Weights that a block does not need in its backward, says the program, are not gathered for it."""
    net.blocks[BLOCKS - 2].set_unshard_in_backward(False)
    return trained(net)


def asked_for_by_hand(net: Any) -> Result:
    trained(net)
    handle = net.blocks[1].unshard(async_op=True)
    change_unseen(net)
    handle.wait()
    seen = net.blocks[1].linear.weight.detach().clone()
    net.blocks[1].reshard()
    return [seen, *trained(net)]


def asked_for_before_the_forward(net: Any) -> Result:
    """A gather that the program has asked for itself keeps the weights of that time."""
    trained(net)
    net.blocks[2].unshard(async_op=True)
    change_unseen(net)
    return trained(net)


def listed_by_hand(net: Any) -> Result:
    net.blocks[0].set_modules_to_forward_prefetch([net.blocks[2]])
    with torch.no_grad():
        net(batch(), order=(0,))
        change_unseen(net)
    return trained(net)


def listed_for_the_backward(net: Any) -> Result:
    """A list for the backward has no effect on gathers in a forward."""
    net.blocks[2].set_modules_to_backward_prefetch([net.blocks[1]])
    seen = trained(net)
    with torch.no_grad():
        net(batch(), order=(0, 2))
    change_unseen(net)
    return [*seen, *trained(net)]


def listed_elsewhere(net: Any) -> Result:
    """A list of one block says nothing of what another one gathers."""
    net.blocks[3].set_modules_to_forward_prefetch([net.blocks[1]])
    with torch.no_grad():
        net(batch(), order=(0, 2))
    change(net)
    return trained(net)


def asked_for_within_a_forward(net: Any) -> Result:
    """A hook asks for a block that was being gathered by a guess, and nothing takes that from it."""
    handles = []

    def ask(*_: object) -> None:
        handles.append(net.blocks[2].unshard(async_op=True))

    hook = net.blocks[0].register_forward_hook(ask)
    with torch.no_grad():
        net(batch(), order=(0, 1))
    hook.remove()
    handles[0].wait()
    seen = [local(net.blocks[2].linear.weight).clone()]
    net.blocks[2].reshard()
    return [*seen, *trained(net)]


def checkpointed(net: Any) -> Result:
    out = net(batch().requires_grad_(), reentrant=False)
    change_unseen(net)
    out.sum().backward()
    return [*gradients(net), *trained(net)]


def checkpointed_reentrantly(net: Any) -> Result:
    net.zero_grad()
    out = net(batch().requires_grad_(), reentrant=True)
    change_unseen(net)
    out.sum().backward()
    return [*gradients(net), *trained(net)]


def two_losses(net: Any) -> Result:
    first = net(batch()).sum()
    net(batch(1), order=(3, 1)).sum().backward()
    seen = gradients(net)
    change_unseen(net)
    first.backward()
    return [*seen, *gradients(net), *trained(net)]


def resharded_otherwise(net: Any) -> Result:
    net.blocks[1].set_reshard_after_forward(False)
    net.blocks[2].set_reshard_after_backward(False)
    seen = trained(net)
    with torch.no_grad():
        seen.append(net(batch(3), order=(0, 3)))
    return [*seen, *trained(net, 2)]


def in_another_order(net: Any) -> Result:
    with torch.no_grad():
        seen = [net(batch(), order=(3, 2, 1, 0)), net(batch(), order=(1, 1, 3))]
        change_unseen(net)
        seen.append(net(batch(), order=(2, 0)))
    return [*seen, *trained(net)]


def forward_in_a_hook(net: Any) -> Result:
    """A block computes something else while the backward of another runs."""
    seen: Result = []

    def look(*_: object) -> None:
        with torch.no_grad():
            seen.append(net.blocks[3](batch(5)))

    hook = net.blocks[0].register_full_backward_hook(look)
    net(batch().requires_grad_()).sum().backward()
    hook.remove()
    change_unseen(net)
    return [*seen, *trained(net)]


def stepped_in_hooks(net: Any) -> Result:
    """Optimizers step as soon as a gradient is there, and a block is needed again in the same backward."""
    shards = list(net.blocks.parameters())
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in shards]

    def step(*_: object) -> None:
        for p, optimizer in zip(shards, optimizers, strict=True):
            if p.grad is not None:
                optimizer.step()
                p.grad = None

    hooks = [block.register_full_backward_hook(step) for block in net.blocks]
    net(batch().requires_grad_(), order=(0, 1, 0, 2, 1, 3)).sum().backward()
    step()
    for hook in hooks:
        hook.remove()
    return [*(local(p).clone() for p in shards), *trained(net)]


def in_a_thread(net: Any) -> Result:
    loss = net(batch()).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    return [*gradients(net), *trained(net)]


SITUATIONS = [
    forward_without_backward,
    trial_and_load,
    weights_changed_before_backward,
    evaluation_leaves_out,
    inference_leaves_out,
    evaluation_before_step,
    training_leaves_out,
    backward_that_is_not_the_last,
    twice_in_a_backward_that_is_not_the_last,
    no_backward_is_the_last,
    raised,
    raised_and_reset,
    interrupted,
    interrupted_then_a_part,
    parts_after_one_that_raised,
    part_by_itself,
    part_by_itself_trained,
    part_after_the_whole,
    changed_by_a_hook,
    method_leaves_out,
    method_leaves_out_unseen,
    called_more_often_on_a_rank,
    a_rank_raises_alone,
    interrupted_and_reset,
    method_before_the_whole,
    generated,
    pipeline,
    retained,
    unused_in_backward,
    asked_for_by_hand,
    asked_for_before_the_forward,
    listed_by_hand,
    listed_for_the_backward,
    listed_elsewhere,
    asked_for_within_a_forward,
    checkpointed,
    checkpointed_reentrantly,
    two_losses,
    resharded_otherwise,
    in_another_order,
    forward_in_a_hook,
    stepped_in_hooks,
    in_a_thread,
]
