"""A small GPT over bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerator import Accelerator
from torch import nn


@dataclass(frozen=True)
class Shape:
    """Sizes of the model: 4 blocks of 256 are 3.3 million parameters."""

    context: int = 128
    width: int = 256
    heads: int = 4
    blocks: int = 4
    vocabulary: int = 256


class Mlp(nn.Module):
    """Two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, time, width) to the same."""
        out: torch.Tensor = self.down(F.gelu(self.up(x)))
        return out


class Block(nn.Module):
    """Attention and MLP, both behind a LayerNorm, both added to the stream."""

    def __init__(self, shape: Shape, block_s: float, mlp: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.accelerator = Accelerator(block_s)
        self.heads = shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.project = nn.Linear(shape.width, shape.width)
        self.mlp = mlp(shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, time, width) to the same."""
        x = self.accelerator.begin(x)
        batch, time, width = x.shape
        q, k, v = (
            t.view(batch, time, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, time, width))
        return self.accelerator.end(x + self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """Predicts the next byte. A block takes at least so many seconds forward, see accelerator.py."""

    def __init__(self, shape: Shape, block_s: float = 0, mlp: Callable[[int], nn.Module] = Mlp) -> None:
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape, block_s, mlp) for _ in range(shape.blocks))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map bytes (batch, time) to logits (batch, time, vocabulary)."""
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits
