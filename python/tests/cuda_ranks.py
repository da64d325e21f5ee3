"""Ranks with CUDA tensors, each a process: on a GPU, or by MCAST_TORCH_CUDA without one.

MCAST_TORCH_CUDA is a Python program that runs the script that follows it where torch's CUDA tensors need
no GPU (CONTRIBUTING.md). There streams are late on purpose, and device memory is out of the CPU's reach.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

# Taken from the environment: the library warns of settings that it does not know.
RUNNER = os.environ.pop("MCAST_TORCH_CUDA", "")
LIMIT_S = 300.0  # on a busy machine

needs_cuda = pytest.mark.skipif(
    not RUNNER and not torch.cuda.is_available(),
    reason="no CUDA device, and MCAST_TORCH_CUDA is not set: it names a program that does without one "
    "(CONTRIBUTING.md)",
)


def run(script: Path, what: str, size: int = 2, delay_us: int = 1000, **env: str) -> list[dict[str, Any]]:
    """Run a script with one argument on ranks; return the JSON that each printed last, {} of one without."""
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
    answers = []
    try:
        for rank, process in enumerate(ranks):
            out, err = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, f"rank {rank}:\n{out[-2000:]}\n{err[-6000:]}"
            lines = [line for line in out.splitlines() if line.startswith("{")]
            answers.append(json.loads(lines[-1]) if lines else {})
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return answers
