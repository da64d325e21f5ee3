"""Accelerate with FSDP2. It shards on accelerators alone, so here a CPU is taken for one."""

import os
import tempfile

os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"

from accelerate import Accelerator, FullyShardedDataParallelPlugin, PartialState
from accelerate.utils import DistributedType, InitProcessGroupKwargs
from common import BACKEND, STEPS, inputs, loss_of, model, optimizer_of, report

PartialState._prepare_backend = lambda _self, _cpu, _sagemaker, backend: (backend, DistributedType.MULTI_GPU)

accelerator = Accelerator(
    kwargs_handlers=[InitProcessGroupKwargs(backend=BACKEND)],
    fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="size_based_wrap"),
)
trained = model()
trained, optimizer = accelerator.prepare(trained, optimizer_of(trained))
assert any(hasattr(parameter, "full_tensor") for parameter in trained.parameters()), "not sharded"
losses = []
for step in range(STEPS):
    loss = loss_of(trained, inputs(step, accelerator.process_index))
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
folder = [tempfile.mkdtemp()]
accelerator.save_state(accelerator.gather_for_metrics(folder, use_gather_object=True)[0])
report(losses, trained.parameters())
accelerator.end_training()
