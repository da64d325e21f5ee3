"""Lightning's Trainer, with DDP."""

import logging
from typing import Any

import lightning
import torch
from common import BACKEND, STEPS, inputs, loss_of, model, optimizer_of, report
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader


class Module(lightning.LightningModule):
    """A model that remembers its losses."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model()
        self.losses: list[float] = []

    def training_step(self, batch: torch.Tensor) -> Any:
        """Return the loss."""
        loss = loss_of(self.model, batch)
        self.log("loss", loss, sync_dist=True)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return optimizer_of(self.model)

    def on_train_end(self) -> None:
        """Report while the group is there."""
        report([*self.losses, self.trainer.callback_metrics["loss"].item()], self.model.parameters())


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
trainer = lightning.Trainer(
    strategy=DDPStrategy(process_group_backend=BACKEND),
    accelerator="cpu",
    devices=2,
    max_steps=STEPS,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
data = torch.cat([inputs(step, rank) for step in range(STEPS) for rank in range(2)])
trainer.fit(Module(), DataLoader(data, batch_size=8, shuffle=False))
