"""Ranks of test_device.py: each is a process with CUDA tensors, and prints one line of JSON.

over_cuda.py SCENARIO,SCENARIO...      with torchrun's variables
"""

from __future__ import annotations

import json
import os
import sys

import torch
import torch.distributed as dist

from tests import over_cuda_entries, over_cuda_streams, over_cuda_training
from tests.limits import LIMIT

PARTS = (over_cuda_entries, over_cuda_streams, over_cuda_training)


def scenario(name: str) -> object:
    """Run the scenario, a function of one of the parts, and return its result."""
    return next(getattr(part, name) for part in PARTS if hasattr(part, name))()


def main() -> None:
    torch.set_num_threads(1)
    torch.cuda.set_device(0)
    dist.init_process_group(os.environ.get("BACKEND", "cpu:mcast,cuda:mcast"), timeout=LIMIT)
    answers = {}
    for name in sys.argv[1].split(","):
        print(f"{name}:", flush=True)
        answers[name] = scenario(name)
    print(json.dumps(answers), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
