"""How compute and communication slow each other down in FSDP2 on this host's cores: handle.interference.

    torchrun --nproc-per-node 2 benchmarks/live/interference.py [--fabric udp] [--steps 20] >> rows.ndjson

Two ranks, a core each, train blocks of matrices by torch's CPU kernels; nothing is emulated. Rank 0 prints a
row: the medians, their spread, and the text that the handle prints.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import torch_mcast.fsdp

sys.path.append(str(Path(__file__).resolve().parents[1] / "fsdp"))
from machine import shared_machine


def main() -> None:
    """Be a rank."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fabric", default="auto", help="MCAST_FABRIC")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=512, help="of a block's matrix")
    parser.add_argument("--blocks", type=int, default=6)
    args = parser.parse_args()
    os.environ["MCAST_FABRIC"] = args.fabric
    torch.set_num_threads(1)
    dist.init_process_group("mcast")
    torch.manual_seed(3)
    model: nn.Sequential = nn.Sequential(*(nn.Linear(args.width, args.width) for _ in range(args.blocks)))
    for block in model:
        fully_shard(block)
    fully_shard(model)
    handle = torch_mcast.fsdp.enable(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(256, args.width)

    def step() -> None:
        model(x).square().mean().backward()

    step()
    optimizer.step()
    handle.interference.calibrate(step)
    for _ in range(args.steps):
        with handle.interference.step():
            step()
        optimizer.step()
        optimizer.zero_grad()
    effect = handle.interference.result()
    if dist.get_rank() == 0:
        settings = {"fabric": args.fabric, "steps": args.steps, "width": args.width, "blocks": args.blocks}
        figures = asdict(effect)
        print(json.dumps(shared_machine() | settings | figures | {"text": str(effect)}))
    dist.destroy_process_group()


main()
