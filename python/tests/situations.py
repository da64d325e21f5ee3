"""Runs a program over a plain FSDP2 model and over one with enable(), and compares what both compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

import torch_mcast.fsdp

WIDTH, BLOCKS = 8, 4


class Block(nn.Module):
    """A block with a forward of its own: torch.compile does not look into torch's modules."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x) * 1.5)


class Net(nn.Module):
    """Blocks in a row, which a call may leave out, and a head that belongs to the root."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(BLOCKS))
        self.head = nn.Linear(width, width)

    def forward(
        self,
        x: torch.Tensor,
        order: tuple[int, ...] = (0, 1, 2, 3),
        fail: BaseException | None = None,
        reentrant: bool | None = None,
    ) -> torch.Tensor:
        """Call blocks in an order, checkpointed if reentrant says how; then raise, if so asked."""
        for i in order:
            x = (
                self.blocks[i](x)
                if reentrant is None
                else checkpoint(self.blocks[i], x, use_reentrant=reentrant)
            )
        if fail is not None:
            raise fail
        out: torch.Tensor = self.head(x)
        return out

    def encode(self, x: torch.Tensor, order: tuple[int, ...] = (0, 1, 2, 3)) -> torch.Tensor:
        """Call blocks as forward does, from another method."""
        for i in order:
            x = self.blocks[i](x)
        return x


class Around(nn.Module):
    """A net within a larger model, which is sharded as well. It is called as the net is."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net, self.blocks = net, net.blocks
        self.last = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        out: torch.Tensor = self.last(self.net(x, **options))
        return out

    def encode(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        return self.net.encode(x, **options)


Program = Callable[[Any], list[torch.Tensor]]


def build(
    enabled: bool, width: int = WIDTH, root: bool = True, around: bool | None = None, **options: Any
) -> Any:
    """Return a model with the same weights each time, with enable(**options) or plain.

    around: None, or it is a part of a larger model, which is returned; True: the part is sharded too.
    """
    torch.manual_seed(0)
    net = Net(width)
    for block in net.blocks:
        fully_shard(block)
    if root and around is not False:
        fully_shard(net)
    if around is not None:
        whole = fully_shard(Around(net))
        whole.handle = torch_mcast.fsdp.enable(net, **options) if enabled else None  # type: ignore
        return whole
    net.handle = torch_mcast.fsdp.enable(net, **options) if enabled else None  # type: ignore[assignment]
    return net


def batch(number: int = 0, width: int = WIDTH) -> torch.Tensor:
    """Return what a rank is given."""
    generator = torch.Generator().manual_seed(100 * number + dist.get_rank())
    return torch.randn(2, width, generator=generator)


def gradients(net: nn.Module) -> list[torch.Tensor]:
    """Return copies of this rank's shards of all gradients that are there."""
    return [local(p.grad).clone() for p in net.parameters() if p.grad is not None]


def local(tensor: Any) -> torch.Tensor:
    """Return this rank's shard, or the tensor itself where it is whole."""
    shard: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return shard.detach()


def change(net: nn.Module, value: float = 0.25) -> None:
    """Change all weights as a step or a load does."""
    with torch.no_grad():
        for p in net.parameters():
            local(p).mul_(value)


def change_unseen(net: nn.Module, value: float = 0.25) -> None:
    """Change all weights by writes that torch does not count."""
    for p in net.parameters():
        local(p).data.mul_(value)


def trained(net: Any, number: int = 7, width: int = WIDTH) -> list[torch.Tensor]:
    """Return what a whole step sees: its output, and its gradients."""
    net.zero_grad()
    out = net(batch(number, width))
    out.pow(2).sum().backward()
    return [out.detach().clone(), *gradients(net)]


def differ(program: Program, **options: Any) -> str:
    """Return what differs between the plain run of a program and the one with enable(), or nothing."""
    got: list[Any] = []
    for enabled in (False, True):
        net = build(enabled, **options)
        try:
            got.append(program(net))
        except Exception as e:
            got.append(f"{type(e).__name__}: {e}"[:200])
    plain, ours = got
    if isinstance(plain, str) or isinstance(ours, str):
        return (
            "" if isinstance(plain, str) and plain == ours else f"plain {plain!r:.200}, enabled {ours!r:.200}"
        )
    if len(plain) != len(ours) or not plain:
        return f"{len(plain)} results, enabled {len(ours)}"
    return "; ".join(
        f"result {i}: plain {a.flatten()[:2]}, enabled {b.flatten()[:2]}"
        for i, (a, b) in enumerate(zip(plain, ours, strict=True))
        if not torch.equal(a, b)
    )
