"""Ranks with CUDA tensors, each a process: on a GPU, or by MCAST_TORCH_CUDA without one.

MCAST_TORCH_CUDA is a Python program that runs the script that follows it where torch's CUDA tensors need
no GPU (CONTRIBUTING.md). There streams are late on purpose, and device memory is out of the CPU's reach.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from .limits import LIMIT_S

Test = TypeVar("Test", bound=Callable[..., None])

# Taken from the environment: the library warns of settings that it does not know.
RUNNER = os.environ.pop("MCAST_TORCH_CUDA", "")

_without_cuda = pytest.mark.skipif(
    not RUNNER and not torch.cuda.is_available(),
    reason="no CUDA device, and MCAST_TORCH_CUDA is not set: it names a program that does without one "
    "(CONTRIBUTING.md)",
)


def needs_cuda(test: Test) -> Test:
    """Have a test run where there are CUDA tensors, and in `make test-all`."""
    marked: Test = pytest.mark.more(_without_cuda(test))
    return marked


class Ended(NamedTuple):
    """A rank that has ended."""

    status: int
    out: str
    err: str


def ended(script: Path, what: str, size: int, delay_us: int, **env: str) -> list[Ended]:
    """Run a script with one argument on ranks, with streams that are late by up to delay_us a copy."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    base = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": "0",
        "TORCH_FR_DUMP_ON_TIMEOUT": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "FAKE_CUDA_DELAY_US": str(delay_us),
        "FAKE_CUDA_GUARD": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        **({"EMULATED": "1"} if RUNNER else {}),
        **env,
    }
    command = [sys.executable, *([RUNNER] if RUNNER else []), str(script), what]
    ranks = [
        subprocess.Popen(
            command,
            env={**base, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=LIMIT_S) for process in ranks]
        return [Ended(p.returncode, out, err) for p, (out, err) in zip(ranks, said, strict=True)]
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def run(script: Path, what: str, size: int = 2, delay_us: int = 1000, **env: str) -> list[dict[str, Any]]:
    """Run a script with one argument on ranks; return the JSON that each printed last, {} of one without."""
    answers = []
    for rank, one in enumerate(ended(script, what, size, delay_us, **env)):
        assert one.status == 0, f"rank {rank}:\n{one.out[-2000:]}\n{one.err[-6000:]}"
        lines = [line for line in one.out.splitlines() if line.startswith("{")]
        answers.append(json.loads(lines[-1]) if lines else {})
    return answers
