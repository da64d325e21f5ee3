"""The three lines of the README in a script; DDP before torch 2.9. Run: torchrun --nproc-per-node 2 train.py."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

import torch_mcast

STEPS = 20

dist.init_process_group("mcast")
torch.manual_seed(dist.get_rank())
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(4)))
handle = None
if hasattr(FSDPModule, "set_custom_all_gather"):
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    handle = torch_mcast.fsdp.enable(model)
else:
    model = DistributedDataParallel(model)

optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
inputs = torch.randn(64, 256)
losses = []
for _ in range(STEPS):
    loss = (model(inputs) - inputs.clamp(-0.5, 0.5)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
if dist.get_rank() == 0:
    print(f"torch {torch.__version__}: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    print(handle)
dist.destroy_process_group()
