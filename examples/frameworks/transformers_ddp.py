"""The Trainer of transformers, with DDP. Its list of names lacks ours: the program says gloo."""

import tempfile

from common import STEPS, llama, report, sentences
from transformers import Trainer, TrainingArguments

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        ddp_backend="gloo",
        use_cpu=True,
        max_steps=STEPS,
        per_device_train_batch_size=2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model=llama(), args=arguments, train_dataset=sentences(64), eval_dataset=sentences(8))
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    losses.append(trainer.evaluate()["eval_loss"])
    report(losses, trainer.model.parameters())
