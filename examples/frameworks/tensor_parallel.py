"""Tensor parallelism within FSDP2, on a mesh of two dimensions; 4 ranks."""

import torch
import torch.distributed as dist
from common import BACKEND, WIDTH, report, train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import torch_mcast

dist.init_process_group(BACKEND)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("fsdp", "tp"))


class Block(nn.Module):
    """Two layers that are split over ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        """Return the layers' output."""
        return self.down(self.up(x).relu())


torch.manual_seed(1)
trained = nn.Sequential(Block(), Block())
for block in trained:
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["fsdp"])
fully_shard(trained, mesh=mesh["fsdp"])
torch_mcast.fsdp.enable(trained)
report(train(trained, mesh["fsdp"].get_local_rank()), trained.parameters())
dist.destroy_process_group()
