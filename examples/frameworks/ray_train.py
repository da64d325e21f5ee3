"""Ray Train, on a Ray of this machine alone."""

import os
import sys
import tempfile
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model


def worker(config: dict) -> None:
    """Train as one rank; Ray has made the process group."""
    sys.argv, sys.path[:0] = config["argv"], [config["folder"]]
    import torch
    from common import model, report, train

    torch.set_num_threads(1)
    rank = get_context().get_world_rank()
    trained = prepare_model(model())
    report(train(trained, rank), trained.parameters(), rank=rank)


names = ("MCAST_FABRIC", "PYTHONPATH", "OMP_NUM_THREADS")
variables = {name: os.environ[name] for name in names if name in os.environ}
with tempfile.TemporaryDirectory() as folder:
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, runtime_env={"env_vars": variables})
    TorchTrainer(
        worker,
        train_loop_config={"argv": sys.argv, "folder": str(Path(__file__).parent)},
        torch_config=TorchConfig(backend=sys.argv[1], timeout_s=60),
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=folder),
    ).fit()
    ray.shutdown()
