"""Steps of FSDP2 with the model of benchmarks/fsdp, overlapped by torch_mcast.fsdp.enable()."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import batch, load
from model import GPT, Shape
from timings import Ranks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import torch_mcast

LARGE, SMALL = Shape(context=256, width=512, heads=8), Shape(context=32, width=64, blocks=2)


class Training:
    """A model sharded over all ranks, and its steps."""

    def __init__(self, ranks: Ranks, small: bool) -> None:
        self._shape, self._batch = (SMALL, 2) if small else (LARGE, 8)
        self._device = ranks.device
        self._text, _ = load()
        torch.manual_seed(1)
        with self._place():  # the model makes tensors without naming a device
            self._model = GPT(self._shape)
        mesh = DeviceMesh.from_group(ranks.gather, self._device.type)
        for block in self._model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self._model, mesh=mesh)
        both = torch_mcast.nccl.Groups(ranks.gather, ranks.reduce)
        self.handle = torch_mcast.fsdp.enable(self._model, group=both)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        self._steps = 0
        self.losses: list[torch.Tensor] = []

    def _place(self) -> Any:
        return self._device if self._device.type == "cuda" else contextlib.nullcontext()

    def step(self) -> None:
        """Take a step; nothing waits for the device."""
        generator = torch.Generator().manual_seed(self._steps * 1_009 + dist.get_rank())
        tokens, following = (
            t.to(self._device) for t in batch(self._text, self._batch, self._shape.context, generator)
        )
        with self._place():
            loss = F.cross_entropy(self._model(tokens).flatten(0, 1), following.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._steps += 1
        self.losses.append(loss.detach())

    def mean_losses(self) -> list[float]:
        """Return the mean over ranks of each step's loss."""
        mine = torch.stack(self.losses)
        everyone = torch.empty(dist.get_world_size() * len(mine), device=self._device)
        dist.all_gather_into_tensor(everyone, mine)
        means: list[float] = everyone.view(-1, len(mine)).double().mean(0).tolist()
        return means


def train(ranks: Ranks, steps: int, small: bool) -> tuple[dict[str, Any], Training]:
    """Train; return its losses and the times of its steps, and the training to go on with."""
    training = Training(ranks, small)
    measured = ranks.timed(training.step, steps)
    return {
        "operation": "fsdp_step",
        "parameters": sum(p.numel() for p in training._model.parameters()) * dist.get_world_size(),
        "losses": training.mean_losses(),
        **measured,
    }, training
