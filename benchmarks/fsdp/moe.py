"""A mixture of experts in torchtitan's layout, small enough for a test.

Half of the experts are on every second rank (a mesh of efsdp times ep ranks). The weights of an expert are
sharded over the ranks that have it, all other weights over all ranks. Each token goes to one expert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

EXPERTS = 8  # of each block
EP = 2  # ranks that share the experts out


class Meshes(NamedTuple):
    """Over which ranks weights are sharded."""

    dense: DeviceMesh
    sparse: DeviceMesh  # "efsdp" times "ep"


def meshes() -> Meshes:
    """Return them; all ranks call it."""
    ranks = dist.get_world_size()
    return Meshes(
        init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",)),
        init_device_mesh("cpu", (ranks // EP, EP), mesh_dim_names=("efsdp", "ep")),
    )


class Experts(nn.Module):
    """The MLPs of all experts. After spread() a rank has its own ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Parameter(0.02 * torch.randn(EXPERTS, width, width))
        self.down = nn.Parameter(0.02 * torch.randn(EXPERTS, width, width))

    def forward(self, tokens: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """Map tokens, in order of their experts; counts: how many each expert gets."""
        up, down = (w.to_local() if hasattr(w, "to_local") else w for w in (self.up, self.down))
        parts = zip(torch.split(tokens, counts), up.unbind(), down.unbind(), strict=True)
        return torch.cat([F.gelu(part @ u) @ d for part, u, d in parts])

    def spread(self, mesh: DeviceMesh) -> None:
        """Keep the experts of this rank."""
        for name, weights in list(self.named_parameters()):
            own = distribute_tensor(weights.detach(), mesh, [Shard(0)], src_data_rank=None)
            self.register_parameter(name, nn.Parameter(own))


class Moe(nn.Module):
    """A router, and the experts that it sends tokens to."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, EXPERTS, bias=False)
        self.experts = Experts(width)
        self.group: Any = None  # ranks that share the experts out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, time, width) to the same."""
        tokens = x.flatten(0, -2)
        weight, expert = self.router(tokens).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        counts = expert.bincount(minlength=EXPERTS)
        found = torch.empty_like(tokens)
        found = found.index_copy(0, order, self._by_experts(tokens[order], counts))
        out: torch.Tensor = (found * weight.unsqueeze(-1)).view_as(x)
        return out

    def _by_experts(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Map tokens in order of their experts, wherever these are."""
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.group)
        sends, receives = (c.view(EP, -1).sum(1).tolist() for c in (counts, theirs))
        arrived = all_to_all_single_autograd(tokens, receives, sends, self.group)
        # They arrive in order of ranks, and of each rank in order of its experts.
        own = torch.arange(EXPERTS // EP).repeat(EP).repeat_interleave(theirs)
        order = own.argsort(stable=True)
        mapped = self.experts(arrived[order], own.bincount(minlength=EXPERTS // EP).tolist())
        back = torch.empty_like(mapped).index_copy(0, order, mapped)
        returned: torch.Tensor = all_to_all_single_autograd(back, sends, receives, self.group)
        return returned


def spread(model: nn.Module, over: Meshes) -> None:
    """Share the experts of a model out, before it is sharded."""
    for part in model.modules():
        if isinstance(part, Moe):
            part.experts.spread(over.sparse["ep"])
            part.group = over.sparse["ep"].get_group()


def shard(block: nn.Module, over: Meshes, nested: bool, **options: Any) -> None:
    """Call fully_shard on a block; nested: on its experts by themselves, as older torch needs it."""
    experts = [part.experts for part in block.modules() if isinstance(part, Moe)]
    if nested:
        for part in experts:
            fully_shard(part, mesh=over.sparse["efsdp"], **options)
        fully_shard(block, mesh=over.dense, **options)
    else:
        fully_shard(block, mesh=over.dense, shard_placement_fn=_placement(experts, over), **options)


def _placement(experts: list[Experts], over: Meshes) -> Callable[[nn.Parameter], Any]:
    """Return what tells fully_shard over which ranks a parameter is sharded."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, ShardPlacementResult

    of_experts = {parameter for part in experts for parameter in part.parameters()}
    sparse = ShardPlacementResult(Shard(0), FSDPMeshInfo(over.sparse["efsdp"], shard_mesh_dim=0))
    return lambda parameter: sparse if parameter in of_experts else None


def clip(parameters: Iterable[nn.Parameter], most: float) -> None:
    """Clip gradients as clip_grad_norm_ does, each call of which takes those of one mesh.

    Gradients of experts are EP times what those of the mean loss are, which AdamW does not mind.
    """
    of_mesh: dict[Any, list[Any]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            gradient: Any = parameter.grad
            of_mesh.setdefault(gradient.device_mesh, []).append(parameter)
    norms: list[Any] = [nn.utils.get_total_norm([p.grad for p in of]) for of in of_mesh.values()]
    total = torch.stack([norm.full_tensor() for norm in norms]).norm()
    for of in of_mesh.values():
        nn.utils.clip_grads_with_norm_(of, most, total)
