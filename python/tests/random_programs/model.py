"""The model of a program, its parts given to fully_shard as the program says."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from .draw import Program


class Planned(Exception):
    """What a program raises because it was drawn so."""


class Gate(torch.autograd.Function):
    """Lets a backward raise after the block with the given number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, net: Net, block: int) -> torch.Tensor:
        ctx.net, ctx.block = net, block
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.net.passed()
        if ctx.net.raises_in_backward == ctx.block:
            raise Planned("in the backward")
        return grads[0], None, None


class Block(nn.Module):
    """One block: `kind` says of what, `width` numbers in and out."""

    def __init__(self, spec: dict[str, Any], width: int) -> None:
        super().__init__()
        self.kind = kind = spec["kind"]
        self.checkpointed = spec["checkpoint"] or ""
        self.raises = False
        self.linear = nn.Linear(width, width) if kind not in ("scale", "bias") else None
        self.down = nn.Linear(width, width, bias=False) if kind in ("mlp", "nested") else None
        self.norm = nn.LayerNorm(width) if kind == "norm" else None
        self.scale = nn.Parameter(torch.rand(width)) if kind == "scale" else None
        self.bias = nn.Parameter(torch.rand(width)) if kind == "bias" else None

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm is not None:
            x = self.norm(x)
        if self.linear is not None:
            x = self.linear(x)
        if self.down is not None:
            x = self.down(nn.functional.gelu(x))
        if self.scale is not None:
            x = x * self.scale
        if self.bias is not None:
            x = x + self.bias
        if self.kind == "dropout":
            x = nn.functional.dropout(x, 0.25, self.training)
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.checkpointed.startswith("inside") and torch.is_grad_enabled():
            reentrant = self.checkpointed.endswith("reentrant")
            y: torch.Tensor = checkpoint(self.inner, x, use_reentrant=reentrant)
        else:
            y = self.inner(x)
        if self.raises:
            raise Planned("in a block")
        return y


class Net(nn.Module):
    """The blocks of a program, and a head which is the root's own."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        width = program["width"]
        self.blocks = nn.ModuleList()
        for i, spec in enumerate(program["blocks"]):
            other = spec["same_as"]
            block = Block(spec, width) if other is None else self.blocks[min(other, i - 1)]
            self.blocks.append(block)
        self.head = nn.Linear(width, 3)
        self.raises_in_backward = -1
        self.unneeded: list[Any] = []  # modules that do without their weights in the backward
        self.look: Any = lambda: None  # what hooks on activations call
        self.write: Any = lambda: None  # changes weights within a forward
        self.passed: Any = lambda: None  # what the backward calls before each block
        self.specs = program["blocks"]

    def forward(
        self, x: torch.Tensor, order: list[int], raises: tuple[str, int] | None, write: int | None
    ) -> torch.Tensor:
        for i in order:
            if i == write:
                self.write()
            where = raises[0] if raises is not None and raises[1] == i else ""
            if where == "before":
                raise Planned("before a block")
            y = self.run(i, x, where == "in")
            x = torch.tanh(x + Gate.apply(y, self, i))
            if where == "after":
                raise Planned("after a block")
        out: torch.Tensor = self.head(x.to(self.head.weight.dtype))
        return out

    def run(self, i: int, x: torch.Tensor, raises: bool) -> torch.Tensor:
        block, spec = self.blocks[i], self.specs[i]
        if spec["hook"] == "input" and x.requires_grad:
            x.register_hook(lambda _: self.look())
        block.raises = raises  # type: ignore[assignment]
        try:
            if (spec["checkpoint"] or "").startswith("around") and torch.is_grad_enabled():
                y = checkpoint(block, x, use_reentrant=spec["checkpoint"].endswith("reentrant"))
            else:
                y = block(x)
        finally:
            block.raises = False  # type: ignore[assignment]
        if spec["hook"] == "output" and y.requires_grad:
            y.register_hook(lambda _: self.look())
        return y  # type: ignore[no-any-return]


def build(program: Program, mesh: DeviceMesh) -> Net:
    """Return the model, sharded over the mesh, with the weights of the program's seed."""
    torch.default_generator.manual_seed(program["seed"])
    net = Net(program).to(getattr(torch, program["dtype"]))
    specs = program["blocks"]
    for block, spec in zip(net.blocks, specs, strict=True):
        if spec["frozen"]:
            block.requires_grad_(False)
        if spec["compiled"] and spec["same_as"] is None:
            block.compile(backend=spec["compiled"])
    options: dict[str, Any] = {"mesh": mesh}
    if program["policy"]:
        options["mp_policy"] = MixedPrecisionPolicy(
            **{name: getattr(torch, dtype) for name, dtype in program["policy"].items()}
        )
    if program["offload"]:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    for together, spec in groups(program, net):
        reshard = spec["reshard"]
        if reshard not in (None, True, False) and (mesh.ndim > 1 or mesh.size() % reshard):
            reshard = True
        for block in together:
            if block.kind == "nested" and len(together) == 1:
                fully_shard(block.down, **options)
        fully_shard(together if len(together) > 1 else together[0], **options, reshard_after_forward=reshard)
        if not spec["unshard_in_backward"] and all(block.kind == "bias" for block in together):
            # Only sums do without their weights in the backward: others would read memory that is gone.
            together[0].set_unshard_in_backward(False)
            net.unneeded.append(together[0])
    if program["root"]:
        fully_shard(net, **options)
    make_lists(net)
    return net


def make_lists(net: Net) -> None:
    """Let blocks gather for others by lists, as a user may."""
    for block, spec in zip(net.blocks, net.specs, strict=True):
        way, at = spec["list"] or ("", 0)
        target = net.blocks[at % len(net.blocks)]
        if way and isinstance(block, FSDPModule) and isinstance(target, FSDPModule):
            getattr(block, f"set_modules_to_{way}_prefetch")([target])


def groups(program: Program, net: Net) -> list[tuple[list[Any], dict[str, Any]]]:
    """Return which blocks are sharded together, with the spec of the first; ties weights within them."""
    found: list[tuple[list[Any], dict[str, Any]]] = []
    open_group = False  # the last one takes the next block in
    seen: set[int] = set()
    for block, spec in zip(net.blocks, program["blocks"], strict=True):
        if id(block) in seen:
            continue
        seen.add(id(block))
        shard = spec["shard"] if program["root"] else "own"
        if open_group:
            first = found[-1][0][-1]
            mine: Any = block
            if spec["tied_to_previous"] and first.linear is not None and mine.linear is not None:
                mine.linear.weight = first.linear.weight
            found[-1][0].append(block)
        elif shard != "with root":
            found.append(([block], spec))
        open_group = shard == "with next"
    return found


def fsdp_modules(net: nn.Module) -> list[Any]:
    """Return the modules that were given to fully_shard."""
    return [module for module in net.modules() if isinstance(module, FSDPModule)]
