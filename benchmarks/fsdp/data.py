"""Real text that is on every machine: the sources of Python's standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch

_MAX_BYTES = 8 << 20
_HELD_OUT = 10  # every tenth file is for validation


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Return (training, validation) text as uint8, the same on every call and rank of a machine."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    total = 0
    for i, path in enumerate(sorted(root.rglob("*.py"))):
        if skipped.isdisjoint(path.relative_to(root).parts) and total < _MAX_BYTES:
            text = path.read_bytes()
            parts[i % _HELD_OUT == 0].append(text)
            total += len(text)
    if not all(parts):
        raise FileNotFoundError(f"{root} holds no Python sources to train on")
    train, held_out = (torch.frombuffer(bytearray(b"".join(p)), dtype=torch.uint8) for p in parts)
    return train, held_out


def batch(
    text: torch.Tensor, size: int, context: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return bytes and the bytes that follow them, both int64 (size, context)."""
    starts = torch.randint(len(text) - context, (size,), generator=generator)
    windows = torch.stack([text[s : s + context + 1] for s in starts.tolist()]).long()
    return windows[:, :-1], windows[:, 1:]
