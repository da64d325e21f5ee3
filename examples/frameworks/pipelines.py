"""Pipeline parallelism: two stages of a model, GPipe and 1F1B."""

import torch
import torch.distributed as dist
from common import BACKEND, STEPS, inputs, model, optimizer_of, report
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

dist.init_process_group(BACKEND)
rank = dist.get_rank()
whole = model()
mine = torch.nn.Sequential(*(whole[:2] if rank == 0 else whole[2:]))
optimizer = optimizer_of(mine)
losses: list[float] = []
for kind in (ScheduleGPipe, Schedule1F1B):
    stage = PipelineStage(mine, rank, 2, torch.device("cpu"))
    schedule = kind(stage, n_microbatches=4, loss_fn=torch.nn.MSELoss())
    for step in range(STEPS):
        batch = inputs(step, 0)
        said: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=batch.roll(1, dims=1), losses=said)
        optimizer.step()
        optimizer.zero_grad()
        told = [torch.stack(said).mean().item() if said else 0.0]
        dist.broadcast_object_list(told, src=1)
        losses += told
report(losses, mine.parameters())
dist.destroy_process_group()
