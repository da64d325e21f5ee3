"""What the trainings beside it share: the backend's name, a model, its data, and what rank 0 reports."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import torch_mcast
from torch_mcast.registry import backend_of

BACKEND = sys.argv[1]  # "gloo" or "mcast"
RESULT = Path(sys.argv[2])  # where rank 0 reports to
STEPS, WIDTH, BATCH = 4, 64, 8


def model() -> nn.Sequential:
    """Return a model, with the same weights on every rank."""
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)))


def llama(**config: Any) -> Any:
    """Return a model of transformers, with the same weights on every rank."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    sizes = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    return LlamaForCausalLM(
        LlamaConfig(**sizes, num_attention_heads=4, bos_token_id=1, eos_token_id=2, pad_token_id=0, **config)
    )


def sentences(count: int, length: int = 16) -> list[dict[str, list[int]]]:
    """Return data for llama()."""
    drawn = torch.randint(3, 128, (count, length), generator=torch.Generator().manual_seed(2)).tolist()
    return [{"input_ids": ids, "labels": ids} for ids in drawn]


def inputs(step: int, rank: int) -> torch.Tensor:
    """Return a rank's part of the batch of a step."""
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def loss_of(trained: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Return the loss of a batch."""
    return F.mse_loss(trained(batch), batch.roll(1, dims=1))


def optimizer_of(trained: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer with a state."""
    return torch.optim.SGD(trained.parameters(), lr=0.3, momentum=0.5)


def train(trained: nn.Module, rank: int) -> list[float]:
    """Take all steps, and return this rank's losses."""
    optimizer = optimizer_of(trained)
    losses = []
    for step in range(STEPS):
        loss = loss_of(trained, inputs(step, rank))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def report(
    losses: Sequence[float], parameters: Iterable[torch.Tensor], *, rank: int | None = None, ran_on: str = ""
) -> None:
    """Report losses, a digest of whole weights and the group's fabric; all ranks call this."""
    digest = hashlib.sha256()
    for parameter in parameters:
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        digest.update(whole.detach().contiguous().view(torch.uint8).numpy().tobytes())
    ran_on = ran_on or (torch_mcast.info().fabric if backend_of() else torch.distributed.get_backend())
    if (int(os.environ["RANK"]) if rank is None else rank) == 0:
        RESULT.write_text(json.dumps({"ran_on": ran_on, "losses": list(losses), "weights": digest.hexdigest()[:16]}))
