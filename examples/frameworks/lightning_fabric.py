"""Lightning Fabric, with DDP."""

from common import BACKEND, STEPS, inputs, loss_of, model, optimizer_of, report
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy

fabric = Fabric(accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=BACKEND))
fabric.launch()
module = model()
trained, optimizer = fabric.setup(module, optimizer_of(module))
losses = []
for step in range(STEPS):
    loss = loss_of(trained, inputs(step, fabric.global_rank))
    fabric.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(fabric.all_reduce(loss.detach(), reduce_op="mean").item())
assert fabric.broadcast("from 0" if fabric.global_rank == 0 else None) == "from 0"
report(losses, trained.parameters())
