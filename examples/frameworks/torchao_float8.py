"""torchao: linear layers in float8 under FSDP2, whose weights are gathered in float8."""

import torch.distributed as dist
from common import BACKEND, model, report, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

import torch_mcast

dist.init_process_group(BACKEND)
trained = convert_to_float8_training(
    model(), config=Float8LinearConfig(enable_fsdp_float8_all_gather=True, emulate=True)
)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for block in trained:
    fully_shard(block, mesh=mesh)
fully_shard(trained, mesh=mesh)
torch_mcast.fsdp.enable(trained)
losses = train(trained, dist.get_rank())
report(losses, trained.parameters())
dist.destroy_process_group()
