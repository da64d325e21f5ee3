"""torchtitan: its debug Llama, sharded and clipped by its own functions, as its Trainer calls them.

The Trainer itself wants an accelerator. torchtitan takes the device's default backend: gloo on a CPU.
"""

# ruff: noqa: E402

import os

import torch

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan takes a machine without one for CUDA

import torch.distributed as dist
from common import STEPS, optimizer_of, report
from torch.distributed.fsdp import FSDPModule
from torchtitan.config import CommConfig, CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as titan
from torchtitan.models.common.attention import FlexAttention
from torchtitan.models.llama3 import model_registry

import torch_mcast
from torch_mcast.registry import backend_of


def attention(_: FlexAttention, *qkv: torch.Tensor, **__: object) -> torch.Tensor:
    """Return causal attention as torch has it: FlexAttention has no backward on a CPU."""
    heads = [each.transpose(1, 2) for each in qkv]
    return torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)


FlexAttention.forward = attention
size = titan.init_distributed(CommConfig(trace_buf_size=0))
rank = dist.get_rank()
parallelism = ParallelismConfig(spmd_backend="partial_dtensor")
spec = model_registry("debugmodel", attn_backend="flex")
with torch.device("meta"):
    model = spec.model.build()
dims = ParallelDims.from_config(parallelism, size)
model = spec.parallelize_fn(
    model,
    parallel_dims=dims,
    training=TrainingConfig(mixed_precision_param="float32"),
    parallelism=parallelism,
    compile_config=CompileConfig(enable=False),
    ac_config=None,
    dump_folder=os.devnull,
)
torch.manual_seed(1)
model.to_empty(device="cpu")
with torch.no_grad():
    model.init_weights(buffer_device=None)
torch_mcast.fsdp.enable(model)
for module in model.modules():
    if backend_of() is None and isinstance(module, FSDPModule):
        module.set_force_sum_reduction_for_comms(True)  # gloo has no PREMUL_SUM, mcast has

optimizer = optimizer_of(model)
words = torch.randint(0, 2048, (2 * STEPS, 33), generator=torch.Generator().manual_seed(2))
losses = []
for batch in words[rank::size]:
    predicted = model(batch[None, :-1])
    loss = torch.nn.functional.cross_entropy(predicted.flatten(0, 1).float(), batch[1:])
    loss.backward()
    titan.clip_grad_norm_(list(model.parameters()), 1.0, foreach=True)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(titan.dist_mean(loss.detach(), dims.get_optional_mesh("fsdp")))
report(losses, model.parameters())
dist.destroy_process_group()
