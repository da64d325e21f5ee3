"""Train on two workers of Ray Train that meet over the backend "mcast"; compare with gloo's weights.

It is examples/train.py, called by Ray in the place of a launcher.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

EXAMPLES = Path(__file__).resolve().parents[1]


def worker(config: dict[str, str]) -> None:
    """Train as one rank: Ray has called init_process_group("mcast")."""
    sys.path.insert(0, config["examples"])
    import torch
    from train import train

    torch.set_num_threads(1)
    train(argparse.Namespace(checkpoint=None, steps=6, lose=None))


def main() -> None:
    """Start a Ray of this machine alone, train on it, end it."""
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20)
    try:
        TorchTrainer(
            worker,
            train_loop_config={"examples": str(EXAMPLES)},
            torch_config=TorchConfig(backend="mcast", timeout_s=60),
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(storage_path=sys.argv[1]),
        ).fit()
    finally:
        ray.shutdown()
    print("Ray Train: the run has finished")


if __name__ == "__main__":
    main()
