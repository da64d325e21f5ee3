"""A model of transformers without its Trainer, sharded by FSDP2; the weights are saved."""

import os
import tempfile

import torch
import torch.distributed as dist
from common import BACKEND, STEPS, llama, optimizer_of, report, sentences
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import torch_mcast

dist.init_process_group(BACKEND)
model = llama()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
torch_mcast.fsdp.enable(model)

optimizer = optimizer_of(model)
data = torch.tensor([sentence["input_ids"] for sentence in sentences(4 * STEPS)])
losses = []
for batch in data[dist.get_rank() :: dist.get_world_size()].chunk(STEPS):
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

state = {name: weight.full_tensor() for name, weight in model.state_dict().items()}
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder, state_dict=state)
    assert dist.get_rank() > 0 or "model.safetensors" in os.listdir(folder)
report(losses, model.parameters())
dist.destroy_process_group()
