"""Distributed checkpoints of FSDP2, saved at once and beside the training, and loaded again."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import BACKEND, model, report, train
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group(BACKEND)
beside = dist.new_group()  # what runs beside the training has a group of its own
trained = fully_shard(model(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)

losses = train(trained, dist.get_rank())
dcp.save(get_model_state_dict(trained), checkpoint_id=os.path.join(folder[0], "sync"))
saving = dcp.async_save(
    get_model_state_dict(trained), checkpoint_id=os.path.join(folder[0], "async"), process_group=beside
)
before = [parameter.full_tensor().clone() for parameter in trained.parameters()]
losses += train(trained, dist.get_rank())
saving.result()
for name in ("sync", "async"):
    state = get_model_state_dict(trained)
    dcp.load(state, checkpoint_id=os.path.join(folder[0], name))
    for parameter, saved in zip(state.values(), before, strict=True):
        assert torch.equal(parameter.full_tensor(), saved), name
    losses += train(trained, dist.get_rank())
report(losses, trained.parameters())
dist.destroy_process_group()
