"""A rank of test_device.py, and its comparisons."""

from __future__ import annotations

import os

import torch

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CUDA = torch.device("cuda", 0)
# Whether there is no GPU: then kernels have the CPU's bits, and the driver can be looked into.
EMULATED = "EMULATED" in os.environ


def values(rank: int, count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Return what a rank gives: of every type as many bits as sums have."""
    made = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count, generator=made).to(dtype)
    return torch.randint(0, 7, (count,), generator=made).to(dtype)


def same(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Say whether elements have the same bits in the same order, at any place and in any shape."""

    def raw(t: torch.Tensor) -> torch.Tensor:
        return torch.empty(t.numel(), dtype=t.dtype).copy_(t.cpu().flatten()).view(torch.uint8)

    return got.dtype == want.dtype and torch.equal(raw(got), raw(want))
