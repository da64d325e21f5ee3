"""torch.compile: compiled blocks under FSDP2 with enable(), and a compiled model under DDP."""

import torch
import torch.distributed as dist
from common import BACKEND, model, report, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import torch_mcast

dist.init_process_group(BACKEND)
rank = dist.get_rank()
sharded = model()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for block in sharded:
    block.compile(backend="aot_eager")
    fully_shard(block, mesh=mesh)
fully_shard(sharded, mesh=mesh)
torch_mcast.fsdp.enable(sharded)
losses = train(sharded, rank)
copied = model()
losses += train(torch.compile(DistributedDataParallel(copied), backend="aot_eager"), rank)
report(losses, [*sharded.parameters(), *copied.parameters()])
dist.destroy_process_group()
