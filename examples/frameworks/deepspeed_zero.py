"""DeepSpeed on CPUs, with ZeRO of stages 1, 2 and 3."""

import os

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
from common import BACKEND, STEPS, inputs, loss_of, model, optimizer_of, report

deepspeed.init_distributed(dist_backend=BACKEND)
losses, weights = [], []
for stage in (1, 2, 3):
    trained = model()
    engine, *_ = deepspeed.initialize(
        model=trained,
        optimizer=optimizer_of(trained),
        config={
            "train_micro_batch_size_per_gpu": 8,
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
        },
    )
    for step in range(STEPS):
        loss = loss_of(engine, inputs(step, int(os.environ["RANK"])))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    with deepspeed.zero.GatheredParameters(list(trained.parameters())):
        weights += [parameter.detach().clone() for parameter in trained.parameters()]
    engine.destroy()
report(losses, weights)
deepspeed.comm.destroy_process_group()
