"""What torch's holder of our works answers, with and without MCAST_PATCH_TORCH."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .limits import LIMIT_S

PROGRAM = """
import torch, torch.distributed as dist, torch_mcast
from torch._C._distributed_c10d import Work
before = Work.is_completed
dist.init_process_group("mcast", store=dist.HashStore(), rank=0, world_size=1)
work = dist.all_gather_into_tensor(torch.zeros(3), torch.ones(3), async_op=True)
work.wait()
print(work.is_completed(), Work.is_completed is before)
dist.destroy_process_group()
"""


def run(value: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"MCAST_PATCH_TORCH": value, "MCAST_FABRIC": "shm"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize(("value", "said"), [("", "True False"), ("on", "True False"), ("off", "False True")])
def test_torchs_class_is_changed_unless_it_is_off(value: str, said: str) -> None:
    done = run(value)
    assert done.stdout.strip() == said, done.stderr


def test_another_value_is_refused() -> None:
    done = run("no")
    assert "ArgumentError: MCAST_PATCH_TORCH=no is not allowed: it must be one of on, off" in done.stderr
