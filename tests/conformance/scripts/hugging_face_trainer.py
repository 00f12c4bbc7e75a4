"""Hugging Face's Trainer: accumulation, clipping, a schedule, logs, evaluations, checkpoints, dropout, early stopping that never stops."""

# ranks: 2
# group: frameworks
# limit: 400
# needs: transformers
# expect: bitwise
# kills: forward@1:1 evaluation@3:1 backward@5:0 vote@6:1 evaluation@7:0 applied@9:1 forward@11:0 vote agreement@12:1 backward@14:1

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

from _common import join_seeded, start_trace, torch
from safetensors.torch import load_file
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

job = join_seeded()
trace = start_trace(job)
tokens = torch.randint(0, 50, (88, 12), generator=torch.Generator().manual_seed(3))
train_set, held_out = ([{"input_ids": row, "labels": row} for row in part] for part in (tokens[:76], tokens[76:]))
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=12, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
TIMES = ("runtime", "per_second")


class Lines(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        trace.line(f"step {state.global_step}", epoch=state.epoch, rate=kwargs["lr_scheduler"].get_last_lr()[0])


arguments = TrainingArguments(
    output_dir="saved",
    use_cpu=True,
    report_to="none",
    disable_tqdm=True,
    num_train_epochs=3,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    learning_rate=1e-2,
    warmup_steps=3,
    logging_steps=2,
    eval_strategy="steps",
    eval_steps=4,
    save_strategy="steps",
    save_steps=4,
    save_total_limit=2,
    load_best_model_at_end=True,
    seed=5,
)
trainer = Trainer(model, arguments, train_dataset=train_set, eval_dataset=held_out, callbacks=[Lines(), EarlyStoppingCallback(5)])
job.register(trainer=trainer)
trainer.train()
found = trainer.evaluate()
history = [{name: value for name, value in one.items() if not any(part in name for part in TIMES)} for one in trainer.state.log_history]
found = {name: value for name, value in found.items() if not any(part in name for part in TIMES)}
saved = {str(path): torch.load(path, weights_only=True) for path in sorted(Path("saved").glob("*/*.pt"))}
saved |= {str(path): load_file(path) for path in sorted(Path("saved").glob("*/*.safetensors"))}
trace.final(
    model=trainer.model,
    optimizer=trainer.optimizer.optimizer,
    schedule=trainer.lr_scheduler,
    history=history,
    found=found,
    state=trainer.state.global_step,
    flos=trainer.state.total_flos,
    best=trainer.state.best_model_checkpoint,
    saved=saved,
)
