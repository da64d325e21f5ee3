"""Accelerate with DDP on CPUs, where it asks for gloo."""

from accelerate import Accelerator
from common import STEPS, inputs, loss_of, model, optimizer_of, report

accelerator = Accelerator(cpu=True)
trained = model()
trained, optimizer = accelerator.prepare(trained, optimizer_of(trained))
losses = []
for step in range(STEPS):
    loss = loss_of(trained, inputs(step, accelerator.process_index))
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).mean().item())
report(losses, trained.parameters())
accelerator.end_training()
