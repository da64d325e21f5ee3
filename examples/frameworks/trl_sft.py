"""TRL's trainer for supervised fine-tuning, which is one of transformers: the program says gloo."""

import tempfile

from common import STEPS, llama, report, sentences
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(128)}, unk_token="w0"))
with tempfile.TemporaryDirectory() as folder:
    trainer = SFTTrainer(
        model=llama(),
        args=SFTConfig(
            output_dir=folder,
            ddp_backend="gloo",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_steps=STEPS,
            per_device_train_batch_size=2,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{"input_ids": each["input_ids"]} for each in sentences(64)]),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w2", pad_token="w0"),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    report(losses, trainer.model.parameters())
